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

// labelHost makes labels of the host's facts by the rules of the pool and of the config. A host that a rule blocks
// waits: the watches on BareMetalHosts, HardwareData, pools and configs tell when the facts or the rules are others.
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

// hostFacts are what is known of the host, its Machine and its Cluster. Of a host that enrolled it is the name, of one
// of another infrastructure provider nothing.
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

// cpuArch returns the host's CPU architecture, and the field that it is in; "" when nothing is known of the hardware.
// What changes later needs no watch: the kubelet knows better then.
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

// hardware returns what is known of a host's hardware. HardwareData is watched from the first time on that a rule wants
// facts, and not where Metal3 is too old to have it: a watch on a kind that does not exist would keep the manager from
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
