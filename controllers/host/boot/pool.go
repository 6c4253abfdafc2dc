package boot

import (
	"context"
	"errors"
	"fmt"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/nodelabels"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/outlook"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// choosePool sets the pool that the Machine boots into, and the rendered config that this pool hands out.
func (r *Phases) choosePool(ctx context.Context, s *state) error {
	var err error
	if s.pools, err = s.Pools(ctx); err != nil {
		return err
	}
	if err := s.decidePool(); err != nil {
		return err
	}
	chosen, err := pool.Boot{Config: s.Config, Pools: s.pools}.Pool(s.assigned.Role)
	if err != nil {
		return err
	}
	s.pool = *chosen
	switch {
	case s.hasConfiguration():
		s.configuration = s.Config.Status.Boot.ServedConfiguration.Name
	case s.pool.Status.Configuration.IsDefined():
		s.configuration = s.pool.Status.Configuration.Name
	default:
		return fault(bootstrapv1.PoolNotRenderedReason, "MachineConfigPool %s/%s has no status.configuration yet: see its conditions",
			s.pool.Namespace, s.pool.Name)
	}
	return nil
}

// hasConfiguration reports whether the host can have the recorded configuration already, and does not request it now:
// with an inline source, or if its Node was deleted before its kubelet registered. Another configuration would be
// recorded for a host that does not run it.
func (s *state) hasConfiguration() bool {
	if s.Config.Status.Boot.ServedConfiguration.Name == "" {
		return false
	}
	return s.Config.Spec.IsInline() || !record.IsRequestPending(s.Config) && s.previousRole == s.pool.Spec.PoolRole
}

// decidePool decides the pool of a host that is about to boot, so the pool that the host keeps counts. With an inline
// source, the pool is that of the data Secret, which only the phases of the bootstrap data read.
func (s *state) decidePool() (err error) {
	if s.Config.Spec.IsInline() && s.Config.Status.PoolRole == "" {
		return waiting(errors.New("the pool of the data Secret is not recorded yet"))
	}
	boot := pool.Boot{Config: s.Config, Machine: s.Machine, Pools: s.pools}
	if s.host != nil && s.host.Object != nil {
		boot.Host = s.host.Object
	}
	s.previousRole = s.Config.Status.PoolRole
	s.assigned, err = pool.ForBoot(boot)
	return err
}

// register computes what the Node is registered with.
func (r *Phases) register(ctx context.Context, s *state) error {
	hardware, source, err := r.hardware(ctx, s)
	if err != nil {
		return err
	}
	derived, err := s.deriveLabels(hardware)
	if err != nil {
		return err
	}
	cloudProviderSource, err := r.findCloudProvider(ctx, s)
	if err != nil {
		return err
	}
	arch, archSource := host.CPUArch(hardware, source)
	s.architecture = s.architectureOf(arch)
	registration, err := registration.Register(registration.Sources{
		NodeName:       registration.Name(registration.Naming{Config: s.Config, Machine: s.Machine, Host: s.host.Name}),
		Cluster:        workload.Identity(ctx, r.ClusterCache, s.Cluster),
		ProviderID:     s.host.ProviderID,
		HostUID:        s.host.UID,
		CPUArch:        arch,
		CPUArchSource:  archSource,
		Pool:           s.pool,
		Pools:          s.pools,
		Machine:        s.Machine,
		DerivedLabels:  derived,
		Config:         s.Config,
		RenderedConfig: s.configuration,
		SyncedLabels:   r.SyncedLabels,

		CloudProviderSource: cloudProviderSource,
	})
	if err != nil {
		return s.withRemedy(err)
	}
	s.registration = registration
	return join.CheckExtraConfig(s.Config) // before anything is created for the host
}

// deriveLabels derives labels from the facts about the host, with the rules of the pool and of the config. A host that
// a rule blocks waits: the watches on BareMetalHosts, HardwareData, pools and configs trigger the next try when the
// facts or the rules change. Of a host that enrolled, only the name is known. Of a host of another infrastructure
// provider, nothing is known.
func (s *state) deriveLabels(hardware *bmov1alpha1.HardwareDetails) ([]registration.DerivedLabel, error) {
	s.derivedLabels = nil
	if !s.hasLabelRules() {
		return nil, nil
	}
	facts := nodelabels.Source{
		Config: s.Config, BareMetalHost: s.host.Object, Hardware: hardware, Machine: s.Machine, Cluster: s.Cluster,
	}.Facts()
	results := nodelabels.Evaluate(facts, nodelabels.OfPool(&s.pool), nodelabels.OfConfig(s.Config))
	if blocked, ok := errors.AsType[*nodelabels.BlockedError](nodelabels.Blocking(results)); ok {
		reason := bootstrapv1.NodeLabelRuleInvalidReason
		if blocked.Missing() {
			reason = bootstrapv1.HostFactMissingReason
		}
		return nil, &failure{reason: reason, waits: blocked.Missing(), err: fmt.Errorf("host %s: %w", s.host.Name, blocked)}
	}
	var labels []registration.DerivedLabel
	s.derivedLabels = map[string]string{}
	for _, result := range results {
		if result.Outcome == nodelabels.Set {
			labels = append(labels, registration.DerivedLabel{Key: result.Key, Value: result.Value, Source: result.From})
			s.derivedLabels[result.Key] = result.Value
		}
	}
	return labels, nil
}

func (s *state) hasLabelRules() bool {
	return len(s.pool.Spec.Node.LabelRules)+len(s.Config.Spec.Node.LabelRules) > 0
}

var hardwareDataKind = schema.GroupKind{Group: bmov1alpha1.GroupVersion.Group, Kind: "HardwareData"}

// hardware returns what is known about the hardware of the host, and its source. The watch on HardwareData starts when
// a rule first needs facts, and only if Metal3 has this kind: a watch on a kind that does not exist would prevent the
// manager from starting. Without rules, no watch is necessary: the kubelet corrects the label of the CPU architecture.
func (r *Phases) hardware(ctx context.Context, s *state) (*bmov1alpha1.HardwareDetails, string, error) {
	if s.host.Object == nil {
		return nil, "", nil
	}
	if s.hasLabelRules() {
		_, err := r.Client.RESTMapper().RESTMapping(hardwareDataKind, bmov1alpha1.GroupVersion.Version)
		if err == nil {
			err = r.WatchHardware()
		}
		if err != nil && !meta.IsNoMatchError(err) {
			return nil, "", fmt.Errorf("watch on HardwareData: %w", err)
		}
	}
	return host.Hardware(ctx, r.Client, s.host.Object)
}

// findCloudProvider returns the field that starts the kubelet of the host with --cloud-provider=external, or "" if
// there is none. A host with an inline data Secret does not need its rendered config, so it can be gone.
func (r *Phases) findCloudProvider(ctx context.Context, s *state) (string, error) {
	source, err := s.ExternalCloudProvider(ctx, s.configuration)
	switch {
	case apierrors.IsNotFound(err) && s.Config.Spec.IsInline():
		return "", nil
	case apierrors.IsNotFound(err):
		return "", notRendered(client.ObjectKey{Namespace: s.pool.Namespace, Name: s.configuration}, &s.pool)
	}
	return source, err
}

// notRendered returns the failure of a host whose rendered config does not exist. Its pool creates it again.
func notRendered(key client.ObjectKey, p *poolv1.MachineConfigPool) error {
	return fault(bootstrapv1.PoolNotRenderedReason, "MachineConfig %s, the rendered config of MachineConfigPool %s, does not exist: see the conditions of the pool", key, p.Name)
}

// withRemedy adds the remedy to an error about labels that would take the Node out of the pool that its host keeps, or
// that its data Secret was created for. Cluster API syncs the labels of the Machine to the Node, so the Node cannot
// have both.
func (s *state) withRemedy(err error) error {
	isConflict := is[*registration.LabelConflictError](err) || is[*registration.OutsidePoolError](err)
	switch {
	case isConflict && s.Config.Spec.IsInline():
		return fmt.Errorf("%w; or %s. The data Secret is for pool %q and cannot be changed; the replacement boots into the pool of its labels",
			err, outlook.HowToReplace(s.Config), s.assigned.Role)
	case isConflict && s.assigned.Reason == pool.FromHost:
		return fmt.Errorf("BareMetalHost %s/%s keeps pool %q: %w; or remove the annotation %s from the host, so that it boots into the pool of %s",
			s.host.Namespace, s.host.Name, s.assigned.Retained, err, poolv1.HostRetainedPoolAnnotation, outlook.OwnerOf(s.Config))
	}
	return err
}

// reportPool reports that a Machine boots into another pool than the one that was recorded before its host was known,
// and why.
func (r *Phases) reportPool(s *state) {
	if s.Machine == nil || s.assigned.Reason == pool.FromRecord {
		return
	}
	role := s.pool.Spec.PoolRole
	switch {
	case s.assigned.Retained != "" && s.assigned.Reason != pool.FromHost:
		r.event(s, corev1.EventTypeWarning, bootstrapv1.EventRetainedPoolNotFound,
			"BareMetalHost %s keeps pool %s, which does not exist in Cluster %s: Machine %s boots into pool %s",
			s.host.Name, s.assigned.Retained, s.Cluster.Name, s.Machine.Name, role)
	case s.previousRole == "" || s.previousRole == role:
	case s.assigned.Reason == pool.FromHost:
		r.event(s, corev1.EventTypeNormal, bootstrapv1.EventPoolChanged,
			"BareMetalHost %s keeps pool %s: Machine %s boots into that pool instead of pool %s",
			s.host.Name, role, s.Machine.Name, s.previousRole)
	default:
		r.event(s, corev1.EventTypeNormal, bootstrapv1.EventPoolChanged,
			"The labels of Machine %s now select pool %s instead of pool %s", s.Machine.Name, role, s.previousRole)
	}
}
