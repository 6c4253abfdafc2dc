// Package registration says what a Node is registered with: name, labels, taints, annotations and provider ID, out of
// the pool, the Machine, the PoolbootConfig and the host. It also knows which of that a kubelet may set by itself and
// which only a privileged client can. It is pure: no client, no I/O.
package registration

import (
	"fmt"
	"maps"
	"regexp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/identity"
)

// WaitingForKubeletReason is the reason of the condition Ready=False that a Node has from the moment it is made
// beforehand until its kubelet reports.
const WaitingForKubeletReason = "PoolbootWaitingForKubelet"

// WaitingForKubelet is the condition NodeInPool of a PoolbootConfig whose Node stands in a pool and whose kubelet has
// not been Ready yet.
func WaitingForKubelet(name, role string) metav1.Condition {
	return metav1.Condition{Type: bootstrapv1.NodeInPoolCondition, Status: metav1.ConditionFalse, Reason: bootstrapv1.WaitingForKubeletReason,
		Message: fmt.Sprintf("Node %s stands in pool %q, its kubelet is not Ready yet", name, role)}
}

// BootPrepared is the condition BootPrepared of a PoolbootConfig whose host has all that it needs. The pool is that of
// the Node as it is now.
func BootPrepared(name, role, configuration string) metav1.Condition {
	return metav1.Condition{Type: bootstrapv1.BootPreparedCondition, Status: metav1.ConditionTrue, Reason: bootstrapv1.BootPreparedReason,
		Message: fmt.Sprintf("Node %s is registered in pool %q, and its host boots with configuration %s", name, role, configuration)}
}

// Input is all that a registration depends on.
type Input struct {
	// NodeName is the Node's name: that of the Machine or of its host.
	NodeName string

	// Cluster is what the Node's cluster is known by, for names that no Node may have.
	Cluster identity.Cluster

	// ProviderID is the Node's spec.providerID. Empty while no host is known; the Node then gets none.
	ProviderID string

	// HostUID is the UID of the BareMetalHost, for the label metal3.io/uuid. Empty while no host is known; the Node
	// then gets no such label.
	HostUID string

	// CPUArch is the architecture that the inspection of the host found, such as x86_64, for the label
	// kubernetes.io/arch; any other than a known one gives none. CPUArchSource is the field that it is in.
	CPUArch, CPUArchSource string

	// Pool is the pool that was decided for the Machine.
	Pool poolv1.MachineConfigPool

	// Pools are all pools of the Machine's cluster, Pool among them.
	Pools []poolv1.MachineConfigPool

	// MachineLabels are all labels of the Machine. Those that Cluster API would sync to the Node are taken.
	MachineLabels map[string]string

	// DerivedLabels are labels that rules made of facts of the host.
	DerivedLabels []DerivedLabel

	// Config is the Machine's PoolbootConfig.
	Config *bootstrapv1.PoolbootConfig

	// RenderedConfig names the rendered config that the host boots with.
	RenderedConfig string

	// SyncedLabels are the regular expressions of Cluster API's flag --additional-sync-machine-labels: Machine labels
	// whose keys match one of them are taken too.
	SyncedLabels []*regexp.Regexp
}

// DerivedLabel is a label that a rule made of facts of the host.
type DerivedLabel struct {
	// Key and Value are the label's.
	Key, Value string
	// Source is the field that the rule is in.
	Source string
}

// Registration is what a Node is registered with.
type Registration struct {
	// Name is the Node's name. It is a valid label value too, because the kubelet writes it to kubernetes.io/hostname.
	Name string

	// ProviderID is the Node's spec.providerID; empty while no host is known.
	ProviderID string

	// Labels are all labels, also those that a kubelet may not set.
	Labels map[string]string

	// Taints are all taints, sorted by key and effect.
	Taints []corev1.Taint

	// Annotations name the PoolbootConfig and the rendered config.
	Annotations map[string]string

	// LabelSources and TaintSources name the fields that each label, by its key, and each taint, by its text, comes
	// from.
	LabelSources, TaintSources map[string][]string
}

// Node returns the Node to make beforehand, before any kubelet asks for it. It is not Ready, for
// WaitingForKubeletReason: an API server takes a Node's status on creation. It shares nothing with the registration, so
// a client may write into it.
func (r Registration) Node() *corev1.Node {
	now := metav1.Now()
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: r.Name, Labels: maps.Clone(r.Labels), Annotations: maps.Clone(r.Annotations)},
		Spec:       corev1.NodeSpec{ProviderID: r.ProviderID, Taints: slices.Clone(r.Taints)},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{
			Type:               corev1.NodeReady,
			Status:             corev1.ConditionFalse,
			Reason:             WaitingForKubeletReason,
			Message:            "Poolboot made this Node beforehand; its kubelet has not registered yet",
			LastHeartbeatTime:  now,
			LastTransitionTime: now,
		}}},
	}
}
