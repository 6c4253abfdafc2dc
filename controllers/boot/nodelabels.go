package boot

import (
	"context"
	"errors"
	"fmt"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/nodelabels"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
)

// labelHost derives labels from the facts about the host, with the rules of the pool and of the config. A host that a
// rule blocks waits: the watches on BareMetalHosts, HardwareData, pools and configs trigger the next try when the facts
// or the rules change.
func (r *Reconciler) labelHost(ctx context.Context, s *scope) ([]registration.DerivedLabel, error) {
	s.derivedLabels = nil
	if len(s.pool.Spec.NodeLabelRules)+len(s.config.Spec.NodeLabelRules) == 0 {
		return nil, nil
	}
	facts, err := r.hostFacts(ctx, s)
	if err != nil {
		return nil, err
	}
	results := nodelabels.Evaluate(facts,
		nodelabels.OfPool(&s.pool), nodelabels.OfConfig(s.config))
	if blocked := (*nodelabels.BlockedError)(nil); errors.As(nodelabels.Blocking(results), &blocked) {
		reason := bootstrapv1.NodeLabelRuleInvalidReason
		if blocked.Missing() {
			reason = bootstrapv1.HostFactMissingReason
		}
		return nil, &failure{reason: reason, waits: blocked.Missing(), err: fmt.Errorf("host %s: %w", s.host.Name, blocked)}
	}
	var labels []registration.DerivedLabel
	for _, result := range results {
		if result.Outcome == nodelabels.Set {
			labels = append(labels, registration.DerivedLabel{Key: result.Key, Value: result.Value, Source: result.From})
			s.derivedLabels = set(s.derivedLabels, result.Key, result.Value)
		}
	}
	return labels, nil
}

// hostFacts returns the known facts about the host, its Machine and its Cluster. Of a host that enrolled, only the name
// is known. Of a host of another infrastructure provider, nothing is known.
func (r *Reconciler) hostFacts(ctx context.Context, s *scope) (nodelabels.Facts, error) {
	of := nodelabels.Host{Config: s.config, BareMetalHost: s.host.Object, Machine: s.machine, Cluster: s.cluster}
	if of.BareMetalHost != nil {
		var err error
		if of.Hardware, err = r.hardware(ctx, of.BareMetalHost); err != nil {
			return nodelabels.Facts{}, err
		}
	}
	return of.Facts(), nil
}

// cpuArch returns the CPU architecture of the host and the field that contains it, or "" if nothing is known about the
// hardware. Later changes need no watch: the kubelet corrects the label.
func (r *Reconciler) cpuArch(ctx context.Context, s *scope) (arch, field string, err error) {
	if s.host.Object == nil {
		return "", "", nil
	}
	hardware, from, err := host.Hardware(ctx, r.Client, s.host.Object)
	if err != nil {
		return "", "", err
	}
	arch, field = host.CPUArch(hardware, from)
	return arch, field, nil
}

var hardwareDataKind = schema.GroupKind{Group: bmov1alpha1.GroupVersion.Group, Kind: "HardwareData"}

// hardware returns what is known about the hardware of a host. The watch on HardwareData starts when a rule first needs
// facts, and only if Metal3 has this kind: a watch on a kind that does not exist would prevent the manager from
// starting.
func (r *Reconciler) hardware(ctx context.Context, bmh *bmov1alpha1.BareMetalHost) (*bmov1alpha1.HardwareDetails, error) {
	_, err := r.Client.RESTMapper().RESTMapping(hardwareDataKind, bmov1alpha1.GroupVersion.Version)
	switch {
	case meta.IsNoMatchError(err):
		return bmh.Status.HardwareDetails, nil
	case err != nil:
		return nil, err
	}
	if err := r.watchHardware(); err != nil {
		return nil, fmt.Errorf("watch on HardwareData: %w", err)
	}
	details, _, err := host.Hardware(ctx, r.Client, bmh)
	return details, err
}
