package node

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
)

var _ = Describe("The decision about a Node that Poolboot did not boot", func() {
	adopted := func(policy bootstrapv1.AdoptionPolicy) func(*bootstrapv1.PoolbootConfig) {
		return func(config *bootstrapv1.PoolbootConfig) {
			config.OwnerReferences, config.Status = nil, bootstrapv1.PoolbootConfigStatus{PoolRole: "infra"}
			config.Spec.PoolRole, config.Spec.Host = "infra", bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeNode, NodeName: name, Adoption: policy}
			record.RevokeToken(config)
		}
	}
	noMachine := func(f *facts) { f.machine = nil }
	ofControlPlane := func(f *facts) {
		p := poolv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: "control-plane"}, Spec: poolv1.MachineConfigPoolSpec{PoolRole: poolv1.RoleControlPlane}}
		p.Spec.Node.Labels = map[string]string{"example.com/etcd": "stacked"}
		f.pools, f.config.Spec.PoolRole, f.config.Status.PoolRole = append(f.pools, p), poolv1.RoleControlPlane, poolv1.RoleControlPlane
	}
	// owned is the Node as its owner has it.
	owned := func(node *corev1.Node) {
		node.Labels = map[string]string{"example.com/rack": "owner", "example.com/tier": "infra"}
		node.Annotations, node.Spec.Taints = nil, []corev1.Taint{{Key: "example.com/owner", Effect: corev1.TaintEffectNoSchedule}}
		ready(node)
	}
	follow := func() (*decision, facts) {
		GinkgoHelper()
		f := situation(adopted(bootstrapv1.AdoptionFollow), noMachine, owned)
		d := decide(f)
		Expect(d.node).NotTo(BeNil())
		return d, f
	}

	It("records it and gives it the name of its PoolbootConfig, and nothing of a pool, until somebody agrees", func() {
		f := situation(adopted(bootstrapv1.AdoptionPreview), noMachine, owned)
		d := decide(f)
		Expect(d.condition.Status).To(Equal(metav1.ConditionUnknown))
		Expect(d.condition.Reason).To(Equal(bootstrapv1.AdoptionPreviewReason))
		Expect(d.record).To(Equal(&nodeRecord{pool: "infra", node: bootstrapv1.NodeReference{Name: name, UID: oldUID}, configuration: agentv1.AsFoundConfig}))
		Expect(d.node.Annotations).To(Equal(map[string]string{poolv1.NodeConfigAnnotation: namespace + "/" + name}))
		Expect(d.node.Labels).To(Equal(f.node.Labels))
		Expect(d.node.Spec).To(Equal(f.node.Spec))
		f.node = d.node
		Expect(decide(f).node).To(BeNil(), "there is nothing more to do")
	})

	DescribeTable("names a Node that does not exist, and waits for it", func(policy bootstrapv1.AdoptionPolicy) {
		f := situation(adopted(policy), noMachine)
		f.node = nil
		d := decide(f)
		Expect(d.condition).To(And(HaveField("Status", metav1.ConditionFalse), HaveField("Reason", bootstrapv1.WaitingForNodeReason),
			HaveField("Message", HavePrefix("Node "+name+" does not exist in the workload cluster, and is adopted when it joins."))))
		Expect(d.record).To(BeNil())
	}, Entry("as it was found", bootstrapv1.AdoptionPreview), Entry("to put it in its pool", bootstrapv1.AdoptionFollow))

	It("puts it in its pool, and keeps what its owner set", func() {
		d, _ := follow()
		Expect(d.condition.Reason).To(Equal(bootstrapv1.NodeReadyInPoolReason))
		Expect(d.node.Labels).To(Equal(map[string]string{
			"example.com/rack": "owner", "example.com/tier": "infra", poolv1.NodeRoleLabelPrefix + "infra": "", poolv1.NodePoolLabel: "infra"}))
		Expect(d.node.Annotations).To(HaveKeyWithValue(poolv1.NodeAdoptedLabelsAnnotation, poolv1.NodeRoleLabelPrefix+"infra="))
		Expect(d.node.Spec.Taints).To(HaveLen(2))
	})

	It("lets the labels of the Node decide from then on", func() {
		d, f := follow()
		f.node, f.config.Status.NodeRef = d.node, d.record.node
		delete(f.node.Labels, poolv1.NodeRoleLabelPrefix+"infra")
		f.node.Labels[poolv1.NodeRoleLabelPrefix+"edge"] = ""
		Expect(decide(f).record.pool).To(Equal("edge"))
	})

	It("returns it to what its owner had once its host is as it was found, and not before", func() {
		d, f := follow()
		f.node, f.config.Status.NodeRef = d.node, d.record.node
		f.config.Spec.Host.Adoption = bootstrapv1.AdoptionPreview
		f.config.Status.Update.Desired.Name = "rendered-infra-1"
		Expect(decide(f).condition.Reason).To(Equal(bootstrapv1.NodeReadyInPoolReason))
		f.config.Status.Update.Desired.Name = agentv1.AsFoundConfig
		f.node.Labels["example.com/tier"] = "infra"
		original := situation(owned).node
		d = decide(f)
		Expect(d.node.Labels).To(Equal(original.Labels))
		Expect(d.node.Spec.Taints).To(Equal(original.Spec.Taints))
	})

	It("removes no label that its pool does not declare, whatever the host writes on its Node", func() {
		f := situation(adopted(bootstrapv1.AdoptionPreview), noMachine, owned, func(node *corev1.Node) {
			node.Annotations = map[string]string{poolv1.NodeAdoptedLabelsAnnotation: "example.com/rack=owner"}
		})
		Expect(decide(f).node.Labels).To(HaveKeyWithValue("example.com/rack", "owner"))
	})

	It("removes no taint that its pool does not declare, whatever the host writes on its Node", func() {
		f := situation(adopted(bootstrapv1.AdoptionPreview), noMachine, owned, func(node *corev1.Node) {
			node.Annotations = map[string]string{poolv1.NodeAppliedTaintsAnnotation: "example.com/owner:NoSchedule"}
		})
		Expect(decide(f).node.Spec.Taints).To(Equal(f.node.Spec.Taints))
	})

	It("keeps what its pool gave it after clusterctl move has dropped the status, until its host is as it was found", func() {
		d, f := follow()
		f.node = d.node
		f.config.Spec.Host.Adoption, f.config.Status = bootstrapv1.AdoptionPreview, bootstrapv1.PoolbootConfigStatus{}
		f.node.Annotations[agentv1.DesiredConfigAnnotation] = "rendered-infra-1"
		moved := decide(f)
		Expect(moved.node).To(BeNil(), "its host has the configuration of the pool")
		Expect(moved.record.pool).To(Equal("infra"))
		f.node.Annotations[agentv1.DesiredConfigAnnotation] = agentv1.AsFoundConfig
		original := situation(owned).node
		returned := decide(f).node
		Expect(returned.Labels).To(Equal(original.Labels))
		Expect(returned.Spec.Taints).To(Equal(original.Spec.Taints))
	})

	DescribeTable("still knows what its pool gave the Node", func(change func(*corev1.Node)) {
		d, f := follow()
		f.node, f.config.Status.NodeRef = d.node, d.record.node
		change(f.node)
		f.node = decide(f).node
		f.config.Status.NodeRef.UID = string(f.node.UID)
		f.config.Spec.Host.Adoption = bootstrapv1.AdoptionPreview
		f.config.Status.Update.Desired.Name = agentv1.AsFoundConfig
		original := situation(owned).node
		d = decide(f)
		Expect(d.node.Labels).To(Equal(original.Labels))
		Expect(d.node.Spec.Taints).To(Equal(original.Spec.Taints))
	},
		Entry("after it was deleted and has registered again", func(node *corev1.Node) { owned(node); node.UID = "another" }),
		Entry("after somebody removed the label of its pool", func(node *corev1.Node) { delete(node.Labels, poolv1.NodePoolLabel) }),
	)

	DescribeTable("refuses", func(reason string, changes ...any) {
		for _, policy := range []bootstrapv1.AdoptionPolicy{bootstrapv1.AdoptionPreview, bootstrapv1.AdoptionFollow} {
			d := decide(situation(append([]any{adopted(policy), noMachine, owned}, changes...)...))
			Expect(d.condition.Reason).To(Equal(reason))
			Expect(d.node).To(BeNil())
			Expect(d.record).To(BeNil())
		}
	},
		Entry("the Node of another PoolbootConfig", bootstrapv1.NodeNameTakenReason, func(node *corev1.Node) {
			node.Annotations = map[string]string{poolv1.NodeConfigAnnotation: "site/other"}
		}),
		Entry("a Node of the control plane of another PoolbootConfig", bootstrapv1.NodeNameTakenReason, ofControlPlane, func(node *corev1.Node) {
			node.Labels, node.Annotations = role("control-plane"), map[string]string{poolv1.NodeConfigAnnotation: "site/other"}
		}),
		Entry("a Node of the control plane that is on record for another PoolbootConfig", bootstrapv1.NodeNameTakenReason, ofControlPlane, func(f *facts) {
			f.node.Labels, f.recordedFor, f.config.Status.NodeRef = role("control-plane"), "site/other", bootstrapv1.NodeReference{}
		}),
		Entry("a Node of the control plane", bootstrapv1.ControlPlaneNodeReason, func(node *corev1.Node) { node.Labels = role("control-plane") }),
		Entry("a Node that is none of the control plane", bootstrapv1.NodeOutsidePoolReason, ofControlPlane),
	)

	It("puts a Node of the control plane in its pool, also if it has the labels of other pools", func() {
		d := decide(situation(adopted(bootstrapv1.AdoptionFollow), noMachine, owned, ofControlPlane, func(node *corev1.Node) { node.Labels = role("control-plane", "worker", "infra") }))
		Expect(d.condition.Reason).To(Equal(bootstrapv1.NodeReadyInPoolReason))
		Expect(d.record.pool).To(Equal(poolv1.RoleControlPlane))
		Expect(d.node.Labels).To(BeEquivalentTo(labels.Merge(role("control-plane", "worker", "infra"), map[string]string{"example.com/etcd": "stacked", poolv1.NodePoolLabel: "control-plane"})))
		Expect(d.node.Annotations).To(HaveKeyWithValue(poolv1.NodeAdoptedLabelsAnnotation, "example.com/etcd=stacked"))
	})

	It("refuses to add labels to a Node that is in another pool with its own", func() {
		d := decide(situation(adopted(bootstrapv1.AdoptionFollow), noMachine, owned, func(node *corev1.Node) { node.Labels = role("edge") }))
		Expect(d.condition.Reason).To(Equal(bootstrapv1.PoolConflictReason))
		Expect(d.node).To(BeNil())
	})
})
