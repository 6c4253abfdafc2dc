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
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	nodev1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/node/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/access"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/nodelabels"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
)

// subject is a boot and the objects around it; nil for objects that do not exist or were not read.
type subject struct {
	// config is nil for a Node that Poolboot did not boot.
	config  *bootstrapv1.PoolbootConfig
	machine *clusterv1.Machine
	// cluster is the key of clusterObject, which is nil when it could not be read.
	cluster       client.ObjectKey
	clusterObject *clusterv1.Cluster
	pools         []poolv1.MachineConfigPool
	bmh           *bmov1alpha1.BareMetalHost
	// hardware are the facts of the host's hardware, hardwareFrom where they were found.
	hardware     *bmov1alpha1.HardwareDetails
	hardwareFrom string
	// trouble is why Metal3 does not get on with the BareMetalHost, as it reports it.
	trouble string
	// missingSecrets are the Secrets that Metal3 needs to deploy the host and that do not exist, each with what to do,
	// and why CAPM3 has not rendered the data of the host.
	missingSecrets []string
	// labelSync is Metal3's own sync of labels to the Node.
	labelSync host.LabelSync
	node      *corev1.Node
	// reboot is whether the host must reboot to run what its pool hands out, and why; "" if it runs it.
	reboot string
	// unseen are the objects that could not be read, and why.
	unseen []string
}

// addUnseen notes an object that could not be read, and why.
func (s *subject) addUnseen(what string, err error) {
	s.unseen = append(s.unseen, what+": "+err.Error())
}

// nodeName returns the name that the Node has or will have; "" while it depends on a host that is not chosen.
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

// membership is the pool of a Node or a Machine.
type membership struct {
	// Pool is the role of the pool; empty without one.
	Pool string `json:"pool"`
	// Why is the reason for the pool, or for none.
	Why string `json:"why"`
}

// decidePool returns the pool and the reason for it. The error is why there is no pool although there must be one.
func (s *subject) decidePool() (membership, error) {
	if s.config == nil {
		return s.decideByNode()
	}
	boot := pool.Boot{Config: s.config, Machine: s.machine, Pools: s.pools}
	if s.bmh != nil {
		boot.Host = s.bmh
	}
	assigned, err := pool.ForBoot(boot)
	var why string
	switch {
	case err != nil:
		return membership{assigned.Role, err.Error()}, err
	case assigned.Reason == pool.FromSpec:
		why = fmt.Sprintf("%s: spec.poolRole of PoolbootConfig %s", assigned.Reason, s.config.Name)
	case assigned.Reason == pool.FromLabels:
		why = fmt.Sprintf("%s: Machine %s has %s", assigned.Reason, s.machine.Name, s.matchingLabels(assigned.Role, s.machine.Labels))
	default:
		why = fmt.Sprintf("%s: %s", assigned.Reason, assigned.Message(boot))
	}
	switch {
	case !record.HasNode(s.config):
	case assigned.Reason != pool.FromRecord:
		why = fmt.Sprintf("recorded for Node %s; %s", s.config.Status.NodeRef.Name, why)
	case assigned.WithoutRecord != "" && assigned.WithoutRecord != assigned.Role:
		why = fmt.Sprintf("recorded for Node %s, whose labels decide since it exists; the Machine's labels select pool %q", s.config.Status.NodeRef.Name, assigned.WithoutRecord)
	}
	return membership{assigned.Role, why}, nil
}

// decideByNode decides by the labels of a Node that Poolboot did not boot.
func (s *subject) decideByNode() (membership, error) {
	decision, err := pool.Decide(s.node.Labels, s.pools)
	switch {
	case err != nil:
		return membership{Why: err.Error()}, err
	case len(decision.Unsupported) > 0:
		return membership{decision.Role, "control plane; ignored custom pools: " + strings.Join(decision.Unsupported, " and ")}, nil
	case decision.ControlPlane:
		return membership{decision.Role, "control plane"}, nil
	case decision.Role == "":
		return membership{Why: "no pool selects its labels"}, nil
	}
	return membership{decision.Role, s.matchingLabels(decision.Role, s.node.Labels)}, nil
}

// matchingLabels returns those of labels that the pool's node selector uses.
func (s *subject) matchingLabels(role string, labels map[string]string) string {
	of, err := pool.OfRole(s.pools, role)
	if err != nil {
		return ""
	}
	var deciding []string
	for _, key := range pool.SelectorKeys(*of) {
		if value, has := labels[key]; has {
			deciding = append(deciding, key+"="+value)
		}
	}
	return strings.Join(deciding, " and ")
}

// register returns the labels and taints that the Node is registered with, as the manager does.
func (s *subject) register(role string, synced []*regexp.Regexp) (*registration.Registration, error) {
	of, err := pool.OfRole(s.pools, role)
	if err != nil {
		return nil, err
	}
	in := registration.Sources{NodeName: s.nodeName(), Pool: *of, Pools: s.pools, Machine: s.machine, Config: s.config, SyncedLabels: synced}
	if s.clusterObject != nil {
		in.Cluster = access.ClusterOf(s.clusterObject)
	}
	in.CPUArch, in.CPUArchSource = host.CPUArch(s.hardware, s.hardwareFrom)
	hasName := in.NodeName != ""
	if !hasName {
		in.NodeName = role // any name: the answer does not have it
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
	if !hasName {
		delete(registration.Labels, corev1.LabelHostname)
	}
	return &registration, err
}

// derivedLabels returns the labels that rules derive from the host; once the Node exists, those that were derived for
// it.
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
	results := s.evaluate(rules...)
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

// evaluate evaluates label rules for the host. It returns nil if no host is chosen, or it could not be read.
func (s *subject) evaluate(rules ...nodelabels.Rules) []nodelabels.Result {
	if s.bmh == nil && s.config.Spec.Enrolled() == nil {
		return nil
	}
	boots := nodelabels.Source{Config: s.config, BareMetalHost: s.bmh, Hardware: s.hardware, Machine: s.machine, Cluster: s.clusterObject}
	return nodelabels.Evaluate(boots.Facts(), rules...)
}
