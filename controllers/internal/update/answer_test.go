package update

import (
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
)

var _ = Describe("A host whose agent does not run while its kubelet does", func() {
	var (
		w   *world
		now time.Time
	)
	BeforeEach(func(ctx SpecContext) {
		w, now = newWorld(1), time.Now().Truncate(time.Second)
		w.reconciler.clock = func() time.Time { return now }
		w.adopt(ctx)
		w.settle(ctx)
		Expect(w.updated(ctx, 0).Reason).To(Equal(bootstrapv1.UpdateDoneReason))
		w.changeNode(ctx, 0, func(node *corev1.Node) {
			node.Status.NodeInfo.BootID, node.Annotations[agentv1.BootAnnotation] = "boot-1", "boot-1"
		})
	})

	DescribeTable("is reported within a minute, once, until the agent runs", func(ctx SpecContext, message string, change func(*corev1.Node)) {
		w.changeNode(ctx, 0, change)
		result, err := w.reconcileHost(ctx, 0)
		Expect(err).NotTo(HaveOccurred())
		Expect(result.RequeueAfter).To(And(BeNumerically(">", 10*time.Second), BeNumerically("<", 50*time.Second)), "systemd starts it again after 10 s")
		Expect(w.updated(ctx, 0).Reason).To(Equal(bootstrapv1.UpdateDoneReason))

		now = now.Add(result.RequeueAfter)
		w.settle(ctx)
		Expect(w.updated(ctx, 0)).To(And(HaveField("Status", metav1.ConditionFalse), HaveField("Reason", bootstrapv1.AgentNotAnsweringReason), HaveField("Message", ContainSubstring(message))))
		w.settle(ctx)
		Expect(w.eventsOf("AgentNotAnswering")).To(HaveLen(1))

		w.changeNode(ctx, 0, func(node *corev1.Node) { node.Annotations[agentv1.BootAnnotation] = node.Status.NodeInfo.BootID })
		w.settle(ctx)
		Expect(w.updated(ctx, 0).Reason).To(Equal(bootstrapv1.UpdateDoneReason))
	},
		Entry("if it was stopped", "does not run: it has stopped", func(node *corev1.Node) { node.Annotations[agentv1.BootAnnotation] = agentv1.AgentStopped }),
		Entry("if it does not start after a boot", "does not run: it has not started since the host booted", func(node *corev1.Node) { node.Status.NodeInfo.BootID = "boot-2" }),
	)

	It("has its whole time to answer after it runs again", func(ctx SpecContext) {
		w.changeNode(ctx, 0, func(node *corev1.Node) { node.Annotations[agentv1.BootAnnotation] = agentv1.AgentStopped })
		w.settle(ctx)
		now = now.Add(30 * time.Minute)
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		Expect(w.updated(ctx, 0).Reason).To(Equal(bootstrapv1.AgentNotAnsweringReason))
		now = now.Add(time.Second)
		w.changeNode(ctx, 0, func(node *corev1.Node) { node.Annotations[agentv1.BootAnnotation] = node.Status.NodeInfo.BootID })
		w.settle(ctx)
		Expect(w.updated(ctx, 0).Reason).To(Equal(bootstrapv1.UpdateWaitingReason))
	})

	It("is not reported at once if it replaces itself after minutes without an answer", func(ctx SpecContext) {
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		now = now.Add(5 * time.Minute)
		w.changeNode(ctx, 0, func(node *corev1.Node) { node.Annotations[agentv1.BootAnnotation] = agentv1.AgentStopped })
		w.settle(ctx)
		Expect(w.updated(ctx, 0).Reason).To(Equal(bootstrapv1.UpdateWaitingReason))
	})

	It("stays reported after a restart of the manager, which forgets since when", func(ctx SpecContext) {
		w.changeNode(ctx, 0, func(node *corev1.Node) { node.Annotations[agentv1.BootAnnotation] = agentv1.AgentStopped })
		w.settle(ctx)
		now = now.Add(time.Minute)
		w.settle(ctx)
		w.reconciler.silent = newStreaks(failureTTL)
		w.settle(ctx)
		Expect(w.updated(ctx, 0).Reason).To(Equal(bootstrapv1.AgentNotAnsweringReason))
	})

	It("begins no update, so it does not take the place of others", func(ctx SpecContext) {
		w := newWorld(2)
		w.adopt(ctx)
		w.changeNode(ctx, 0, func(node *corev1.Node) {
			node.Status.NodeInfo.BootID, node.Annotations[agentv1.BootAnnotation] = "boot-1", agentv1.AgentStopped
		})
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{1}))
		Expect(w.updated(ctx, 0)).To(And(HaveField("Reason", bootstrapv1.UpdateWaitingReason), HaveField("Message", HaveSuffix("and its agent does not run: it has stopped"))))
		w.complete(ctx, 1)
		w.settle(ctx)
		Expect(w.told(ctx)).To(BeEmpty())
		w.changeNode(ctx, 0, func(node *corev1.Node) { node.Annotations[agentv1.BootAnnotation] = "boot-1" })
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{0}))
	})

	It("leaves a record of what the programs of the host can't change", func(ctx SpecContext) {
		unsupported := func(report string) []string {
			GinkgoHelper()
			w.changeNode(ctx, 0, func(node *corev1.Node) { node.Annotations[agentv1.UnsupportedAnnotation] = report })
			w.settle(ctx)
			return w.config(ctx, 0).Status.Update.UnsupportedChanges
		}
		Expect(unsupported("OSImage Extensions other Extensions")).To(Equal([]string{"OSImage", "Extensions"}))
		Expect(unsupported("")).To(BeEmpty())
	})

	It("leaves a record of the disks that the host does not have, which another report replaces", func(ctx SpecContext) {
		outdated := func(report string) []string {
			GinkgoHelper()
			w.changeNode(ctx, 0, func(node *corev1.Node) { node.Annotations[agentv1.OutdatedDisksAnnotation] = report })
			w.settle(ctx)
			return w.config(ctx, 0).Status.Update.OutdatedDisks
		}
		Expect(outdated("disk /dev/sdb\nfilesystem /dev/sdb1\n")).To(Equal([]string{"disk /dev/sdb", "filesystem /dev/sdb1"}))
		Expect(w.updated(ctx, 0)).To(And(HaveField("Status", metav1.ConditionTrue), HaveField("Reason", bootstrapv1.UpdateDoneReason),
			HaveField("Message", HaveSuffix(", and keeps these as installed (spec.updates.diskPolicy is NewHostsOnly): disk /dev/sdb, filesystem /dev/sdb1. "+
				"To change these, roll out its MachineDeployment to renew it, see docs/pools.md#renewing-machines"))))
		Expect(outdated(strings.Repeat("disk "+strings.Repeat("x", 300)+"\n\x1b\n", 50))).To(And(HaveLen(bootstrapv1.MaxOutdatedDisks), HaveEach(And(HaveLen(bootstrapv1.MaxOutdatedDisk), HaveSuffix("…")))),
			"what root on the host writes")
		Expect(outdated("")).To(BeEmpty())
	})

	DescribeTable("is not reported", func(ctx SpecContext, change func(*corev1.Node)) {
		w.changeNode(ctx, 0, change)
		w.settle(ctx)
		now = now.Add(time.Minute)
		w.settle(ctx)
		Expect(w.updated(ctx, 0).Reason).To(Equal(bootstrapv1.UpdateDoneReason))
	},
		Entry("if its Node is not Ready: then the host is off", func(node *corev1.Node) {
			node.Annotations[agentv1.BootAnnotation] = agentv1.AgentStopped
			setReady(node, false)
		}),
		Entry("if the agent is of a version that does not say whether it runs", func(node *corev1.Node) { delete(node.Annotations, agentv1.BootAnnotation) }),
	)
})

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

	It("has more time while its agent says that it downloads what the host needs, and not for ever", func(ctx SpecContext) {
		w := newWorld(1)
		now := time.Now().Truncate(time.Second)
		w.reconciler.clock = func() time.Time { return now }
		w.adopt(ctx)
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		w.changeNode(ctx, 0, func(node *corev1.Node) {
			node.Annotations[agentv1.StagingAnnotation] = revisionOf(0, "rendered-worker-2") + " " + agentv1.StagingDownloads
		})
		now = now.Add(2 * answerDeadline)
		result, err := w.reconcileHost(ctx, 0)
		Expect(err).NotTo(HaveOccurred())
		Expect(result.RequeueAfter).To(And(BeNumerically(">", 0), BeNumerically("<=", rollout.StagingPatience-2*answerDeadline)))
		Expect(w.updated(ctx, 0)).To(And(HaveField("Reason", bootstrapv1.UpdateWaitingReason), HaveField("Message", HaveSuffix("to run rendered-worker-2, and the host downloads what it needs"))))
		now = now.Add(rollout.StagingPatience - 2*answerDeadline)
		w.settle(ctx)
		Expect(w.updated(ctx, 0).Reason).To(Equal(bootstrapv1.AgentNotAnsweringReason))
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
