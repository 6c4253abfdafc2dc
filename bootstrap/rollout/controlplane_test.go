package rollout_test

import (
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
)

// newControlPlane returns a healthy control plane of a KubeadmControlPlane, whose Nodes are cp-0 and so on.
func newControlPlane(size int) *rollout.ControlPlane {
	c := &rollout.ControlPlane{Kubeadm: &controlplanev1.KubeadmControlPlane{}, Status: &clusterv1.ClusterControlPlaneStatus{}, Renewed: sets.New[string]()}
	c.Kubeadm.Name = "cp"
	for _, healthy := range []string{controlplanev1.KubeadmControlPlaneEtcdClusterHealthyCondition, controlplanev1.KubeadmControlPlaneControlPlaneComponentsHealthyCondition} {
		conditions.Set(c.Kubeadm, metav1.Condition{Type: healthy, Status: metav1.ConditionTrue, Reason: "Healthy"})
	}
	for _, count := range []**int32{&c.Status.DesiredReplicas, &c.Status.Replicas, &c.Status.ReadyReplicas, &c.Status.UpToDateReplicas} {
		*count = ptr.To(int32(size))
	}
	for i := range size {
		name := fmt.Sprintf("cp-%d", i)
		machine := clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name}}
		machine.Status.NodeRef.Name = name
		c.Machines = append(c.Machines, machine)
		node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		c.Nodes = append(c.Nodes, node)
		c.Renewed.Insert(name)
		for _, component := range []string{"etcd", "kube-apiserver"} {
			pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: component + "-" + name, Labels: map[string]string{"component": component},
				Annotations:     map[string]string{corev1.MirrorPodAnnotationKey: "hash"},
				OwnerReferences: []metav1.OwnerReference{{Kind: "Node", Name: name, Controller: ptr.To(true)}}}}
			pod.Spec.NodeName = name
			pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			c.Pods = append(c.Pods, pod)
		}
	}
	return c
}

var _ = Describe("A control plane", func() {
	const node = "cp-2"

	It("can be without one of three Nodes, which need not be Ready itself", func() {
		c := newControlPlane(3)
		Expect(c.WhyNotWithout(node)).To(BeEmpty())
		c.Nodes[2].Status.Conditions, c.Pods[4].Status.Conditions = nil, nil
		c.Renewed.Delete(node)
		Expect(c.WhyNotWithout(node)).To(BeEmpty())
	})

	It("is not held back by a Node of a worker, whatever static Pods its kubelet has", func() {
		c := newControlPlane(3)
		pod := c.Pods[0].DeepCopy()
		pod.Labels["component"], pod.Spec.NodeName, pod.OwnerReferences[0].Name = "other", "worker", "worker"
		c.Pods = append(c.Pods, *pod)
		Expect(c.WhyNotWithout(node)).To(BeEmpty())
	})

	It("can be without one of two Nodes if etcd is elsewhere", func() {
		c := newControlPlane(2)
		c.Kubeadm.Spec.KubeadmConfigSpec.ClusterConfiguration.Etcd.External.Endpoints = []string{"https://etcd.example:2379"}
		c.Pods = []corev1.Pod{c.Pods[1], c.Pods[3]}
		conditions.Delete(c.Kubeadm, controlplanev1.KubeadmControlPlaneEtcdClusterHealthyCondition)
		Expect(c.WhyNotWithout("cp-0")).To(BeEmpty())
	})

	DescribeTable("can't be without a Node", func(why string, change func(*rollout.ControlPlane)) {
		c := newControlPlane(3)
		change(c)
		Expect(c.WhyNotWithout(node)).To(ContainSubstring(why))
	},
		Entry("while another one is not Ready", "Node cp-1 is not Ready", func(c *rollout.ControlPlane) { c.Nodes[1].Status.Conditions[0].Status = corev1.ConditionUnknown }),
		Entry("while the kubelet of another one does not renew its Lease", "the kubelet of Node cp-1", func(c *rollout.ControlPlane) { c.Renewed.Delete("cp-1") }),
		Entry("while another one is updated without a slot", "the update of Node cp-1 has not ended", func(c *rollout.ControlPlane) {
			c.Nodes[1].Annotations = map[string]string{agentv1.BegunAnnotation: "a"}
		}),
		Entry("while the host of another one changes although nobody has told it so", "the update of Node cp-1 has not ended", func(c *rollout.ControlPlane) {
			c.Nodes[1].Annotations = map[string]string{agentv1.StateAnnotation: string(agentv1.Applying)}
		}),
		Entry("while another one is cordoned", "Node cp-1 is cordoned: kubectl uncordon cp-1", func(c *rollout.ControlPlane) { c.Nodes[1].Spec.Unschedulable = true }),
		Entry("while the member of another one is down", "etcd-cp-0", func(c *rollout.ControlPlane) { c.Pods[0].Status.Conditions[0].Status = corev1.ConditionFalse }),
		Entry("while a static Pod of another one does not exist", "kube-apiserver-cp-1", func(c *rollout.ControlPlane) { c.Pods = append(c.Pods[:3], c.Pods[4:]...) }),
		Entry("while only a Pod that is not static has the labels of a missing one", "kube-apiserver-cp-1", func(c *rollout.ControlPlane) { c.Pods[3].Annotations = nil }),
		Entry("while only a Pod that claims to be static has them", "kube-apiserver-cp-1", func(c *rollout.ControlPlane) { c.Pods[3].OwnerReferences[0].Name = "cp-0" }),
		Entry("if etcd has two members", "no quorum without", func(c *rollout.ControlPlane) { c.Nodes, c.Machines, c.Pods = c.Nodes[1:], c.Machines[1:], c.Pods[2:] }),
		Entry("if two Nodes run programs that are not known", "no quorum without", func(c *rollout.ControlPlane) { c.Nodes, c.Pods = c.Nodes[1:], nil }),
		Entry("while a Machine is deleted", "Machine cp-0 is being deleted", func(c *rollout.ControlPlane) { c.Machines[0].DeletionTimestamp = ptr.To(metav1.Now()) }),
		Entry("while a Machine joins", "Machine cp-0 has not joined", func(c *rollout.ControlPlane) { c.Machines[0].Status.NodeRef.Name = "" }),
		Entry("while replicas are missing", "not all 5 replicas", func(c *rollout.ControlPlane) { c.Status.DesiredReplicas = ptr.To(int32(5)) }),
		Entry("while replicas are outdated", "not all 3 replicas", func(c *rollout.ControlPlane) { c.Status.UpToDateReplicas = ptr.To(int32(2)) }),
		Entry("while Cluster API rolls out", "has the condition RollingOut", func(c *rollout.ControlPlane) {
			conditions.Set(c.Kubeadm, metav1.Condition{Type: controlplanev1.KubeadmControlPlaneRollingOutCondition, Status: metav1.ConditionTrue, Reason: "RollingOut"})
		}),
		Entry("while Cluster API has not seen a change", "has changed", func(c *rollout.ControlPlane) { c.Kubeadm.Generation = 2 }),
		Entry("while nobody looks at etcd", "is paused", func(c *rollout.ControlPlane) {
			c.Kubeadm.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
		}),
		Entry("while nobody has looked at etcd", "cp does not have the condition EtcdClusterHealthy yet", func(c *rollout.ControlPlane) {
			conditions.Delete(c.Kubeadm, controlplanev1.KubeadmControlPlaneEtcdClusterHealthyCondition)
		}),
		Entry("while nobody has looked at the components", "cp does not have the condition ControlPlaneComponentsHealthy yet", func(c *rollout.ControlPlane) {
			conditions.Delete(c.Kubeadm, controlplanev1.KubeadmControlPlaneControlPlaneComponentsHealthyCondition)
		}),
		Entry("while a member of etcd has no Machine", "EtcdClusterHealthy is False: member x", func(c *rollout.ControlPlane) {
			conditions.Set(c.Kubeadm, metav1.Condition{Type: controlplanev1.KubeadmControlPlaneEtcdClusterHealthyCondition, Status: metav1.ConditionFalse, Reason: "NotHealthy", Message: "member x has no Machine"})
		}),
	)
})
