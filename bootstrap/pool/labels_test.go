package pool_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

var _ = Describe("Labels", func() {
	with := func(p poolv1.MachineConfigPool, labels map[string]string) poolv1.MachineConfigPool {
		p.Spec.NodeLabels = labels
		return p
	}

	DescribeTable("derives the labels that put a Node in its pool",
		func(p poolv1.MachineConfigPool, labels map[string]string) {
			Expect(pool.Labels(p)).To(Equal(labels))
			Expect(pool.Decide(labels, []poolv1.MachineConfigPool{p})).To(Equal(pool.Decision{Role: p.Spec.Role}))
		},
		Entry("from the default", newPool("infra"), map[string]string{infraLabel: ""}),
		Entry("from matchLabels", selecting(newPool("infra"), map[string]string{"a": "b", "c": ""}), map[string]string{"a": "b", "c": ""}),
		Entry("from Exists", selecting(newPool("infra"), nil, requirement("a", metav1.LabelSelectorOpExists)), map[string]string{"a": ""}),
		Entry("from In with one value", selecting(newPool("infra"), nil, requirement("a", metav1.LabelSelectorOpIn, "b")), map[string]string{"a": "b"}),
		Entry("from Exists beside a value", selecting(newPool("infra"), map[string]string{"a": "b"}, requirement("a", metav1.LabelSelectorOpExists)),
			map[string]string{"a": "b"}),
		Entry("and adds nodeLabels", with(newPool("infra"), map[string]string{"rack": "7"}), map[string]string{infraLabel: "", "rack": "7"}),
		Entry("and takes the value for Exists from nodeLabels",
			with(selecting(newPool("infra"), nil, requirement("rack", metav1.LabelSelectorOpExists)), map[string]string{"rack": "7"}),
			map[string]string{"rack": "7"}),
	)

	DescribeTable("refuses a pool that no labels can be derived from",
		func(p poolv1.MachineConfigPool, path, why string) {
			_, err := pool.Labels(p)
			Expect(err).To(BeAssignableToTypeOf(&pool.NotRegistrableError{}))
			Expect(err).To(MatchError(And(ContainSubstring(`MachineConfigPool "infra": `+path+": "), ContainSubstring(why))))
		},
		Entry("empty", selecting(newPool("infra"), nil), "spec.nodeSelector", "matches nothing"),
		Entry("NotIn", selecting(newPool("infra"), map[string]string{"c": "d"}, requirement("a", metav1.LabelSelectorOpNotIn, "b")),
			"spec.nodeSelector.matchExpressions[0]", "use matchLabels, Exists, or In with one value"),
		Entry("DoesNotExist", selecting(newPool("infra"), map[string]string{"c": "d"}, requirement("a", metav1.LabelSelectorOpDoesNotExist)),
			"spec.nodeSelector.matchExpressions[0]", "use matchLabels, Exists, or In with one value"),
		Entry("In with two values", selecting(newPool("infra"), nil, requirement("c", metav1.LabelSelectorOpExists), requirement("a", metav1.LabelSelectorOpIn, "b", "c")),
			"spec.nodeSelector.matchExpressions[1]", "a In [b c]"),
		Entry("two values at once", selecting(newPool("infra"), map[string]string{"a": "b"}, requirement("a", metav1.LabelSelectorOpIn, "c")),
			"spec.nodeSelector.matchExpressions[0]", "asks for a=c, and another requirement for a=b"),
		Entry("nodeLabels against the selector", with(newPool("infra"), map[string]string{infraLabel: "no"}), "spec.nodeLabels", "not in the pool"),
		Entry("a control plane", selecting(newPool("infra"), map[string]string{poolv1.NodeRoleLabelPrefix + "master": ""}), "spec", "control plane"),
		Entry("Windows", with(newPool("infra"), map[string]string{"kubernetes.io/os": "windows"}), "spec.nodeLabels", "not in the pool"),
	)

	It("leaves the pool as it was", func() {
		p := with(selecting(newPool("infra"), map[string]string{"a": "b"}), map[string]string{"c": "d"})
		_, err := pool.Labels(p)
		Expect(err).NotTo(HaveOccurred())
		Expect(p.Spec.NodeSelector.MatchLabels).To(Equal(map[string]string{"a": "b"}))
	})
})

var _ = Describe("WithDefaults", func() {
	It("selects by role when nothing is said, and leaves what is", func() {
		Expect(pool.WithDefaults(newPool("infra")).Spec.NodeSelector.MatchLabels).To(Equal(map[string]string{infraLabel: ""}))
		said := selecting(newPool("infra"), map[string]string{"a": "b"})
		Expect(pool.WithDefaults(said)).To(Equal(said))
	})
})

var _ = DescribeTable("SelectorKeys", func(p poolv1.MachineConfigPool, keys ...string) {
	Expect(pool.SelectorKeys(p)).To(HaveExactElements(keys))
},
	Entry("of the default", newPool("infra"), infraLabel),
	Entry("of labels and expressions, each once", selecting(newPool("infra"), map[string]string{"b": "", "a": ""},
		requirement("c", metav1.LabelSelectorOpExists), requirement("a", metav1.LabelSelectorOpIn, "")), "a", "b", "c"),
	Entry("of what no labels can be derived from", selecting(newPool("infra"), nil, requirement("a", metav1.LabelSelectorOpNotIn, "b")), "a"),
	Entry("of labels that are not the selector's", poolv1.MachineConfigPool{Spec: poolv1.MachineConfigPoolSpec{
		Role: "infra", NodeLabels: map[string]string{"rack": "7"}}}, infraLabel),
)
