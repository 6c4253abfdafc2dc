package update

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
)

var _ = Describe("A host that was told something and whose agent does not answer", func() {
	It("is reported after a deadline without another event, once, until it answers", func(ctx SpecContext) {
		w := newWorld(2)
		now := time.Now().Truncate(time.Second)
		w.reconciler.clock = func() time.Time { return now }
		w.adopt(ctx)
		Expect(w.config(ctx, 0).Status.Update.RunningRevision).To(Equal(revisionOf(0, "rendered-worker-1")))
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{0}))
		Expect(w.updated(ctx, 0).Reason).To(Equal(bootstrapv1.UpdateWaitingReason))

		now = now.Add(answerDeadline / 2)
		result, err := w.reconcileHost(ctx, 0)
		Expect(err).NotTo(HaveOccurred())
		Expect(result.RequeueAfter).To(Equal(answerDeadline / 2))
		Expect(w.updated(ctx, 0).Reason).To(Equal(bootstrapv1.UpdateWaitingReason))
		Expect(w.eventsOf("AgentNotAnswering")).To(BeEmpty())

		now = now.Add(result.RequeueAfter)
		result, err = w.reconcileHost(ctx, 0)
		Expect(err).NotTo(HaveOccurred())
		Expect(result.RequeueAfter).To(BeNumerically(">", answerDeadline), "it is reported, and the pause of health checks ends later")
		Expect(w.updated(ctx, 0)).To(And(HaveField("Status", metav1.ConditionFalse), HaveField("Reason", bootstrapv1.AgentNotAnsweringReason)))
		Expect(w.eventsOf("AgentNotAnswering")).To(HaveLen(1))
		counted, err := metrics.Registry.Gather()
		Expect(err).NotTo(HaveOccurred())
		Expect(fmt.Sprint(counted)).NotTo(ContainSubstring("AgentNotAnswering"), "the update has not ended")
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{0}), "no other host is told, because this one can be changing")

		w.changeNode(ctx, 0, func(node *corev1.Node) { node.Annotations[agentv1.ReasonAnnotation] = "no space left on device" })
		w.settle(ctx)
		Expect(w.updated(ctx, 0)).To(And(HaveField("Reason", bootstrapv1.AgentNotAnsweringReason), HaveField("Message", ContainSubstring("no space left on device"))))
		Expect(w.eventsOf("AgentNotAnswering")).To(BeEmpty())

		w.reports(ctx, 0, agentv1.Applying, revisionOf(0, "rendered-worker-2"), "")
		w.settle(ctx)
		Expect(w.updated(ctx, 0).Reason).To(Equal(bootstrapv1.UpdateApplyingReason))
		Expect(w.config(ctx, 0).Status.Update.UnansweredTime).To(BeNil())
		w.complete(ctx, 0)
		w.settle(ctx)
		Expect(w.updated(ctx, 0).Reason).To(Equal(bootstrapv1.UpdateDoneReason))
		Expect(w.config(ctx, 0).Status.Update.RunningRevision).To(Equal(revisionOf(0, "rendered-worker-2")))
		Expect(w.told(ctx)).To(Equal([]int{1}), "the rollout goes on")
	})

	It("has its whole time again for what it is told after an answer", func(ctx SpecContext) {
		w := newWorld(1)
		now := time.Now().Truncate(time.Second)
		w.reconciler.clock = func() time.Time { return now }
		w.adopt(ctx)
		for _, name := range []string{"rendered-worker-2", "rendered-worker-3"} {
			w.render(ctx, name)
			w.settle(ctx)
			now = now.Add(answerDeadline - time.Second)
			w.settle(ctx)
			Expect(w.updated(ctx, 0).Reason).To(Equal(bootstrapv1.UpdateWaitingReason))
			w.complete(ctx, 0)
			w.settle(ctx)
		}
	})
})
