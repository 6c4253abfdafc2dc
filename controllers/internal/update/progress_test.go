package update

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
)

// isStage matches how long an update was in a stage.
func isStage(stage bootstrapv1.UpdateStage, seconds int) types.GomegaMatcher {
	return And(HaveField("Stage", stage), HaveField("Seconds", BeNumerically("~", seconds, 1)))
}

var _ = Describe("The record of an update", func() {
	revision := revisionOf(0, "rendered-worker-2")
	// begin returns a world in which the update of host 0 has begun, and counts patches of the status of hosts.
	begin := func(ctx SpecContext) (w *world, patches *int) {
		w, patches = newWorld(1), new(int)
		w.adopt(ctx)
		w.reconciler = w.newManager(func(ctx context.Context, o client.Object, write func() error) error {
			if _, isHost := o.(*bootstrapv1.PoolbootConfig); isHost {
				*patches++
			}
			return w.Write(ctx, o, write)
		})
		w.reconciler.progressInterval = progressInterval
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		return w, patches
	}
	stage := func(ctx SpecContext, w *world) bootstrapv1.UpdateStage { return w.config(ctx, 0).Status.Update.Stage }

	It("is written once when the update begins, once when it ends, then where clusterctl move keeps it, and not in between if that takes seconds", func(ctx SpecContext) {
		w, patches := begin(ctx)
		Expect(stage(ctx, w)).To(Equal(bootstrapv1.UpdateStarting))
		Expect(w.told(ctx)).To(Equal([]int{0}))
		Expect(*patches).To(Equal(1))
		for _, state := range []agentv1.State{agentv1.Draining, agentv1.Applying, agentv1.Rebooting, agentv1.Verifying} {
			w.reports(ctx, 0, state, revision, "")
			w.settle(ctx)
		}
		w.changeNode(ctx, 0, func(node *corev1.Node) { setReady(node, false) })
		w.settle(ctx)
		w.changeNode(ctx, 0, func(node *corev1.Node) { setReady(node, true) })
		w.complete(ctx, 0)
		w.settle(ctx)
		Expect(conditions.IsTrue(w.config(ctx, 0), bootstrapv1.UpdatedCondition)).To(BeTrue())
		Expect(*patches).To(Equal(3))
	})

	It("has what the update did, and how long its stages took, also those that are not recorded while it goes on", func(ctx SpecContext) {
		w, patches := begin(ctx)
		for _, state := range []agentv1.State{agentv1.Draining, agentv1.Applying, agentv1.Rebooting, agentv1.Verifying} {
			w.passed += 2 * time.Second
			w.reports(ctx, 0, state, revision, "")
			w.settle(ctx)
		}
		written := *patches
		w.passed += time.Minute
		w.changeNode(ctx, 0, func(node *corev1.Node) { node.Annotations[agentv1.EffectAnnotation] = revision + " Reboot" })
		w.complete(ctx, 0)
		w.settle(ctx)
		Expect(*patches-written).To(BeNumerically("<=", 3), "no record of its own for a stage")
		Expect(w.config(ctx, 0).Status.Update.History).To(HaveExactElements(And(HaveField("Result", bootstrapv1.UpdateResultDone), HaveField("Effect", bootstrapv1.UpdateEffect("Reboot")),
			HaveField("Stages", HaveExactElements(isStage(bootstrapv1.UpdateStarting, 2), isStage(bootstrapv1.UpdateDraining, 2), isStage(bootstrapv1.UpdateApplying, 2),
				isStage(bootstrapv1.UpdateRebooting, 2), isStage(bootstrapv1.UpdateVerifying, 60))))))
	})

	It("goes on with what was recorded if the manager restarts", func(ctx SpecContext) {
		w, _ := begin(ctx)
		w.reports(ctx, 0, agentv1.Draining, revision, "")
		w.passed += progressInterval
		w.settle(ctx)
		w.passed += time.Minute
		w.reconciler = w.newManager(w.Write)
		w.reports(ctx, 0, agentv1.Applying, revision, "")
		w.settle(ctx)
		w.complete(ctx, 0)
		w.settle(ctx)
		Expect(w.config(ctx, 0).Status.Update.History[0].Stages).To(ContainElement(isStage(bootstrapv1.UpdateDraining, 60)))
	})

	It("survives clusterctl move, in which the status is lost", func(ctx SpecContext) {
		w, _ := begin(ctx)
		w.reports(ctx, 0, agentv1.Degraded, revision, "web.service: it failed")
		w.settle(ctx)
		w.render(ctx, "rendered-worker-3")
		w.settle(ctx)
		w.complete(ctx, 0)
		w.settle(ctx)
		before := w.config(ctx, 0).Status.Update.History
		Expect(before).To(HaveLen(2))
		w.moveCluster(ctx, "rendered-worker-3")
		w.recordMoved(ctx, 0)
		w.settle(ctx)
		Expect(w.config(ctx, 0).Status.Update.History).To(BeComparableTo(before))

		By("beginning another update, whose predecessor somebody has changed to garbage")
		config := w.config(ctx, 0)
		config.Annotations[bootstrapv1.UpdateHistoryAnnotation] = "[{"
		Expect(w.management.Update(ctx, config)).To(Succeed())
		w.settle(ctx)
		Expect(w.config(ctx, 0).Annotations[bootstrapv1.UpdateHistoryAnnotation]).To(ContainSubstring("web.service: it failed"))
		w.moveCluster(ctx, "rendered-worker-3")
		config = w.config(ctx, 0)
		config.Annotations[bootstrapv1.UpdateHistoryAnnotation] = "[{"
		Expect(w.management.Update(ctx, config)).To(Succeed())
		w.recordMoved(ctx, 0)
		w.settle(ctx)
		Expect(w.config(ctx, 0).Status.Update.History).To(BeEmpty())
	})

	It("stays in the history of the host with its times and why it failed", func(ctx SpecContext) {
		w, _ := begin(ctx)
		history := func() []bootstrapv1.HostUpdate { return w.config(ctx, 0).Status.Update.History }
		is := func(configuration string, result bootstrapv1.UpdateResult, message string) types.GomegaMatcher {
			return And(HaveField("Configuration", configuration), HaveField("StartTime", Not(BeNil())), HaveField("Result", result),
				HaveField("Message", message), WithTransform(func(u bootstrapv1.HostUpdate) bool { return u.CompletionTime == nil }, Equal(result == "")))
		}
		Expect(history()).To(HaveExactElements(is("rendered-worker-2", "", "")))
		w.reports(ctx, 0, agentv1.Degraded, revision, "web.service: it failed")
		w.settle(ctx)
		failed := is("rendered-worker-2", "Degraded", "web.service: it failed")
		Expect(history()).To(HaveExactElements(failed))
		w.render(ctx, "rendered-worker-3")
		w.settle(ctx)
		Expect(history()).To(HaveExactElements(failed, is("rendered-worker-3", "", "")))
		w.render(ctx, "rendered-worker-4")
		w.settle(ctx)
		superseded := is("rendered-worker-3", "Superseded", "")
		Expect(history()).To(HaveExactElements(failed, superseded, is("rendered-worker-4", "", "")))
		w.complete(ctx, 0)
		w.settle(ctx)
		Expect(history()).To(HaveExactElements(failed, superseded, is("rendered-worker-4", "Done", "")))
		for i := range bootstrapv1.MaxUpdateHistory {
			w.render(ctx, fmt.Sprintf("rendered-worker-%d", 5+i))
			w.settle(ctx)
			w.complete(ctx, 0)
			w.settle(ctx)
		}
		Expect(history()).To(And(HaveLen(bootstrapv1.MaxUpdateHistory), HaveEach(HaveField("Result", bootstrapv1.UpdateResultDone))))
	})

	It("stays in the history of the host with why it rebooted fully although its pool prefers another method", func(ctx SpecContext) {
		w, _ := begin(ctx)
		why := agentv1.FullRebootInsteadOf + "Kexec: operation not permitted"
		w.reports(ctx, 0, agentv1.Rebooting, revision, "update to rendered-worker-2: file /etc/web (Reboot: no policy covers it)\n"+why)
		w.settle(ctx)
		w.reports(ctx, 0, agentv1.Verifying, revision, "the Node is not Ready\n"+why)
		w.settle(ctx)
		w.complete(ctx, 0)
		w.settle(ctx)
		Expect(w.config(ctx, 0).Status.Update.History).To(HaveExactElements(And(HaveField("Result", bootstrapv1.UpdateResultDone), HaveField("Message", why))))
	})

	It("keeps what failed until the host was told to run another config, and not what was going on", func(ctx SpecContext) {
		w, _ := begin(ctx)
		w.reports(ctx, 0, agentv1.Applying, revision, "file /etc/web changes")
		w.render(ctx, "rendered-worker-3")
		w.settle(ctx)
		w.reports(ctx, 0, agentv1.Verifying, revisionOf(0, "rendered-worker-3"), "web.service: it failed")
		w.render(ctx, "rendered-worker-4")
		w.settle(ctx)
		undone := "the update failed and is being undone: web.service: it failed"
		w.reports(ctx, 0, agentv1.Applying, revisionOf(0, "rendered-worker-4"), undone)
		w.changeNode(ctx, 0, func(node *corev1.Node) {
			node.Annotations[agentv1.UndoingAnnotation] = revisionOf(0, "rendered-worker-4")
		})
		w.render(ctx, "rendered-worker-5")
		w.settle(ctx)
		w.render(ctx, "rendered-worker-6") // the report is still that about rendered-worker-4
		w.settle(ctx)
		var messages []string
		for _, u := range w.config(ctx, 0).Status.Update.History[:4] {
			Expect(u.Result).To(Equal(bootstrapv1.UpdateResultSuperseded))
			messages = append(messages, u.Message)
		}
		Expect(messages).To(Equal([]string{"", "web.service: it failed", undone, ""}))
	})

	It("says that units failed after the update and that it was not undone, also when they run again", func(ctx SpecContext) {
		w, _ := begin(ctx)
		w.complete(ctx, 0)
		w.settle(ctx)
		Expect(w.config(ctx, 0).Status.Update.History).To(HaveExactElements(HaveField("Result", bootstrapv1.UpdateResultDone)))
		fails := func(units string) {
			w.changeNode(ctx, 0, func(node *corev1.Node) { node.Annotations[agentv1.FailingUnitsAnnotation] = units })
			w.settle(ctx)
			Expect(w.config(ctx, 0).Status.Update.History).To(HaveExactElements(And(HaveField("Result", bootstrapv1.UpdateResultUnitsFailing),
				HaveField("Message", "it was not undone: web.service: it failed (on the host, see journalctl -u web.service)"))))
		}
		fails("web.service: it failed")
		fails("")
		Expect(conditions.IsTrue(w.config(ctx, 0), bootstrapv1.UpdatedCondition)).To(BeTrue())
	})

	It("shows a stage that lasts", func(ctx SpecContext) {
		w, _ := begin(ctx)
		w.reports(ctx, 0, agentv1.Applying, revision, "")
		result, err := w.reconcileHost(ctx, 0)
		Expect(err).NotTo(HaveOccurred())
		Expect(result.RequeueAfter).To(And(BeNumerically(">", 0), BeNumerically("<=", progressInterval)))
		w.passed += progressInterval
		w.settle(ctx)
		Expect(stage(ctx, w)).To(Equal(bootstrapv1.UpdateApplying))
	})

	It("has the time when the host was told what it should run now", func(ctx SpecContext) {
		w, _ := begin(ctx)
		w.passed += time.Minute
		w.render(ctx, "rendered-worker-3")
		w.settle(ctx)
		Expect(w.config(ctx, 0).Status.Update.Desired.Name).To(Equal("rendered-worker-3"))
		Expect(w.config(ctx, 0).Status.Update.UnansweredTime.Time).To(BeTemporally("~", w.reconciler.now(), time.Second))
	})

	It("shows at once what needs a person", func(ctx SpecContext) {
		w, _ := begin(ctx)
		w.reports(ctx, 0, agentv1.Degraded, revision, "the kubelet does not start")
		w.settle(ctx)
		Expect(conditions.GetReason(w.config(ctx, 0), bootstrapv1.UpdatedCondition)).To(Equal(bootstrapv1.UpdateDegradedReason))
	})

	It("does not wait for a time that a clock ahead has recorded", func() {
		before := &bootstrapv1.PoolbootConfig{}
		before.Status.Update.Stage, before.Status.Update.StageTime = bootstrapv1.UpdateStarting, &metav1.Time{Time: time.Now().Add(time.Hour)}
		conditions.Set(before, *newUpdated(metav1.ConditionFalse, bootstrapv1.UpdateWaitingReason, "waits"))
		after := before.DeepCopy()
		after.Status.Update.Stage = bootstrapv1.UpdateApplying
		Expect(progressWait(before, after, progressInterval, time.Now())).To(BeZero())
		before.Status.Update.StageTime = &metav1.Time{Time: time.Now()}
		Expect(progressWait(before, after, progressInterval, time.Now())).To(BeNumerically(">", 0))
		after.Status.Update.RunningRevision = "other"
		Expect(progressWait(before, after, progressInterval, time.Now())).To(BeZero())
	})
})
