package pool_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	nodev1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/node/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

var _ = Describe("Labels", func() {
	with := func(p poolv1.MachineConfigPool, labels map[string]string) poolv1.MachineConfigPool {
		p.Spec.Node.Labels = labels
		return p
	}

	DescribeTable("derives the labels that put a Node in its pool",
		func(p poolv1.MachineConfigPool, labels map[string]string) {
			Expect(pool.Labels(p)).To(Equal(labels))
			Expect(pool.Decide(labels, []poolv1.MachineConfigPool{p})).To(Equal(pool.Decision{Role: p.Spec.PoolRole}))
		},
		Entry("from the default", newPool("infra"), map[string]string{infraLabel: ""}),
		Entry("from matchLabels", selecting(newPool("infra"), map[string]string{"a": "b", "c": ""}), map[string]string{"a": "b", "c": ""}),
		Entry("from Exists", selecting(newPool("infra"), nil, requirement("a", metav1.LabelSelectorOpExists)), map[string]string{"a": ""}),
		Entry("from In with one value", selecting(newPool("infra"), nil, requirement("a", metav1.LabelSelectorOpIn, "b")), map[string]string{"a": "b"}),
		Entry("from Exists beside a value", selecting(newPool("infra"), map[string]string{"a": "b"}, requirement("a", metav1.LabelSelectorOpExists)),
			map[string]string{"a": "b"}),
		Entry("beside DoesNotExist of another label", selecting(newPool("infra"), map[string]string{infraLabel: ""}, requirement(workerLabel, metav1.LabelSelectorOpDoesNotExist)),
			map[string]string{infraLabel: ""}),
		Entry("beside NotIn of another label", selecting(newPool("infra"), map[string]string{infraLabel: ""}, requirement("zone", metav1.LabelSelectorOpNotIn, "z-b")),
			map[string]string{infraLabel: ""}),
		Entry("beside NotIn of other values", selecting(newPool("infra"), map[string]string{"zone": "z-a"}, requirement("zone", metav1.LabelSelectorOpNotIn, "z-b")),
			map[string]string{"zone": "z-a"}),
		Entry("from a value beside In with several", selecting(newPool("infra"), map[string]string{"size": "small"}, requirement("size", metav1.LabelSelectorOpIn, "small", "big")),
			map[string]string{"size": "small"}),
		Entry("from the one value that two lists have in common", selecting(newPool("infra"), nil,
			requirement("size", metav1.LabelSelectorOpIn, "small", "big"), requirement("size", metav1.LabelSelectorOpIn, "big", "huge")), map[string]string{"size": "big"}),
		Entry("from the value in node.labels, of several", with(selecting(newPool("infra"), nil, requirement("size", metav1.LabelSelectorOpIn, "small", "big")),
			map[string]string{"size": "big"}), map[string]string{"size": "big"}),
		Entry("and takes a value for Exists that NotIn allows", with(selecting(newPool("infra"), nil, requirement("rack", metav1.LabelSelectorOpExists),
			requirement("rack", metav1.LabelSelectorOpNotIn, "")), map[string]string{"rack": "7"}), map[string]string{"rack": "7"}),
		Entry("and adds node.labels", with(newPool("infra"), map[string]string{"rack": "7"}), map[string]string{infraLabel: "", "rack": "7"}),
		Entry("and takes the value for Exists from node.labels",
			with(selecting(newPool("infra"), nil, requirement("rack", metav1.LabelSelectorOpExists)), map[string]string{"rack": "7"}),
			map[string]string{"rack": "7"}),
	)

	DescribeTable("refuses a pool that no labels can be derived from",
		func(p poolv1.MachineConfigPool, path, why string) {
			_, err := pool.Labels(p)
			Expect(err).To(BeAssignableToTypeOf(&pool.NotRegistrableError{}))
			Expect(err).To(MatchError(And(ContainSubstring(`MachineConfigPool "infra": `+path+": "), ContainSubstring(why))))
		},
		Entry("empty", selecting(newPool("infra"), nil), "spec.nodeSelector", "would match nothing"),
		Entry("only NotIn", selecting(newPool("infra"), nil, requirement("a", metav1.LabelSelectorOpNotIn, "b")), "spec.nodeSelector.matchExpressions[0]", "a NotIn [b] only excludes labels: add a label that a Node must have"),
		Entry("only DoesNotExist", selecting(newPool("infra"), nil, requirement("a", metav1.LabelSelectorOpDoesNotExist)), "spec.nodeSelector.matchExpressions[0]", "add a label that a Node must have"),
		Entry("In with two values", selecting(newPool("infra"), nil, requirement("c", metav1.LabelSelectorOpExists), requirement("a", metav1.LabelSelectorOpIn, "b", "c")),
			"spec.nodeSelector.matchExpressions[1]", "a In [b, c] allows several values, and a Node can be registered with only one: set a in spec.node.labels to one of b, c"),
		Entry("Exists and NotIn its empty value", selecting(newPool("infra"), nil, requirement("a", metav1.LabelSelectorOpExists), requirement("a", metav1.LabelSelectorOpNotIn, "")),
			"spec.nodeSelector.matchExpressions[1]", "a NotIn [] contradicts a=, which follows from the other requirements"),
		Entry("a label that is both required and excluded", selecting(newPool("infra"), map[string]string{"a": "b"}, requirement("a", metav1.LabelSelectorOpDoesNotExist)),
			"spec.nodeSelector.matchExpressions[0]", "a DoesNotExist contradicts a=b"),
		Entry("node.labels that the selector excludes", with(selecting(newPool("infra"), map[string]string{infraLabel: ""}, requirement("zone", metav1.LabelSelectorOpNotIn, "z-b")),
			map[string]string{"zone": "z-b"}), "spec.node.labels", "spec.nodeSelector.matchExpressions[0] requires zone NotIn [z-b]"),
		Entry("no value in common", selecting(newPool("infra"), nil, requirement("a", metav1.LabelSelectorOpIn, "b", "c"), requirement("a", metav1.LabelSelectorOpIn, "d", "e")),
			"spec.nodeSelector.matchExpressions[1]", "requires a In [d, e], and another requirement requires a In [b, c]"),
		Entry("two values at once", selecting(newPool("infra"), map[string]string{"a": "b"}, requirement("a", metav1.LabelSelectorOpIn, "c")),
			"spec.nodeSelector.matchExpressions[0]", "requires a=c, and another requirement requires a=b: no Node can have both"),
		Entry("node.labels against the selector", with(newPool("infra"), map[string]string{infraLabel: "no"}), "spec.node.labels", "not in the pool"),
		Entry("a control plane", selecting(newPool("infra"), map[string]string{poolv1.NodeRoleLabelPrefix + "master": ""}), "spec", "control plane"),
		Entry("Windows", with(newPool("infra"), map[string]string{"kubernetes.io/os": "windows"}), "spec.node.labels", "not in the pool"),
	)

	It("does not change the pool", func() {
		p := with(selecting(newPool("infra"), map[string]string{"a": "b"}), map[string]string{"c": "d"})
		_, err := pool.Labels(p)
		Expect(err).NotTo(HaveOccurred())
		Expect(p.Spec.NodeSelector.MatchLabels).To(Equal(map[string]string{"a": "b"}))
	})
})

var _ = Describe("NodeSelector", func() {
	It("is the pool's own, and by default the label of its role", func() {
		Expect(pool.NodeSelector(newPool("infra"))).To(Equal(&metav1.LabelSelector{MatchLabels: map[string]string{infraLabel: ""}}))
		given := selecting(newPool("infra"), map[string]string{"a": "b"})
		Expect(pool.NodeSelector(given)).To(BeIdenticalTo(given.Spec.NodeSelector))
	})
})

var _ = DescribeTable("SelectorKeys", func(p poolv1.MachineConfigPool, keys ...string) {
	Expect(pool.SelectorKeys(p)).To(HaveExactElements(keys))
},
	Entry("of the default", newPool("infra"), infraLabel),
	Entry("of labels and expressions, each once", selecting(newPool("infra"), map[string]string{"b": "", "a": ""},
		requirement("c", metav1.LabelSelectorOpExists), requirement("a", metav1.LabelSelectorOpIn, "")), "a", "b", "c"),
	Entry("of a selector that is not registrable", selecting(newPool("infra"), nil, requirement("a", metav1.LabelSelectorOpNotIn, "b")), "a"),
	Entry("without the keys of node.labels", poolv1.MachineConfigPool{Spec: poolv1.MachineConfigPoolSpec{
		PoolRole: "infra", Node: nodev1.NodeSettings{Labels: map[string]string{"rack": "7"}}}}, infraLabel),
)
