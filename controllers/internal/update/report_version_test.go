package update

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
)

var _ = Describe("A host whose report has a version that the manager does not know", func() {
	setVersion := func(ctx SpecContext, w *world, version string) {
		w.changeNode(ctx, 0, func(node *corev1.Node) {
			if node.Annotations[agentv1.ReportVersionAnnotation] = version; version == "" {
				delete(node.Annotations, agentv1.ReportVersionAnnotation)
			}
		})
	}
	expectNotUnderstood := func(ctx SpecContext, w *world, remedy string) {
		GinkgoHelper()
		updated := conditions.Get(w.config(ctx, 0), bootstrapv1.UpdatedCondition)
		Expect(updated).To(And(HaveField("Status", metav1.ConditionUnknown), HaveField("Reason", bootstrapv1.ReportNotUnderstoodReason),
			HaveField("Message", ContainSubstring(remedy))))
	}

	DescribeTable("is told nothing and takes a place of the pool until it is understood", func(ctx SpecContext, version, remedy string) {
		w := newWorld(2)
		w.adopt(ctx)
		setVersion(ctx, w, version)
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		expectNotUnderstood(ctx, w, remedy)
		for i := range 2 {
			Expect(w.node(ctx, i).Annotations).To(HaveKeyWithValue(agentv1.DesiredAnnotation, revisionOf(i, "rendered-worker-1")))
		}
		Expect(w.config(ctx, 0).Status.Update.RunningRevision).To(Equal(revisionOf(0, "rendered-worker-1")), "what was last understood")

		setVersion(ctx, w, "1")
		w.settle(ctx)
		Expect(w.node(ctx, 0).Annotations).To(HaveKeyWithValue(agentv1.DesiredAnnotation, revisionOf(0, "rendered-worker-2")))
	},
		Entry("of a newer agent", "2", "update Poolboot's manager"),
		Entry("without a version", "", "restart poolboot-agent.service"),
	)

	It("is not drained in the middle of its update, and its health checks stay paused", func(ctx SpecContext) {
		w := newDrainingWorld(ctx)
		setVersion(ctx, w, "2")
		w.settle(ctx)
		expectNotUnderstood(ctx, w, "update Poolboot's manager")
		Expect(w.node(ctx, 0).Spec.Unschedulable).To(BeFalse())
		Expect(w.node(ctx, 0).Annotations).To(And(Not(HaveKey(agentv1.DrainedAnnotation)), HaveKey(agentv1.BegunAnnotation)))
		Expect(w.machine(ctx, 0).Annotations).To(HaveKey(clusterv1.MachineSkipRemediationAnnotation))
		Expect(w.node(ctx, 1).Annotations).To(HaveKeyWithValue(agentv1.DesiredAnnotation, revisionOf(1, "rendered-worker-1")))
	})
})
