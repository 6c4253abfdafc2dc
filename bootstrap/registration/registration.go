// Package registration determines what a Node is registered with: its name, labels, taints, annotations and provider
// ID. They depend on the pool, the Machine, the PoolbootConfig and the host. The package also knows which of them a
// kubelet can set, and which only a privileged client can set. It is pure: no client, no I/O.
package registration

import (
	"fmt"
	"maps"
	"regexp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/access"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
)

// WaitingForKubeletReason is the reason of the condition Ready=False of a Node from its pre-registration until its
// kubelet reports its status.
const WaitingForKubeletReason = "PoolbootWaitingForKubelet"

// WaitingForKubelet returns the condition NodeInPool of a PoolbootConfig whose Node is in a pool, and whose kubelet has
// never been Ready.
func WaitingForKubelet(node *corev1.Node, role string) metav1.Condition {
	kubelet := "has not registered yet"
	if record.HasKubelet(node) {
		kubelet = "is not Ready yet"
	}
	return metav1.Condition{Type: bootstrapv1.NodeInPoolCondition, Status: metav1.ConditionFalse, Reason: bootstrapv1.WaitingForKubeletReason,
		Message: fmt.Sprintf("Node %s is in pool %q; its kubelet %s", node.Name, role, kubelet)}
}

// BootPrepared returns the condition BootPrepared of a PoolbootConfig whose host has everything that it needs to boot.
// Its message remains true when the Node moves to another pool and the host is updated.
func BootPrepared(name, role, configuration string) metav1.Condition {
	return metav1.Condition{Type: bootstrapv1.BootPreparedCondition, Status: metav1.ConditionTrue, Reason: bootstrapv1.BootPreparedReason,
		Message: fmt.Sprintf("Node %s was registered in pool %q to boot with %s", name, role, configuration)}
}

// Sources is everything that a registration depends on.
type Sources struct {
	// NodeName is the name of the Node, from Name.
	NodeName string

	// Cluster identifies the cluster of the Node. A Node cannot have a name that the cluster uses for something else.
	Cluster access.Cluster

	// ProviderID is the spec.providerID of the Node. It is empty while no host is known.
	ProviderID string

	// HostUID is the UID of the BareMetalHost, for the label metal3.io/uuid. While no host is known, it is empty and
	// the Node does not get the label.
	HostUID string

	// CPUArch is the architecture from the inspection of the host, such as x86_64, for the label kubernetes.io/arch.
	// With an unknown architecture, the Node does not get the label. CPUArchSource is the field that has the
	// architecture.
	CPUArch, CPUArchSource string

	// Pool is the pool that was decided for the Machine.
	Pool poolv1.MachineConfigPool

	// Pools are all pools of the Machine's cluster, including Pool.
	Pools []poolv1.MachineConfigPool

	// Machine owns the PoolbootConfig, or is nil. The Node gets the labels and taints that Cluster API synchronizes to
	// Nodes.
	Machine *clusterv1.Machine

	// DerivedLabels are the labels from label rules.
	DerivedLabels []DerivedLabel

	// Config is the Machine's PoolbootConfig.
	Config *bootstrapv1.PoolbootConfig

	// RenderedConfig is the name of the rendered config that the host boots with.
	RenderedConfig string

	// CloudProviderSource is the field that starts the kubelet with --cloud-provider=external. It is empty if there is
	// none.
	CloudProviderSource string

	// SyncedLabels are the regular expressions of Cluster API's flag --additional-sync-machine-labels. The Node also
	// gets the Machine labels whose keys match one of them.
	SyncedLabels []*regexp.Regexp
}

// ForOverlay returns the sources of what the configuration of the host has of its registration. An inline data Secret
// is written before a host is chosen, and what depends on the host is never in it, so that the host keeps what it
// booted with.
func (in Sources) ForOverlay() Sources {
	if in.Config.Spec.IsInline() {
		in.ProviderID, in.HostUID, in.CPUArch, in.DerivedLabels = "", "", "", nil
	}
	return in
}

// DerivedLabel is a label whose value a rule computes from facts about the host.
type DerivedLabel struct {
	// Key and Value are the key and value of the label.
	Key, Value string
	// Source is the field that has the rule.
	Source string
}

// Registration is what a Node is registered with.
type Registration struct {
	// Name is the name of the Node. It is also a valid label value, because the kubelet sets the label
	// kubernetes.io/hostname to it.
	Name string

	// ProviderID is the spec.providerID of the Node. It is empty while no host is known.
	ProviderID string

	// Labels are all labels, including those that a kubelet cannot set.
	Labels map[string]string

	// Taints are the taints that Poolboot, the pool, the PoolbootConfig and the Machine declare, sorted by key and
	// effect.
	Taints []corev1.Taint

	// InitialTaints are taints that only a new Node gets: those of the Machine with the propagation OnInitialization,
	// and that of cloud providers, which its kubelet would add without a flag.
	InitialTaints []corev1.Taint

	// Annotations contain the PoolbootConfig, the rendered config and the applied taints.
	Annotations map[string]string

	// LabelSources are the fields that set each label, by key. TaintSources are the fields that set each taint,
	// including the initial ones, by the taint as text.
	LabelSources, TaintSources map[string][]string
}

// Node returns the Node to pre-register. It is not Ready, with WaitingForKubeletReason: an API server accepts the
// status of a Node on creation. The Node shares no memory with the registration, so a client can change it.
func (r Registration) Node() *corev1.Node {
	now := metav1.Now()
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: r.Name, Labels: maps.Clone(r.Labels), Annotations: maps.Clone(r.Annotations)},
		Spec:       corev1.NodeSpec{ProviderID: r.ProviderID, Taints: slices.Concat(r.Taints, r.InitialTaints)},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{
			Type:               corev1.NodeReady,
			Status:             corev1.ConditionFalse,
			Reason:             WaitingForKubeletReason,
			Message:            "Poolboot pre-registered this Node; its kubelet has not registered yet",
			LastHeartbeatTime:  now,
			LastTransitionTime: now,
		}}},
	}
}
