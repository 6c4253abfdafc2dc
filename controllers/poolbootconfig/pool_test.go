package poolbootconfig

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

var _ = Describe("The pool of a Machine that has not booted", func() {
	unregistrable := newPool("odd")
	unregistrable.Spec.NodeSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: "example.com/odd", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"no"}},
	}}
	pools := []poolv1.MachineConfigPool{*newPool("worker"), *newPool("infra"), *newPool("edge"), *unregistrable}
	recorded := func(config *bootstrapv1.PoolbootConfig) {
		config.Status.Pool = "edge"
		config.Status.Node = &bootstrapv1.NodeReference{Name: machineName, UID: "node-uid"}
	}
	in := func(role string) func(*bootstrapv1.PoolbootConfig) {
		return func(config *bootstrapv1.PoolbootConfig) { config.Spec.Pool = role }
	}
	odd := func(labels map[string]string) map[string]string {
		labels["example.com/odd"] = "no"
		return labels
	}
	DescribeTable("is decided once, with its ground",
		func(labels map[string]string, role, reason string, change ...func(*bootstrapv1.PoolbootConfig)) {
			got, condition := decide(newConfig(change...), odd(labels), pools)
			Expect(got).To(Equal(role))
			Expect(condition.Reason).To(Equal(reason))
			Expect(condition.Status == metav1.ConditionTrue).To(Equal(role != ""))
			Expect(condition.Message).NotTo(BeEmpty())
		},
		Entry("spec.pool before labels", role("infra"), "edge", bootstrapv1.PoolFromSpecReason, in("edge")),
		Entry("the Machine's labels", role("infra", "worker"), "infra", bootstrapv1.PoolFromLabelsReason),
		Entry("the config's labels where the Machine has none", map[string]string{}, "infra", bootstrapv1.PoolFromLabelsReason,
			func(config *bootstrapv1.PoolbootConfig) { config.Labels[poolv1.NodeRoleLabelPrefix+"infra"] = "" }),
		Entry("the Machine's value before the config's", map[string]string{poolv1.NodeRoleLabelPrefix + "infra": "no"}, "worker", bootstrapv1.PoolDefaultedReason,
			func(config *bootstrapv1.PoolbootConfig) { config.Labels[poolv1.NodeRoleLabelPrefix+"infra"] = "" }),
		Entry("worker without labels", map[string]string{}, "worker", bootstrapv1.PoolDefaultedReason),
		Entry("the record once a Node was made", role("infra"), "edge", bootstrapv1.PoolRecordedReason, recorded),
		Entry("the record by what it was decided by, as long as that holds", role("edge"), "edge", bootstrapv1.PoolFromLabelsReason, recorded),
		Entry("the record also when nothing could be decided any more", role("infra", "edge"), "edge", bootstrapv1.PoolRecordedReason, recorded),
		Entry("the record of a Machine that might have been its host's", role("edge"), "edge", bootstrapv1.PoolRecordedReason, recorded,
			func(config *bootstrapv1.PoolbootConfig) { config.Spec.PoolRetention = bootstrapv1.RetainOnHost }),
		Entry("none for two custom pools", role("infra", "edge"), "", bootstrapv1.PoolConflictReason),
		Entry("none for a pool that does not exist", map[string]string{}, "", bootstrapv1.PoolNotFoundReason, in("gpu")),
		Entry("none for a selector without labels to register", map[string]string{}, "", bootstrapv1.PoolNotRegistrableReason, in("odd")),
		Entry("none for control plane labels", role("control-plane"), "", bootstrapv1.ControlPlaneNotSupportedReason),
	)
})
