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
