package pool_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

var _ = Describe("Two pools", func() {
	by := func(labels map[string]string, expressions ...metav1.LabelSelectorRequirement) poolv1.MachineConfigPool {
		return poolv1.MachineConfigPool{Spec: poolv1.MachineConfigPoolSpec{NodeSelector: &metav1.LabelSelector{MatchLabels: labels, MatchExpressions: expressions}}}
	}
	got := func(key string, values ...string) metav1.LabelSelectorRequirement {
		if len(values) == 0 {
			return metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpExists}
		}
		return metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpIn, Values: values}
	}
	no := func(key string, values ...string) metav1.LabelSelectorRequirement {
		if len(values) == 0 {
			return metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpDoesNotExist}
		}
		return metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpNotIn, Values: values}
	}
	DescribeTable("can share a Node",
		func(a, b poolv1.MachineConfigPool, may bool) {
			for _, pair := range [][2]poolv1.MachineConfigPool{{a, b}, {b, a}} {
				Expect(pool.CanShareNode(pair[0], pair[1])).To(Equal(may))
			}
		},
		Entry("with different labels", by(map[string]string{"a": "1"}), by(map[string]string{"b": "1"}), true),
		Entry("with the same label", by(map[string]string{"a": "1"}), by(map[string]string{"a": "1", "b": "2"}), true),
		Entry("not with two values of a label", by(map[string]string{"a": "1", "b": "1"}), by(map[string]string{"a": "2"}), false),
		Entry("not with two values, one in an expression", by(map[string]string{"a": "1"}), by(nil, got("a", "2")), false),
		Entry("with any value of a label", by(nil, got("a")), by(map[string]string{"a": "2"}), true),
		Entry("with one value of several that both allow", by(nil, got("a", "1", "2")), by(nil, got("a", "2", "3")), true),
		Entry("not with several values and none in common", by(nil, got("a", "1", "2")), by(nil, got("a", "3", "4")), false),
		Entry("not with several values and another one", by(nil, got("a", "1", "2")), by(map[string]string{"a": "3"}), false),
		Entry("not when one excludes the other's label", by(map[string]string{"a": ""}), by(map[string]string{"b": ""}, no("a")), false),
		Entry("not when one excludes a label that the other needs, with any value", by(nil, got("a")), by(map[string]string{"b": ""}, no("a")), false),
		Entry("not when one excludes the other's only value", by(map[string]string{"a": "1"}), by(map[string]string{"b": ""}, no("a", "1")), false),
		Entry("not when one excludes all of the other's values", by(nil, got("a", "1", "2")), by(map[string]string{"b": ""}, no("a", "2", "1", "3")), false),
		Entry("when one excludes a value that the other does not require", by(map[string]string{"a": "1"}), by(map[string]string{"b": ""}, no("a", "2")), true),
		Entry("without the label that one excludes", by(map[string]string{"c": ""}), by(map[string]string{"b": ""}, no("a")), true),
		Entry("not with a selector that selects nothing", by(nil), by(map[string]string{"a": "2"}), false),
	)
	It("with a malformed selector are an error", func() {
		malformed := by(nil, metav1.LabelSelectorRequirement{Key: "a", Operator: "Like"})
		for _, pair := range [][2]poolv1.MachineConfigPool{{malformed, by(nil)}, {by(nil), malformed}} {
			_, err := pool.CanShareNode(pair[0], pair[1])
			Expect(err).To(BeAssignableToTypeOf(&pool.SelectorError{}))
		}
	})
})
