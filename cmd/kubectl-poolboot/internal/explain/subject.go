package explain

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	nodev1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/node/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/identity"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/nodelabels"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/outlook"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
)

// subject is a boot and what there is about it; nil is what there is not.
type subject struct {
	// config is nil for a Node that Poolboot did not boot.
	config  *bootstrapv1.PoolbootConfig
	machine *clusterv1.Machine
	// cluster is the key of the Cluster, clusterObject itself.
	cluster       client.ObjectKey
	clusterObject *clusterv1.Cluster
	pools         []poolv1.MachineConfigPool
	bmh           *bmov1alpha1.BareMetalHost
	// hardware is what is known of the host's, hardwareFrom where it was found.
	hardware     *bmov1alpha1.HardwareDetails
	hardwareFrom string
	node         *corev1.Node
	// unseen is what could not be looked at, and why.
	unseen []string
}

// addUnseen notes what could not be looked at, and why.
func (s *subject) addUnseen(what string, err error) {
	s.unseen = append(s.unseen, what+": "+err.Error())
}

// onlyWaits says whether a config that is not Ready waits for a step that comes by itself.
func onlyWaits(config *bootstrapv1.PoolbootConfig) bool {
	return outlook.Of(conditions.GetReason(config, clusterv1.ReadyCondition)) == outlook.Waits
}

// nodeName is the name that the Node has or will have; "" while that depends on a host that is not chosen.
func (s *subject) nodeName() string {
	if s.config == nil {
		return s.node.Name
	}
	naming := registration.Naming{Config: s.config, Machine: s.machine}
	if s.bmh != nil {
		naming.Host = s.bmh.Name
	}
	return registration.Name(naming)
}

func (s *subject) machineLabels() map[string]string {
	if s.machine == nil {
		return nil
	}
	return s.machine.Labels
}

// pool is the role of the pool, and why it is that one. The error is why there is none.
func (s *subject) pool() (role, why string, err error) {
	boot := pool.Boot{Config: s.config, Machine: s.machine, Pools: s.pools}
	if s.bmh != nil {
		boot.Host = s.bmh
	}
	assigned, err := pool.ForBoot(boot)
	switch {
	case err != nil:
		return assigned.Role, err.Error(), err
	case assigned.Reason == pool.FromSpec:
		why = fmt.Sprintf("%s: spec.poolRole of PoolbootConfig %s", assigned.Reason, s.config.Name)
	case assigned.Reason == pool.FromLabels:
		why = fmt.Sprintf("%s: Machine %s has %s", assigned.Reason, s.machine.Name, s.deciding(assigned.Role))
	default:
		why = fmt.Sprintf("%s: %s", assigned.Reason, assigned.Message(boot))
	}
	switch {
	case !record.HasNode(s.config):
	case assigned.Reason != pool.FromRecord:
		why = fmt.Sprintf("recorded for Node %s; %s", s.config.Status.NodeRef.Name, why)
	case assigned.WithoutRecord != "" && assigned.WithoutRecord != assigned.Role:
		why = fmt.Sprintf("recorded for Node %s, whose labels count since it exists; the Machine would be in pool %q", s.config.Status.NodeRef.Name, assigned.WithoutRecord)
	}
	return assigned.Role, why, nil
}

// deciding are the labels of the Machine that a pool selects its Nodes by.
func (s *subject) deciding(role string) string {
	of, err := pool.OfRole(s.pools, role)
	if err != nil {
		return ""
	}
	var deciding []string
	for _, key := range pool.SelectorKeys(*of) {
		if value, has := s.machine.Labels[key]; has {
			deciding = append(deciding, key+"="+value)
		}
	}
	return strings.Join(deciding, " and ")
}

// register works out what the Node is registered with, as the manager does.
func (s *subject) register(role string, synced []*regexp.Regexp) (*registration.Registration, error) {
	of, err := pool.OfRole(s.pools, role)
	if err != nil {
		return nil, err
	}
	in := registration.Input{NodeName: s.nodeName(), Pool: *of, Pools: s.pools, MachineLabels: s.machineLabels(), Config: s.config, SyncedLabels: synced}
	if s.clusterObject != nil {
		in.Cluster = identity.Of(s.clusterObject)
	}
	in.CPUArch, in.CPUArchSource = host.CPUArch(s.hardware, s.hardwareFrom)
	named := in.NodeName != ""
	if !named {
		in.NodeName = role // any name: it is not part of the answer
	}
	switch {
	case s.config.Status.HostRef.IsDefined():
		in.HostUID = s.config.Status.HostRef.UID
	case s.bmh != nil:
		in.HostUID = string(s.bmh.UID)
	}
	if in.DerivedLabels, err = s.derivedLabels(of); err != nil {
		return nil, err
	}
	registration, err := registration.Register(in)
	if !named {
		delete(registration.Labels, corev1.LabelHostname)
	}
	return &registration, err
}

// derivedLabels are what rules make of the host; once the Node was made, what they made of it then.
func (s *subject) derivedLabels(of *poolv1.MachineConfigPool) ([]registration.DerivedLabel, error) {
	rules := []nodelabels.Rules{nodelabels.OfPool(of), nodelabels.OfConfig(s.config)}
	var labels []registration.DerivedLabel
	if record.HasNode(s.config) {
		for _, key := range slices.Sorted(maps.Keys(s.config.Status.DerivedNodeLabels)) {
			source := fmt.Sprintf("PoolbootConfig %s status.derivedNodeLabels", klog.KObj(s.config))
			for _, from := range rules {
				if slices.ContainsFunc(from.Rules, func(rule nodev1.NodeLabelRule) bool { return rule.Key == key }) {
					source = from.From
				}
			}
			labels = append(labels, registration.DerivedLabel{Key: key, Value: s.config.Status.DerivedNodeLabels[key], Source: source})
		}
		return labels, nil
	}
	if enrolled := s.config.Spec.Enrolled() != nil; s.bmh == nil && !enrolled {
		return nil, nil // no host is chosen, or it could not be looked at
	}
	boots := nodelabels.Host{Config: s.config, BareMetalHost: s.bmh, Hardware: s.hardware, Machine: s.machine, Cluster: s.clusterObject}
	results := nodelabels.Evaluate(boots.Facts(), rules...)
	if err := nodelabels.Blocking(results); err != nil {
		return nil, err
	}
	for _, result := range results {
		if result.Outcome == nodelabels.Set {
			labels = append(labels, registration.DerivedLabel{Key: result.Key, Value: result.Value, Source: result.From})
		}
	}
	return labels, nil
}
