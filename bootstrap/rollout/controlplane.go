package rollout

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	capiannotations "sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/excerpt"
)

// ControlPlane is what decides whether a host of the control plane can be away. All of it must be read live.
type ControlPlane struct {
	// Kubeadm is the KubeadmControlPlane of the Cluster, or nil if another control plane provider has it.
	Kubeadm *controlplanev1.KubeadmControlPlane
	// Status is what the control plane provider reports in the Cluster.
	Status *clusterv1.ClusterControlPlaneStatus
	// Machines are those of the control plane. Nodes are all its Nodes, also those without a Machine.
	Machines []clusterv1.Machine
	Nodes    []corev1.Node
	// Renewed are the names of the Nodes whose kubelets were seen to renew their Leases in the last seconds. A host
	// that has lost power is not among them, although its Node stays Ready for most of a minute.
	Renewed sets.Set[string]
	// Pods are the Pods in kube-system with the label tier=control-plane. Only mirror Pods of Nodes count.
	Pods []corev1.Pod
}

// Components of the control plane, as kubeadm labels their static Pods.
const (
	componentLabel     = "component"
	componentAPIServer = "kube-apiserver"
	componentEtcd      = "etcd"
)

// minMembers is the smallest number of members of etcd that has a quorum without one of them.
const minMembers = 3

// WhyNotWithout returns why the control plane can't be without a Node now, or "". Everything but this Node must be
// healthy, and etcd must have a quorum without it. Cluster API goes first: nothing begins while it changes the control
// plane.
func (c *ControlPlane) WhyNotWithout(name string) string {
	if why := c.whyProviderWorks(); why != "" {
		return why
	}
	for i := range c.Machines {
		switch machine := &c.Machines[i]; {
		case !machine.DeletionTimestamp.IsZero():
			return fmt.Sprintf("Machine %s is being deleted", machine.Name)
		case !machine.Status.NodeRef.IsDefined():
			return fmt.Sprintf("Machine %s has not joined", machine.Name)
		}
	}
	ready, components := c.staticPods()
	members := 0
	for i := range c.Nodes {
		node := &c.Nodes[i]
		if _, isMember := ready[node.Name][componentEtcd]; isMember || !components.Has(componentAPIServer) {
			members++
		}
		if node.Name == name {
			continue
		}
		if why := whyAway(node); why != "" {
			return why
		}
		if !c.Renewed.Has(node.Name) {
			return fmt.Sprintf("the kubelet of Node %s was not seen to renew its Lease in the last seconds. If this lasts, check its host", node.Name)
		}
		for _, component := range sets.List(components) {
			if isReady, exists := ready[node.Name][component]; !exists || !isReady {
				return fmt.Sprintf("static Pod %s-%s does not exist or is not Ready", component, node.Name)
			}
		}
	}
	if members > 0 && members < minMembers {
		return fmt.Sprintf("etcd has %d member(s), and no quorum without that of Node %s: have at least %d control plane Nodes", members, name, minMembers)
	}
	return ""
}

// whyAway returns why a Node is away or can be at any time, or "". What its host reports counts, too: an update goes on
// although its PoolbootConfig, and with it the slot, was deleted.
func whyAway(node *corev1.Node) string {
	switch state := agentv1.State(node.Annotations[agentv1.StateAnnotation]); {
	case !util.IsNodeReady(node):
		return fmt.Sprintf("Node %s is not Ready", node.Name)
	case node.Annotations[agentv1.BegunAnnotation] != "", state == agentv1.Applying, state == agentv1.Rebooting, state == agentv1.Verifying:
		return fmt.Sprintf("the update of Node %s has not ended", node.Name)
	case node.Spec.Unschedulable:
		return fmt.Sprintf("Node %s is cordoned: kubectl uncordon %s", node.Name, node.Name)
	}
	return ""
}

// whyProviderWorks returns why the control plane provider does not let another one change a host now, or "".
func (c *ControlPlane) whyProviderWorks() string {
	if s := c.Status; s != nil && s.DesiredReplicas != nil {
		for _, count := range []*int32{s.Replicas, s.ReadyReplicas, s.UpToDateReplicas} {
			if count != nil && *count != *s.DesiredReplicas {
				return fmt.Sprintf("not all %d replicas of the control plane are up to date and ready", *s.DesiredReplicas)
			}
		}
	}
	if c.Kubeadm == nil {
		return ""
	}
	is := "KubeadmControlPlane " + c.Kubeadm.Name
	switch {
	case !c.Kubeadm.DeletionTimestamp.IsZero():
		return is + " is being deleted"
	case capiannotations.HasPaused(c.Kubeadm):
		return is + " is paused, so it does not say whether etcd is healthy: remove the annotation cluster.x-k8s.io/paused"
	case c.Kubeadm.Status.ObservedGeneration != c.Kubeadm.Generation:
		return is + " has changed"
	}
	for _, busy := range []string{controlplanev1.KubeadmControlPlaneRollingOutCondition, controlplanev1.KubeadmControlPlaneScalingUpCondition,
		controlplanev1.KubeadmControlPlaneScalingDownCondition, controlplanev1.KubeadmControlPlaneRemediatingCondition} {
		if conditions.IsTrue(c.Kubeadm, busy) {
			return fmt.Sprintf("%s has the condition %s", is, busy)
		}
	}
	hasExternalEtcd := c.Kubeadm.Spec.KubeadmConfigSpec.ClusterConfiguration.Etcd.External.IsDefined()
	for _, healthy := range []string{controlplanev1.KubeadmControlPlaneEtcdClusterHealthyCondition, controlplanev1.KubeadmControlPlaneControlPlaneComponentsHealthyCondition} {
		switch condition := conditions.Get(c.Kubeadm, healthy); {
		case condition == nil && hasExternalEtcd && healthy == controlplanev1.KubeadmControlPlaneEtcdClusterHealthyCondition: // nobody has to report it
		case condition == nil:
			return fmt.Sprintf("%s does not have the condition %s yet", is, healthy)
		case condition.Status != metav1.ConditionTrue:
			return fmt.Sprintf("%s: the condition %s is %s: %s", is, healthy, condition.Status, excerpt.Line(condition.Message, maxConditionMessage))
		}
	}
	return ""
}

// maxConditionMessage is how many bytes of the message of another condition are repeated.
const maxConditionMessage = 300

// staticPods returns whether the static Pods of each Node are Ready, by Node and component, and all components. A
// kubelet can create mirror Pods with any labels for its own Node, so those of other Nodes do not count.
func (c *ControlPlane) staticPods() (ready map[string]map[string]bool, components sets.Set[string]) {
	ready, components = map[string]map[string]bool{}, sets.New[string]()
	for i := range c.Pods {
		pod := &c.Pods[i]
		if !slices.ContainsFunc(c.Nodes, func(node corev1.Node) bool { return node.Name == pod.Spec.NodeName }) {
			continue
		}
		component, owner := pod.Labels[componentLabel], metav1.GetControllerOf(pod)
		isMirror := metav1.HasAnnotation(pod.ObjectMeta, corev1.MirrorPodAnnotationKey) && owner != nil && owner.Kind == "Node" && owner.Name == pod.Spec.NodeName
		if component == "" || !isMirror {
			continue
		}
		if ready[pod.Spec.NodeName] == nil {
			ready[pod.Spec.NodeName] = map[string]bool{}
		}
		ready[pod.Spec.NodeName][component] = pod.DeletionTimestamp.IsZero() && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
		})
		components.Insert(component)
	}
	return ready, components
}
