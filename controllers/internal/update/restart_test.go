package update

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

var _ = Describe("A restart that was requested", func() {
	var w *world
	request := func(ctx context.Context, id string) {
		GinkgoHelper()
		w.changePool(ctx, func(p *poolv1.MachineConfigPool) {
			p.Generation++
			p.Spec.Updates.Restart = poolv1.RestartRequest{ID: id, Kind: poolv1.RestartReboot}
		})
		w.settle(ctx)
	}
	BeforeEach(func(ctx SpecContext) {
		w = newWorld(3)
		w.adopt(ctx)
	})

	It("comes to one host after the other, and is recorded", func(ctx SpecContext) {
		request(ctx, "1")
		for i := range 3 {
			Expect(w.told(ctx)).To(Equal([]int{i}))
			for other := range 3 {
				Expect(w.config(ctx, other).Status.Update.Restart == "1").To(Equal(other <= i))
			}
			w.complete(ctx, i)
			w.settle(ctx)
			Expect(w.updated(ctx, i).Reason).To(Equal(bootstrapv1.UpdateDoneReason))
		}
		Expect(w.told(ctx)).To(BeEmpty())
	})

	It("waits like an update, and the condition says for what", func(ctx SpecContext) {
		request(ctx, "1")
		Expect(w.updated(ctx, 1)).To(HaveField("Message", ContainSubstring("waits for its turn before its update to restart (spec.updates.restart.id 1)")))
	})

	DescribeTable("is held", func(ctx SpecContext, hold func(*poolv1.MachineConfigPool), why string) {
		w.changePool(ctx, hold)
		request(ctx, "1")
		Expect(w.told(ctx)).To(BeEmpty())
		Expect(w.updated(ctx, 0)).To(And(HaveField("Reason", bootstrapv1.UpdateWaitingReason), HaveField("Message", ContainSubstring(why))))
	},
		Entry("while the pool is paused", func(p *poolv1.MachineConfigPool) { p.Spec.Paused = ptr.To(true) }, "the pool is paused"),
		Entry("while its window is closed", func(p *poolv1.MachineConfigPool) {
			start := time.Now().UTC().Add(12 * time.Hour)
			p.Spec.Updates.MaintenanceWindow = poolv1.MaintenanceWindow{Schedule: start.Format("4 15 * * *"), DurationMinutes: 60}
		}, "the maintenance window of MachineConfigPool worker opens at"),
	)

	It("that comes during another one is for all hosts: those that have restarted do so again, when it is their turn", func(ctx SpecContext) {
		request(ctx, "1")
		w.complete(ctx, 0)
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{1}))
		request(ctx, "2")
		Expect(w.told(ctx)).To(Equal([]int{1}), "the one that is in the first restart, and no other")
		for _, i := range []int{1, 0, 2} {
			Expect(w.told(ctx)).To(Equal([]int{i}))
			Expect(w.config(ctx, i).Status.Update.Restart).To(Equal("2"))
			w.complete(ctx, i)
			w.settle(ctx)
		}
		Expect(w.told(ctx)).To(BeEmpty())
	})

	It("is recorded again if the record is lost while the host restarts", func(ctx SpecContext) {
		request(ctx, "1")
		config := w.config(ctx, 0)
		config.Status.Update = bootstrapv1.UpdateStatus{}
		Expect(w.management.Status().Update(ctx, config)).To(Succeed())
		w.settle(ctx)
		Expect(w.config(ctx, 0).Status.Update.Restart).To(Equal("1"))
		Expect(w.told(ctx)).To(Equal([]int{0}))
	})

	It("whose host failed holds its place, and is not tried again", func(ctx SpecContext) {
		request(ctx, "1")
		told := w.node(ctx, 0).Annotations[agentv1.DesiredAnnotation]
		w.reports(ctx, 0, agentv1.Degraded, told, "the update was not complete within 20m")
		w.settle(ctx)
		Expect(w.node(ctx, 0).Annotations[agentv1.DesiredAnnotation]).To(Equal(told))
		Expect(w.updated(ctx, 0).Reason).To(Equal(bootstrapv1.UpdateDegradedReason))
		Expect(w.told(ctx)).To(Equal([]int{0}))
	})
})
