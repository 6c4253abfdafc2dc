package update

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

var _ = Describe("A pool with canaries", func() {
	It("updates the others when these have completed their update and soaked, and says why they wait", func(ctx SpecContext) {
		w := newWorld(4)
		w.adopt(ctx)
		w.changePool(ctx, func(p *poolv1.MachineConfigPool) {
			p.Spec.MaxUnavailable = ptr.To(intstr.FromInt32(2))
			p.Spec.Updates.Canary = poolv1.CanarySettings{Hosts: 1, SoakSeconds: ptr.To[int32](600)}
		})
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{0}))
		Expect(w.gatesCondition(ctx)).To(And(HaveField("Status", metav1.ConditionFalse), HaveField("Reason", poolv1.CanaryPendingReason),
			HaveField("Message", HaveSuffix("0 of 1 have completed their update: see what these do: host-0"))))

		w.complete(ctx, 0)
		w.settle(ctx)
		Expect(w.told(ctx)).To(BeEmpty())
		Expect(w.gatesCondition(ctx).Message).To(ContainSubstring("they must run it until "))
		result, err := w.reconcilePool(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(result.RequeueAfter).To(Equal(rolloutRetry))

		By("losing the canary in the soak time")
		w.passed += 10*time.Minute + time.Second
		w.changeNode(ctx, 0, func(node *corev1.Node) { setReady(node, false) })
		w.settle(ctx)
		Expect(w.told(ctx)).To(BeEmpty())
		Expect(w.gatesCondition(ctx).Message).To(HaveSuffix("0 of 1 have completed their update: see what these do: host-0"))

		w.changeNode(ctx, 0, func(node *corev1.Node) { setReady(node, true) })
		w.settle(ctx)
		Expect(w.told(ctx)).To(HaveLen(2))
		Expect(w.gatesCondition(ctx)).To(BeNil())
	})

	It("begins no other host if a canary fails, until the correction works on it", func(ctx SpecContext) {
		w := newWorld(3)
		w.adopt(ctx)
		w.changePool(ctx, func(p *poolv1.MachineConfigPool) {
			p.Spec.MaxUnavailable = ptr.To(intstr.FromInt32(3))
			p.Spec.Updates.Canary.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"canary": ""}}
		})
		w.changeNode(ctx, 1, func(node *corev1.Node) { node.Labels["canary"] = "" })
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{1}))
		w.reports(ctx, 1, agentv1.Degraded, w.toldRevision(ctx, 1), "it failed")
		w.settle(ctx)
		Expect(w.slots(ctx)).To(Equal([]string{"host-1"}))
		w.render(ctx, "rendered-worker-3")
		w.settle(ctx)
		Expect(w.slots(ctx)).To(Equal([]string{"host-1"}))
		w.complete(ctx, 1)
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{0, 2}))
	})
})
