package node

import (
	"maps"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	nodev1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/node/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
)

const (
	namespace   = "site"
	clusterName = "c1"
	name        = "infra-x7k"
	oldUID      = "node-uid"
	newUID      = "new-node-uid"
)

var (
	unassigned = corev1.Taint{Key: poolv1.NodeUnassignedTaint, Effect: corev1.TaintEffectNoSchedule}
	infraTaint = corev1.Taint{Key: "example.com/infra", Effect: corev1.TaintEffectNoSchedule}
)

func newPool(role string, labels map[string]string) poolv1.MachineConfigPool {
	return poolv1.MachineConfigPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: role, UID: types.UID(role), Annotations: map[string]string{poolv1.ClusterIdentityAnnotation: "first-uid"}},
		Spec:       poolv1.MachineConfigPoolSpec{ClusterName: clusterName, PoolRole: role, Node: nodev1.NodeSettings{Labels: labels}},
		Status:     poolv1.MachineConfigPoolStatus{Configuration: poolv1.PoolConfiguration{Name: "rendered-" + role + "-1"}},
	}
}

// pools returns the pools of the tests: worker, infra with its own label and taint, and edge.
func pools() []poolv1.MachineConfigPool {
	infra := newPool("infra", map[string]string{"example.com/tier": "infra"})
	infra.Spec.Node.Taints = declared(infraTaint)
	return []poolv1.MachineConfigPool{newPool("worker", nil), infra, newPool("edge", nil)}
}

func role(roles ...string) map[string]string {
	labels := map[string]string{}
	for _, r := range roles {
		labels[poolv1.NodeRoleLabelPrefix+r] = ""
	}
	return labels
}

func newConfig() *bootstrapv1.PoolbootConfig {
	return &bootstrapv1.PoolbootConfig{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: "config-uid",
			Labels:          map[string]string{clusterv1.ClusterNameLabel: clusterName},
			Annotations:     map[string]string{bootstrapv1.TokenHashAnnotation: "abc"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: name, UID: "machine-uid"}},
		},
		Spec: bootstrapv1.PoolbootConfigSpec{BootSpec: bootstrapv1.BootSpec{Node: nodev1.NodeSettings{Labels: map[string]string{"example.com/rack": "r1"}}}},
		Status: bootstrapv1.PoolbootConfigStatus{
			PoolRole: "infra",
			HostRef:  bootstrapv1.HostReference{Name: "host-3", Namespace: namespace, UID: "host-uid"},
			NodeRef:  bootstrapv1.NodeReference{Name: name, UID: oldUID},
			Boot:     bootstrapv1.BootStatus{CredentialID: "abcdef", ServedConfiguration: bootstrapv1.ConfigurationReference{Name: "rendered-infra-0"}},
		},
	}
}

func newMachine() *clusterv1.Machine {
	return &clusterv1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: "machine-uid", Labels: role("infra")},
		Spec:       clusterv1.MachineSpec{ClusterName: clusterName, ProviderID: "metal3://site/host-3/m3"},
	}
}

// newNode returns the Node as it was pre-registered, in pool infra.
func newNode() *corev1.Node {
	labels := role("infra")
	maps.Copy(labels, map[string]string{poolv1.NodePoolLabel: "infra", "example.com/tier": "infra", "example.com/rack": "r1"})
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: oldUID, Labels: labels,
			Annotations: map[string]string{
				poolv1.NodeConfigAnnotation:        namespace + "/" + name,
				poolv1.NodeCurrentConfigAnnotation: "rendered-infra-0",
				agentv1.DesiredConfigAnnotation:    "rendered-infra-1",
				poolv1.NodeAppliedTaintsAnnotation: "example.com/infra:NoSchedule",
			},
		},
		Spec:   corev1.NodeSpec{ProviderID: "metal3://site/host-3/m3", Taints: []corev1.Taint{unassigned, infraTaint}},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse}}},
	}
}

// bare turns a Node into one that a kubelet registered again: with the labels from its flags, and without annotations.
func bare(node *corev1.Node) {
	node.UID = newUID
	node.Labels = map[string]string{poolv1.NodePoolLabel: "worker"}
	node.Annotations = nil
	node.Spec.Taints = []corev1.Taint{unassigned}
}

func ready(node *corev1.Node) {
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
}

func revoked(config *bootstrapv1.PoolbootConfig) {
	config.Annotations[bootstrapv1.TokenStateAnnotation] = string(bootstrapv1.TokenStateRevoked)
}

func labeled(labels map[string]string) func(*corev1.Node) {
	return func(node *corev1.Node) { node.Labels = labels }
}

// situation returns the usual facts, in which the Node exists as it was pre-registered, with these changes.
func situation(changes ...any) facts {
	GinkgoHelper()
	f := facts{config: newConfig(), machine: newMachine(), node: newNode(), pools: pools()}
	for _, change := range changes {
		switch change := change.(type) {
		case func(*corev1.Node):
			change(f.node)
		case func(*bootstrapv1.PoolbootConfig):
			change(f.config)
		case func(*facts):
			change(&f)
		default:
			Fail("a change of an unknown kind")
		}
	}
	return f
}

var _ = Describe("The decision about a Node", func() {
	noNode := func(f *facts) { f.node = nil }
	noRecord := func(config *bootstrapv1.PoolbootConfig) { config.Status.NodeRef = bootstrapv1.NodeReference{} }
	withdrawn := func(config *bootstrapv1.PoolbootConfig) {
		conditions.Set(config, metav1.Condition{Type: bootstrapv1.BootPreparedCondition, Status: metav1.ConditionUnknown, Reason: bootstrapv1.WaitingForHostReason})
	}
	beingPrepared := func(config *bootstrapv1.PoolbootConfig) {
		config.Status.Boot, config.Status.Requests.RequestedTime = bootstrapv1.BootStatus{}, &metav1.MicroTime{Time: time.Now()}
	}
	annotated := func(owner string) func(*corev1.Node) {
		return func(node *corev1.Node) { node.Annotations = map[string]string{poolv1.NodeConfigAnnotation: owner} }
	}

	DescribeTable("reports a reason for",
		func(reason string, changes ...any) {
			d := decide(situation(changes...))
			if reason == "" {
				Expect(*d).To(BeZero())
				return
			}
			Expect(d.condition).NotTo(BeNil())
			Expect(d.condition.Reason).To(Equal(reason))
			Expect(d.condition.Message).To(ContainSubstring(name))
			Expect(d.condition.Status == metav1.ConditionTrue).To(Equal(reason == bootstrapv1.NodeReadyInPoolReason))
			Expect(d.hasJoined).To(Equal(reason == bootstrapv1.NodeReadyInPoolReason))
		},
		Entry("a Ready Node in its pool", bootstrapv1.NodeReadyInPoolReason, ready),
		Entry("a Node without a kubelet yet", bootstrapv1.WaitingForKubeletReason),
		Entry("a Node that is no longer Ready", bootstrapv1.NodeNotReadyReason, revoked),
		Entry("a Node that does not exist", bootstrapv1.NodeMissingReason, noNode),
		Entry("a Node that was deleted with the withdrawn boot", "", noNode, withdrawn),
		Entry("a missing Node whose host joined before the boot was withdrawn", bootstrapv1.NodeMissingReason, noNode, withdrawn, revoked),
		Entry("a Node that is not pre-registered yet", "", noNode, noRecord),
		Entry("a Node that was not pre-registered for the Machine", "", noRecord, annotated("")),
		Entry("a Node that registered again while its record was lost, without the labels of a pool", bootstrapv1.NodeOutsidePoolReason, noRecord, revoked, bare, ready),
		Entry("such a Node that a user has labeled", bootstrapv1.NodeReadyInPoolReason, noRecord, revoked, bare, ready, labeled(role("edge"))),
		Entry("such a Node of another host", "", noRecord, revoked, bare, ready, func(node *corev1.Node) { node.Spec.ProviderID = "metal3://site/host-4/m4" }),
		Entry("such a Node without a providerID", "", noRecord, revoked, bare, ready, func(f *facts) { f.machine.Spec.ProviderID, f.node.Spec.ProviderID = "", "" }),
		Entry("a Node that was just created and is not recorded yet", "", noRecord, beingPrepared),
		Entry("a Ready Node that is not recorded", bootstrapv1.NodeReadyInPoolReason, noRecord, beingPrepared, ready),
		Entry("a Node that was pre-registered before its record was lost", bootstrapv1.WaitingForKubeletReason, noRecord),
		Entry("a Node that was pre-registered for another Machine", bootstrapv1.NodeNameTakenReason, annotated("site/other")),
		Entry("a Node of another host", bootstrapv1.NodeNameTakenReason, bare, func(node *corev1.Node) { node.Spec.ProviderID = "metal3://site/host-4/m4" }),
		Entry("labels of two pools", bootstrapv1.PoolConflictReason, labeled(role("infra", "edge"))),
		Entry("labels of no pool", bootstrapv1.NodeOutsidePoolReason, labeled(nil)),
		Entry("a Windows Node", bootstrapv1.NodeOutsidePoolReason, labeled(map[string]string{corev1.LabelOSStable: "windows"})),
		Entry("labels of a control plane", bootstrapv1.ControlPlaneNodeReason, labeled(role("control-plane", "infra"))),
		Entry("a Node that registers again when its recorded pool no longer exists", bootstrapv1.NodeOutsidePoolReason, bare,
			func(config *bootstrapv1.PoolbootConfig) { config.Status.PoolRole = "gone" }),
	)

	It("says whether the kubelet of a Node that is not Ready yet has registered", func() {
		Expect(decide(situation()).condition.Message).To(HaveSuffix("; its kubelet has not registered yet"))
		registered := func(node *corev1.Node) { node.Status.NodeInfo.KubeletVersion = "v1.36.0" }
		Expect(decide(situation(registered)).condition.Message).To(HaveSuffix("; its kubelet is not Ready yet"))
	})

	It("says that Cluster API keeps the labels of two pools that the Machine has", func() {
		both := role("infra", "edge")
		d := decide(situation(labeled(both), func(f *facts) {
			f.machine.Labels = maps.Clone(both)
			f.machine.Labels[clusterv1.MachineDeploymentNameLabel] = "md-0"
		}))
		Expect(d.condition.Message).To(And(ContainSubstring("pools edge and infra"), ContainSubstring("change them in spec.template.metadata.labels of MachineDeployment md-0")))
	})

	It("asks a user to act only for a missing Node that has joined, because any other one is created again automatically", func() {
		Expect(decide(situation(noNode, revoked)).condition.Message).To(And(ContainSubstring("restart the kubelet"), ContainSubstring("delete Machine")))
		enrolled := func(f *facts) {
			f.machine, f.config.OwnerReferences = nil, nil
			f.config.Spec.Host = bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeEnrollment, NodeName: "edge-7", Enrollment: bootstrapv1.EnrolledHost{Name: "edge"}}
		}
		Expect(decide(situation(noNode, revoked, enrolled)).condition.Message).To(And(ContainSubstring("delete PoolbootConfig"), Not(ContainSubstring("Machine"))))
		Expect(decide(situation(noNode)).condition.Message).To(And(ContainSubstring("creates the Node again"), Not(ContainSubstring("restart"))))
	})

	It("removes the taint unassigned when the kubelet is Ready and the Node has all labels, and not earlier", func() {
		Expect(decide(situation()).node).To(BeNil())
		d := decide(situation(ready))
		Expect(d.node.Spec.Taints).NotTo(ContainElement(unassigned))
		d = decide(situation(ready, labeled(role("infra"))))
		Expect(d.node.Labels).To(HaveKeyWithValue("example.com/tier", "infra"))
		Expect(d.node.Labels).To(HaveKeyWithValue(poolv1.NodePoolLabel, "infra"))
		Expect(d.node.Spec.Taints).NotTo(ContainElement(unassigned))
		d = decide(situation(ready, labeled(role("infra", "edge"))))
		Expect(d.node).To(BeNil())
	})

	It("follows the labels of a Node with the recorded UID, and updates the record", func() {
		d := decide(situation(ready, revoked, labeled(role("edge"))))
		Expect(d.record).To(Equal(&nodeRecord{pool: "edge", node: bootstrapv1.NodeReference{Name: name, UID: oldUID}}))
		Expect(d.node.Labels).To(HaveKeyWithValue(poolv1.NodePoolLabel, "edge"))
		Expect(d.node.Annotations).To(HaveKeyWithValue(agentv1.DesiredConfigAnnotation, "rendered-infra-1"), "it has not been told")
		Expect(d.condition.Message).To(ContainSubstring("the labels of Machine " + name + ` select pool "infra"`))
	})

	DescribeTable("names the pool that takes the host if its pool is deleted:", func(fallback string, labels map[string]string, changes ...any) {
		d := decide(situation(append([]any{ready, revoked, labeled(labels)}, changes...)...))
		Expect(d.fallback).To(HaveValue(Equal(fallback)))
	},
		Entry("worker", "worker", role("infra", "worker")),
		Entry("a custom pool, also if the host is in the worker pool by its record", "", role("worker"), func(c *bootstrapv1.PoolbootConfig) { c.Status.PoolRole = "worker" }),
		Entry("the other one of two custom pools", "edge", role("infra", "edge", "worker")),
		Entry("none", "", role("infra")),
		Entry("none that would be the control plane", "", role("infra", "worker", "control-plane")),
		Entry("the one besides the new one for a Node that was relabeled", "worker", role("edge", "worker")),
	)

	It("does not know the pool that takes a host without a Node", func() {
		Expect(decide(situation(revoked, func(f *facts) { f.node = nil })).fallback).To(BeNil())
	})

	It("does not follow the pool label alone, which a kubelet can set, but corrects it", func() {
		d := decide(situation(ready, func(node *corev1.Node) { node.Labels[poolv1.NodePoolLabel] = "edge" }))
		Expect(d.record).To(Equal(&nodeRecord{pool: "infra", node: bootstrapv1.NodeReference{Name: name, UID: oldUID}}))
		Expect(d.node.Labels).To(HaveKeyWithValue(poolv1.NodePoolLabel, "infra"))
	})

	It("keeps the labels of the pool that a Node leaves", func() {
		d := decide(situation(ready, revoked, func(config *bootstrapv1.PoolbootConfig) { config.Status.PoolRole = "worker" },
			func(node *corev1.Node) { maps.Copy(node.Labels, role("worker")) }))
		Expect(d.record).To(Equal(&nodeRecord{pool: "infra", node: bootstrapv1.NodeReference{Name: name, UID: oldUID}}))
		Expect(d.node.Labels).To(HaveKey(poolv1.NodeRoleLabelPrefix + "worker"))
	})

	It("gives a Node that registered again the labels of the recorded pool, never those of the pool for which it was first built", func() {
		d := decide(situation(revoked, bare, ready))
		Expect(d.record).To(Equal(&nodeRecord{pool: "infra", node: bootstrapv1.NodeReference{Name: name, UID: newUID}}))
		Expect(d.node.Labels).To(Equal(map[string]string{
			poolv1.NodeRoleLabelPrefix + "infra": "",
			poolv1.NodePoolLabel:                 "infra",
			"example.com/tier":                   "infra",
			"example.com/rack":                   "r1",
			poolv1.NodeMetal3UUIDLabel:           "host-uid",
		}))
		Expect(d.node.Annotations).To(Equal(map[string]string{
			poolv1.NodeConfigAnnotation:        namespace + "/" + name,
			poolv1.NodeCurrentConfigAnnotation: "rendered-infra-0",
			poolv1.NodeAppliedTaintsAnnotation: "example.com/infra:NoSchedule",
		}))
		Expect(d.node.Spec.Taints).To(ConsistOf(infraTaint))
	})

	DescribeTable("sets the label with the host's UID",
		func(on *host.Host, uid string, changes ...any) {
			d := decide(situation(append(changes, func(f *facts) {
				f.node.Labels[poolv1.NodeMetal3UUIDLabel] = "before the move"
				f.host = on
			})...))
			labels := situation(changes...).node.Labels
			if d.node != nil {
				labels = d.node.Labels
			} else {
				labels[poolv1.NodeMetal3UUIDLabel] = "before the move"
			}
			Expect(labels).To(HaveKeyWithValue(poolv1.NodeMetal3UUIDLabel, uid))
		},
		Entry("to the UID after a move", &host.Host{UID: "after", ProviderID: "metal3://site/host-3/m3"}, "after"),
		Entry("to the UID after a move in which the record was lost", &host.Host{UID: "after", ProviderID: "metal3://site/host-3/m3"}, "after",
			func(config *bootstrapv1.PoolbootConfig) { config.Status = bootstrapv1.PoolbootConfigStatus{} }),
		Entry("to the UID after a move, when the kubelet registers again with the old one", &host.Host{UID: "after", ProviderID: "metal3://site/host-3/m3"}, "after", revoked, bare),
		Entry("but never to that of another host", &host.Host{UID: "another", ProviderID: "metal3://site/host-4/m3"}, "before the move"),
		Entry("but not while the Machine has no host", nil, "before the move"),
	)

	It("gives a Node that registered again its derived labels back", func() {
		d := decide(situation(revoked, bare, ready, func(config *bootstrapv1.PoolbootConfig) {
			config.Status.DerivedNodeLabels = map[string]string{"node-restriction.kubernetes.io/rack": "r7", "example.com/tier": "another"}
		}))
		Expect(d.node.Labels).To(And(HaveKeyWithValue("node-restriction.kubernetes.io/rack", "r7"), HaveKeyWithValue("example.com/tier", "infra")))
		Expect(d.node.Spec.Taints).NotTo(ContainElement(unassigned), "all labels are set")
	})

	It("gives a Node that registered again the taints of its pool back, even if remediation restored the list of applied taints first", func() {
		d := decide(situation(revoked, bare, ready, func(node *corev1.Node) { node.Annotations = newNode().Annotations }))
		Expect(d.node.Spec.Taints).To(ConsistOf(infraTaint))
	})

	It("removes, once, the labels of the pool that the host booted into if the flags of a kubelet that registered again set them", func() {
		moved := []any{revoked, bare, ready, func(f *facts) {
			f.config.Status.Boot.ServedConfiguration.Name = "rendered-edge-0"
			f.pools[2].Spec.Node.Labels = map[string]string{"example.com/tier": "edge", "example.com/disks": "", "example.com/rack": "r1"}
			f.node.Labels = map[string]string{poolv1.NodePoolLabel: "edge", "example.com/tier": "edge", "example.com/disks": "", "example.com/rack": "r1"}
		}}
		Expect(decide(situation(moved...)).node.Labels).To(Equal(map[string]string{
			poolv1.NodeRoleLabelPrefix + "infra": "",
			poolv1.NodePoolLabel:                 "infra",
			"example.com/tier":                   "infra",
			"example.com/rack":                   "r1",
			poolv1.NodeMetal3UUIDLabel:           "host-uid",
		}))
		Expect(decide(situation(append(moved, annotated(namespace+"/"+name))...)).node.Labels).To(And(
			HaveKeyWithValue("example.com/tier", "edge"), HaveKey("example.com/disks")), "by now a person may have set them")
	})

	It("keeps the record if a Node registered again with the labels of another pool", func() {
		f := situation(revoked, bare, ready, func(config *bootstrapv1.PoolbootConfig) { config.Status.PoolRole = "worker" },
			func(node *corev1.Node) { node.Labels = role("edge") })
		d := decide(f)
		Expect(d.record).To(BeNil())
		Expect(d.hasJoined).To(BeFalse())
		Expect(d.condition.Reason).To(Equal(bootstrapv1.NodeOutsidePoolReason))
	})

	It("never overwrites or removes what a user set", func() {
		mine := func(node *corev1.Node) {
			node.Labels["example.com/tier"] = "mine"
			node.Labels["example.com/other"] = "mine"
			node.Annotations["example.com/note"] = "mine"
			node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: "example.com/mine", Effect: corev1.TaintEffectNoExecute})
		}
		d := decide(situation(mine, ready))
		Expect(d.node.Labels).To(HaveKeyWithValue("example.com/tier", "mine"))
		Expect(d.node.Labels).To(HaveKeyWithValue("example.com/other", "mine"))
		Expect(d.node.Annotations).To(HaveKeyWithValue("example.com/note", "mine"))
		Expect(d.node.Spec.Taints).To(ConsistOf(infraTaint, HaveField("Key", "example.com/mine")))
	})

	It("sets the label of the pool also if the Machine has another value, which Cluster API does not copy", func() {
		d := decide(situation(ready, func(f *facts) { f.machine.Labels[poolv1.NodePoolLabel] = "mine" },
			func(node *corev1.Node) { node.Labels[poolv1.NodePoolLabel] = "mine" }))
		Expect(d.node.Labels).To(HaveKeyWithValue(poolv1.NodePoolLabel, "infra"))
		Expect(d.hasJoined).To(BeTrue())
	})

	It("adds no label that would put the Node in another pool", func() {
		d := decide(situation(ready, labeled(role("infra")), func(f *facts) {
			f.pools[1].Spec.Node.Labels = role("edge")
		}))
		Expect(d.condition.Reason).To(Equal(bootstrapv1.PoolConflictReason))
		Expect(d.node).To(BeNil())
		Expect(d.hasJoined).To(BeFalse())
	})

	It("changes nothing if everything is correct", func() {
		f := situation(ready, revoked)
		f.node = decide(f).node
		Expect(decide(f).node).To(BeNil())
	})

	It("restores a lost record from the Node", func() {
		lost := func(config *bootstrapv1.PoolbootConfig) {
			config.Status.PoolRole, config.Status.Boot.ServedConfiguration.Name = "worker", ""
		}
		d := decide(situation(ready, noRecord, lost))
		Expect(d.record).To(Equal(&nodeRecord{pool: "infra", node: bootstrapv1.NodeReference{Name: name, UID: oldUID}, configuration: "rendered-infra-0", derived: map[string]string{}}))
		d = decide(situation(ready, noRecord, lost, func(node *corev1.Node) { node.Annotations[poolv1.NodeCurrentConfigAnnotation] = "of/a/kubelet" }))
		Expect(d.record.configuration).To(BeEmpty())
	})

	It("restores derived labels, which are in the flags of the kubelet, from the Node", func() {
		rules := func(f *facts) {
			f.pools[1].Spec.Node.LabelRules = []nodev1.NodeLabelRule{{Key: "example.com/rack"}, {Key: "example.com/cpu"}}
			f.config.Spec.Node.LabelRules = []nodev1.NodeLabelRule{{Key: "example.com/site"}}
		}
		labels := labeled(map[string]string{"example.com/rack": "r7", "example.com/site": "ber", "example.com/mine": "1", poolv1.NodeRoleLabelPrefix + "infra": ""})
		Expect(decide(situation(ready, noRecord, rules, labels)).record.derived).To(Equal(map[string]string{"example.com/rack": "r7", "example.com/site": "ber"}))
		Expect(decide(situation(ready, rules, labels)).record.derived).To(BeNil(), "a record that is not lost stays as it is")
	})
})
