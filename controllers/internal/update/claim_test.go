package update

import (
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// claims sets what root on a host reports: a state of an update to a revision, and the revision that the host has.
func (w *world) claims(ctx SpecContext, i int, state agentv1.State, target, current string) {
	GinkgoHelper()
	w.reports(ctx, i, state, target, "")
	w.changeNode(ctx, i, func(node *corev1.Node) { node.Annotations[agentv1.CurrentAnnotation] = current })
}

var _ = Describe("A host that claims to be in an update", func() {
	invented := strings.Repeat("a", 64)
	paused := HaveField("Annotations", HaveKey(clusterv1.MachineSkipRemediationAnnotation))
	untouched := func(ctx SpecContext, w *world, i int) {
		GinkgoHelper()
		node := w.node(ctx, i)
		Expect(node.Spec.Unschedulable).To(BeFalse())
		Expect(node.Annotations).NotTo(Or(HaveKey(agentv1.DrainedAnnotation), HaveKey(agentv1.DrainStartedAnnotation)))
		Expect(w.machine(ctx, i)).NotTo(paused)
	}

	DescribeTable("that the manager has not begun is neither cordoned nor drained, and its health checks are not paused", func(ctx SpecContext, isPaused bool, current string) {
		w := newWorld(2)
		w.adopt(ctx)
		if isPaused {
			w.changePool(ctx, func(p *poolv1.MachineConfigPool) { p.Spec.Paused = ptr.To(true) })
		}
		runs := revisionOf(0, "rendered-worker-1")
		if current == "" {
			current = runs
		}
		for _, state := range []agentv1.State{agentv1.Draining, agentv1.Applying, agentv1.Rebooting, agentv1.Verifying, agentv1.Draining} {
			w.claims(ctx, 0, state, runs, current)
			w.settle(ctx)
			untouched(ctx, w, 0)
		}
	},
		Entry("for what it runs", false, ""),
		Entry("for what it runs, in a paused pool", true, ""),
		Entry("from an invented revision", false, invented),
		Entry("from an invented revision, in a paused pool", true, invented),
	)

	It("that has ended is neither cordoned nor drained, and says what to do", func(ctx SpecContext) {
		for _, end := range []agentv1.State{agentv1.Done, agentv1.Degraded} {
			w := newDrainingWorld(ctx)
			w.settle(ctx)
			w.reports(ctx, 0, end, revisionOf(0, "rendered-worker-2"), "")
			w.settle(ctx)
			w.claims(ctx, 0, agentv1.Draining, revisionOf(0, "rendered-worker-2"), revisionOf(0, "rendered-worker-1"))
			w.settle(ctx)
			untouched(ctx, w, 0)
			Expect(w.updated(ctx, 0)).To(And(HaveField("Reason", bootstrapv1.UpdateDegradedReason), HaveField("Message", ContainSubstring("kubectl poolboot rollout retry worker -n "))))
		}
	})

	It("that the manager has not begun is not told the next configuration before the pool has a place for it", func(ctx SpecContext) {
		w := newWorld(2)
		w.adopt(ctx)
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		w.reports(ctx, 0, agentv1.Applying, revisionOf(0, "rendered-worker-2"), "")
		w.claims(ctx, 1, agentv1.Applying, revisionOf(1, "rendered-worker-1"), invented)
		w.settle(ctx)
		w.render(ctx, "rendered-worker-3")
		w.settle(ctx)
		Expect(w.node(ctx, 0).Annotations).To(HaveKeyWithValue(agentv1.DesiredAnnotation, revisionOf(0, "rendered-worker-3")))
		Expect(w.node(ctx, 1).Annotations).To(HaveKeyWithValue(agentv1.DesiredAnnotation, revisionOf(1, "rendered-worker-1")))
	})

	DescribeTable("has its health checks paused for a limited time, whatever it reports in turn", func(ctx SpecContext, states ...agentv1.State) {
		w := newWorld(1)
		w.adopt(ctx)
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		Expect(w.machine(ctx, 0)).To(paused)
		began := time.Now()
		var pausedUntil time.Duration
		for passed := time.Duration(0); passed < 24*time.Hour; passed += 20 * time.Minute {
			w.reconciler.clock = func() time.Time { return began.Add(passed) }
			w.claims(ctx, 0, states[int(passed/(20*time.Minute))%len(states)], revisionOf(0, "rendered-worker-2"), invented)
			w.settle(ctx)
			if _, isPaused := w.machine(ctx, 0).Annotations[clusterv1.MachineSkipRemediationAnnotation]; isPaused {
				pausedUntil = passed
			}
		}
		Expect(pausedUntil).To(BeNumerically("<", 3*time.Hour))
	},
		Entry("stages", agentv1.Applying, agentv1.Rebooting, agentv1.Verifying),
		Entry("stages and the end of the update", agentv1.Applying, agentv1.Rebooting, agentv1.Verifying, agentv1.Degraded),
		Entry("a drain and a stage", agentv1.Draining, agentv1.Verifying),
	)

	It("is told again with a place if its Node has registered again in the middle of the update, and is drained then", func(ctx SpecContext) {
		w := newDrainingWorld(ctx)
		w.changeNode(ctx, 0, func(node *corev1.Node) { // what a Node of a kubelet that registered again has
			for key := range node.Annotations {
				if strings.HasPrefix(key, "poolboot.io/") && key != poolv1.NodeConfigAnnotation && key != agentv1.AgentAnnotation && key != agentv1.ReportVersionAnnotation {
					delete(node.Annotations, key)
				}
			}
		})
		w.settle(ctx)
		w.claims(ctx, 0, agentv1.Draining, revisionOf(0, "rendered-worker-2"), revisionOf(0, "rendered-worker-1"))
		w.settle(ctx)
		Expect(w.node(ctx, 0).Annotations).To(HaveKeyWithValue(agentv1.DrainedAnnotation, revisionOf(0, "rendered-worker-2")))
	})
})
