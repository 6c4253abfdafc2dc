package update

import (
	"context"
	"errors"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// failWrites makes each write of a kind of object fail, in a new process.
func (w *world) failWrites(err error, isConcerned func(client.Object) bool) {
	w.reconciler = w.newManager(func(ctx context.Context, o client.Object, do func() error) error {
		if isConcerned(o) {
			return err
		}
		return w.Write(ctx, o, do)
	})
}

// restart replaces the process by one whose writes do not fail.
func (w *world) restart() { w.reconciler = w.newManager(w.Write) }

func isNode(o client.Object) bool { _, is := o.(*corev1.Node); return is }

func isPool(o client.Object) bool { _, is := o.(*poolv1.MachineConfigPool); return is }

// closeWindow closes the maintenance window of the pool for two hours.
func (w *world) closeWindow(ctx context.Context) {
	GinkgoHelper()
	w.changePool(ctx, func(p *poolv1.MachineConfigPool) {
		p.Spec.Updates.MaintenanceWindow = poolv1.MaintenanceWindow{Schedule: time.Now().UTC().Add(2 * time.Hour).Format("4 15 * * *"), DurationMinutes: 60}
	})
}

var _ = Describe("A request that an API server refuses", func() {
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "things"}, "name", errors.New("a policy refuses it"))

	It("is reported with an event of the pool if it gives slots", func(ctx SpecContext) {
		w := newWorld(2)
		w.adopt(ctx)
		w.render(ctx, "rendered-worker-2")
		w.failWrites(refused, isPool)
		Expect(w.reconcilePool(ctx)).Error().To(MatchError(ContainSubstring("a policy refuses it")))
		Expect(w.eventsOf(poolv1.EventRolloutFailing)).To(ConsistOf(ContainSubstring("a policy refuses it")))
		Expect(w.told(ctx)).To(BeEmpty())

		w.restart()
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{0}))
		Expect(w.eventsOf(poolv1.EventRolloutFailing)).To(BeEmpty())
	})

	It("is reported with the condition of the host if it tells the host what to run", func(ctx SpecContext) {
		w := newWorld(2)
		w.adopt(ctx)
		w.render(ctx, "rendered-worker-2")
		w.failWrites(refused, isNode)
		Expect(w.roll(ctx)).To(MatchError(ContainSubstring("a policy refuses it")))
		Expect(w.updated(ctx, 0)).To(And(HaveField("Reason", bootstrapv1.UpdateFailingReason), HaveField("Message", ContainSubstring("Node host-0"))))
		Expect(w.told(ctx)).To(BeEmpty())

		w.restart()
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{0}))
	})

	It("creates no event if another client only wrote first, or the API server does not answer", func(ctx SpecContext) {
		w := newWorld(2)
		w.adopt(ctx)
		w.render(ctx, "rendered-worker-2")
		for _, err := range []error{apierrors.NewConflict(schema.GroupResource{}, "name", nil), context.DeadlineExceeded} {
			w.failWrites(err, isPool)
			_, _ = w.reconcilePool(ctx)
			Expect(w.eventsOf(poolv1.EventRolloutFailing)).To(BeEmpty())
		}
	})

	DescribeTable("counts like one that is not answered for a minute, because of a webhook that", func(ctx SpecContext, failure error, says string) {
		w := newDrainingWorld(ctx)
		now := time.Now()
		fail := func() {
			w.failWrites(failure, isNode)
			w.reconciler.clock = func() time.Time { return now }
		}
		fail()
		Expect(w.reconcileHost(ctx, 0)).Error().To(MatchError(ContainSubstring(says)))
		Expect(w.updated(ctx, 0).Reason).NotTo(Equal(bootstrapv1.UpdateFailingReason))
		now = now.Add(failurePatience)
		Expect(w.reconcileHost(ctx, 0)).Error().To(HaveOccurred())
		Expect(w.updated(ctx, 0)).To(And(HaveField("Reason", bootstrapv1.UpdateFailingReason), HaveField("Message", ContainSubstring(says))))

		w.restart()
		w.settle(ctx)
		w.complete(ctx, 0)
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{1}))
		w.render(ctx, "rendered-worker-3")
		w.failWrites(failure, isPool)
		w.reconciler.clock = func() time.Time { return now }
		for range 2 {
			Expect(w.eventsOf(poolv1.EventRolloutFailing)).To(BeEmpty())
			_, _ = w.reconcilePool(ctx)
			now = now.Add(failurePatience)
		}
		Expect(w.eventsOf(poolv1.EventRolloutFailing)).To(HaveLen(1))
	},
		Entry("refuses connections", apierrors.NewInternalError(errors.New("failed calling webhook")), "failed calling webhook"),
		Entry("does not answer at all", context.DeadlineExceeded, "deadline exceeded"),
	)

	It("does not count if there is another answer between two failures", func(ctx SpecContext) {
		w := newDrainingWorld(ctx)
		now := time.Now()
		w.reconciler.clock = func() time.Time { return now }
		for _, failure := range []error{context.DeadlineExceeded, apierrors.NewNotFound(schema.GroupResource{}, "name"), clustercache.ErrClusterNotConnected} {
			Expect(w.reconciler.lasts("uid", context.DeadlineExceeded)).To(BeFalse())
			Expect(w.reconciler.lasts("uid", failure)).To(BeFalse())
			now = now.Add(failurePatience)
			Expect(w.reconciler.lasts("uid", context.DeadlineExceeded)).To(Equal(errors.Is(failure, context.DeadlineExceeded)))
			w.reconciler.failing.end(types.UID("uid"))
		}
	})

	It("leaves the condition of a host as it is that needs a person", func(ctx SpecContext) {
		w := newDrainingWorld(ctx)
		w.settle(ctx)
		w.reports(ctx, 0, agentv1.Degraded, revisionOf(0, "rendered-worker-2"), "")
		config := w.config(ctx, 0)
		conditions.Set(config, *newUpdated(metav1.ConditionFalse, bootstrapv1.UpdateDegradedReason, "the update failed"))
		Expect(w.management.Status().Update(ctx, config)).To(Succeed())
		w.failWrites(refused, isNode)
		Expect(w.reconcileHost(ctx, 0)).Error().To(MatchError(ContainSubstring("a policy refuses it")))
		Expect(w.updated(ctx, 0).Reason).To(Equal(bootstrapv1.UpdateDegradedReason))
	})

	It("is named by the condition of the host whose update needs it, until it is accepted", func(ctx SpecContext) {
		w := newDrainingWorld(ctx)
		w.failWrites(refused, isNode)
		Expect(w.reconcileHost(ctx, 0)).Error().To(MatchError(ContainSubstring("a policy refuses it")))
		Expect(w.updated(ctx, 0)).To(And(HaveField("Reason", bootstrapv1.UpdateFailingReason),
			HaveField("Message", And(HavePrefix("what Node host-0 needs to follow its pool fails, and is retried: "), ContainSubstring("a policy refuses it")))))
		Expect(w.eventsOf(bootstrapv1.UpdateFailingReason)).To(HaveLen(1))
		Expect(w.reconcileHost(ctx, 0)).Error().To(HaveOccurred())
		Expect(w.eventsOf(bootstrapv1.UpdateFailingReason)).To(BeEmpty(), "the same error is one event")

		w.restart()
		w.settle(ctx)
		Expect(w.updated(ctx, 0).Reason).To(Equal(bootstrapv1.UpdateDrainingReason))
	})
})

var _ = Describe("A maintenance window that is closed", func() {
	It("does not leave a host in the middle of its drain for which something else was recorded before", func(ctx SpecContext) {
		w := newDrainingWorld(ctx)
		w.settle(ctx)
		Expect(w.node(ctx, 0).Spec.Unschedulable).To(BeTrue())

		w.render(ctx, "rendered-worker-3")
		w.failWrites(context.DeadlineExceeded, isNode)
		_ = w.roll(ctx)
		Expect(w.config(ctx, 0).Status.Update.Desired.Name).To(Equal("rendered-worker-3"))
		w.closeWindow(ctx)
		w.restart()
		w.settle(ctx)
		Expect(w.node(ctx, 0).Annotations).To(HaveKeyWithValue(agentv1.DesiredAnnotation, revisionOf(0, "rendered-worker-3")))
		Expect(w.told(ctx)).To(Equal([]int{0}))
	})
})
