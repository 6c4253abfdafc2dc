package update

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/controllertest"
)

var _ = Describe("Health checks of the Machine of a host", func() {
	paused := HaveField("Annotations", HaveKeyWithValue(clusterv1.MachineSkipRemediationAnnotation, "poolboot"))

	updating := func(ctx SpecContext) *world {
		GinkgoHelper()
		w := newWorld(2)
		w.adopt(ctx)
		Expect(w.machine(ctx, 0)).NotTo(paused)
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		Expect(w.machine(ctx, 0)).To(paused)
		Expect(w.machine(ctx, 1)).NotTo(paused)
		return w
	}

	DescribeTable("are paused during an update, and not after", func(ctx SpecContext, state agentv1.State) {
		w := updating(ctx)
		w.reports(ctx, 0, agentv1.Applying, revisionOf(0, "rendered-worker-2"), "")
		w.settle(ctx)
		Expect(w.machine(ctx, 0)).To(paused)
		w.reports(ctx, 0, state, revisionOf(0, "rendered-worker-2"), "")
		w.settle(ctx)
		Expect(w.machine(ctx, 0)).NotTo(paused)
	},
		Entry("that is done", agentv1.Done),
		Entry("that failed", agentv1.Degraded),
		Entry("that is not possible", agentv1.Unreconcilable),
	)

	It("are not paused for longer than a host needs to come back", func(ctx SpecContext) {
		w := updating(ctx)
		w.reports(ctx, 0, agentv1.Rebooting, revisionOf(0, "rendered-worker-2"), "")
		w.changeNode(ctx, 0, func(node *corev1.Node) { setReady(node, false) })
		Expect(w.reconcileHost(ctx, 0)).To(HaveField("RequeueAfter", BeNumerically(">", 20*time.Minute)))
		Expect(w.machine(ctx, 0)).To(paused)
		config := w.config(ctx, 0)
		Expect(config.Status.Update.Stage).To(Equal(bootstrapv1.UpdateRebooting))
		Expect(config.Status.Update.StageTime.Time).To(BeTemporally("~", time.Now(), time.Minute))
		config.Status.Update.StageTime = &metav1.Time{Time: time.Now().Add(-31 * time.Minute)}
		Expect(w.management.Status().Update(ctx, config)).To(Succeed())
		By("restarting the manager")
		w.reconciler = w.newManager(w.Write)
		w.settle(ctx)
		Expect(w.machine(ctx, 0)).NotTo(paused)
		Expect(w.config(ctx, 0).Status.Update.StageTime.Time).To(BeTemporally("<", time.Now().Add(-30*time.Minute)), "the same stage has the same time")
	})

	It("are not paused for longer if the agent does not answer", func(ctx SpecContext) {
		w := updating(ctx)
		w.reconciler.clock = func() time.Time { return time.Now().Add(31 * time.Minute) }
		w.settle(ctx)
		Expect(w.machine(ctx, 0)).NotTo(paused)
		Expect(w.config(ctx, 0).Status.Update.Stage).To(Equal(bootstrapv1.UpdateStarting))
		Expect(w.told(ctx)).To(Equal([]int{0}), "it keeps its place")
	})

	It("are paused when the host is told, also if it could not be told before and the pool is paused since", func(ctx SpecContext) {
		w := newWorld(1)
		w.adopt(ctx)
		w.render(ctx, "rendered-worker-2")
		Expect(w.reconcilePool(ctx)).Error().NotTo(HaveOccurred())
		w.CrashesAt = func(o client.Object) bool { _, isNode := o.(*corev1.Node); return isNode }
		Expect(w.reconcileHost(ctx, 0)).Error().To(MatchError(controllertest.ErrCrash))
		w.CrashesAt, w.Crashed = nil, false
		Expect(w.machine(ctx, 0)).To(paused)
		w.changePool(ctx, func(p *poolv1.MachineConfigPool) { p.Spec.Paused = ptr.To(true) })
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{0}), "a slot is a beginning")
		Expect(w.machine(ctx, 0)).To(paused)
	})

	It("are not paused for longer if the clock of an earlier manager was ahead", func(ctx SpecContext) {
		w := updating(ctx)
		now := time.Now()
		w.reconciler.clock = func() time.Time { return now.Add(5 * time.Hour) }
		w.reports(ctx, 0, agentv1.Rebooting, revisionOf(0, "rendered-worker-2"), "")
		w.settle(ctx)
		for _, passed := range []time.Duration{0, 31 * time.Minute} {
			w.reconciler.clock = func() time.Time { return now.Add(passed) }
			w.settle(ctx)
		}
		Expect(w.machine(ctx, 0)).NotTo(paused)
	})

	It("are not paused while the Node is drained, which does not make it not Ready", func(ctx SpecContext) {
		w := updating(ctx)
		Expect(w.workload.Create(ctx, newPod(0))).To(Succeed())
		w.evict = func(*corev1.Pod) error { return errPDB }
		w.reports(ctx, 0, agentv1.Draining, revisionOf(0, "rendered-worker-2"), "")
		w.settle(ctx)
		Expect(w.machine(ctx, 0)).NotTo(paused)
		w.evict = nil
		w.settle(ctx)
		Expect(w.node(ctx, 0).Annotations).To(HaveKey(agentv1.DrainedAnnotation))
		Expect(w.machine(ctx, 0)).To(paused)
	})

	DescribeTable("are not paused any longer", func(ctx SpecContext, change func(context.Context, *world)) {
		w := updating(ctx)
		w.reports(ctx, 0, agentv1.Rebooting, revisionOf(0, "rendered-worker-2"), "")
		w.settle(ctx)
		Expect(w.machine(ctx, 0)).To(paused)
		change(ctx, w)
		w.settle(ctx)
		Expect(w.machine(ctx, 0)).NotTo(paused)
	},
		Entry("if the Node was deleted", func(ctx context.Context, w *world) {
			Expect(w.workload.Delete(ctx, w.node(ctx, 0))).To(Succeed())
		}),
		Entry("while the PoolbootConfig is paused", func(ctx context.Context, w *world) {
			config := w.config(ctx, 0)
			config.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
			Expect(w.management.Update(ctx, config)).To(Succeed())
		}),
		Entry("if the PoolbootConfig is being deleted", func(ctx context.Context, w *world) {
			config := w.config(ctx, 0)
			config.Finalizers = []string{"example.com/slow"}
			Expect(w.management.Update(ctx, config)).To(Succeed())
			Expect(w.management.Delete(ctx, config)).To(Succeed())
		}),
		Entry("if the update is superseded by what the host runs", func(ctx context.Context, w *world) {
			w.render(ctx, "rendered-worker-1")
			w.settle(ctx)
			w.complete(ctx, 0)
		}),
	)

	DescribeTable("are not paused for longer although each reconcile fails", func(ctx SpecContext, state agentv1.State, fail func(*world)) {
		w := updating(ctx)
		w.reports(ctx, 0, agentv1.Draining, revisionOf(0, "rendered-worker-2"), "")
		if state != agentv1.Draining {
			w.settle(ctx)
		}
		Expect(w.machine(ctx, 0)).To(paused)
		now := time.Now()
		w.reconciler.clock = func() time.Time { return now }
		fail(w)
		w.reports(ctx, 0, state, revisionOf(0, "rendered-worker-2"), "")
		for range 2 {
			Expect(w.reconcileHost(ctx, 0)).Error().To(HaveOccurred())
			now = now.Add(31 * time.Minute)
		}
		Expect(w.machine(ctx, 0)).NotTo(paused)
	},
		Entry("because the workload cluster refuses to cordon the Node", agentv1.Draining, refuseNodes),
		Entry("because the workload cluster refuses to uncordon the Node", agentv1.Done, refuseNodes),
		Entry("because what the host should run can't be read", agentv1.Rebooting, func(w *world) {
			w.reconciler.revisions.Clear()
			w.reconciler.document = func(context.Context, *host, poolContext) ([]byte, error) { return nil, errPDB }
		}),
	)

	It("are not paused while the agent adopts what its host booted with", func(ctx SpecContext) {
		w := newWorld(1)
		w.settle(ctx)
		told := w.node(ctx, 0).Annotations[agentv1.DesiredAnnotation]
		Expect(told).NotTo(BeEmpty())
		w.reports(ctx, 0, agentv1.Verifying, told, "")
		w.settle(ctx)
		Expect(w.machine(ctx, 0)).NotTo(paused)
		Expect(w.config(ctx, 0).Status.Update.Stage).To(BeEmpty())
	})

	It("stay paused if a user has paused them", func(ctx SpecContext) {
		w := newWorld(1)
		machine := w.machine(ctx, 0)
		machine.Annotations = map[string]string{clusterv1.MachineSkipRemediationAnnotation: ""}
		Expect(w.management.Update(ctx, machine)).To(Succeed())
		w.adopt(ctx)
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		w.complete(ctx, 0)
		w.settle(ctx)
		Expect(w.machine(ctx, 0).Annotations).To(HaveKeyWithValue(clusterv1.MachineSkipRemediationAnnotation, ""))
	})
})
