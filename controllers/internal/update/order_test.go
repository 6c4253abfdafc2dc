package update

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/lru"
	"k8s.io/utils/ptr"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

var _ = Describe("A pool that comes after another one", func() {
	var w *world

	// setReady sets what the status of the pool canary says, as its controller does.
	setReady := func(ctx context.Context, status metav1.ConditionStatus, rendered string) {
		GinkgoHelper()
		pools := &poolv1.MachineConfigPoolList{}
		Expect(w.management.List(ctx, pools)).To(Succeed())
		p, err := pool.OfRole(pools.Items, "canary")
		Expect(err).NotTo(HaveOccurred())
		p.Status.InputsHash, err = pool.InputsID("canary", pools.Items, nil)
		Expect(err).NotTo(HaveOccurred())
		p.Status.Configuration.Name, p.Status.RenderedConfiguration, p.Status.ObservedGeneration = rendered, rendered, p.Generation
		meta.SetStatusCondition(&p.Status.Conditions, metav1.Condition{Type: poolv1.ReadyCondition, Status: status, Reason: poolv1.HostsUpdatingReason})
		Expect(w.management.Status().Update(ctx, p)).To(Succeed())
	}

	BeforeEach(func(ctx SpecContext) { // host 2 is the canary
		w = newWorld(3)
		w.addPool(ctx, "canary", nil)
		w.move(ctx, 2, "canary")
		w.adopt(ctx)
		w.settlePools(ctx, "canary")
		w.complete(ctx, 2)
		w.changePool(ctx, func(p *poolv1.MachineConfigPool) {
			p.Spec.Updates.Cluster.Order = []poolv1.UpdateStep{{Pools: []string{"canary"}, SoakSeconds: ptr.To[int32](600)}}
		})
		setReady(ctx, metav1.ConditionTrue, "rendered-canary-1")
		w.settlePools(ctx, "canary")
		Expect(w.told(ctx)).To(BeEmpty())
	})

	It("begins no update until that one is ready for its soak time", func(ctx SpecContext) {
		setReady(ctx, metav1.ConditionFalse, "rendered-canary-2")
		w.render(ctx, "rendered-worker-2")
		w.settlePools(ctx, "canary")
		Expect(w.told(ctx)).To(Equal([]int{2}))
		Expect(w.gatesCondition(ctx)).To(And(HaveField("Status", metav1.ConditionFalse), HaveField("Reason", poolv1.EarlierPoolsPendingReason),
			HaveField("Message", "the pool canary comes first (spec.updates.cluster.order[0] of MachineConfigPool worker), and MachineConfigPool canary is not ready (HostsUpdating): see kubectl poolboot rollout status canary -n edge")))
		Expect(w.updated(ctx, 0)).To(And(HaveField("Reason", bootstrapv1.UpdateWaitingReason), HaveField("Message", HaveSuffix("waits for its turn before its update to rendered-worker-2: see kubectl poolboot rollout plan worker -n edge"))))
		result, err := w.reconcilePool(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(result.RequeueAfter).To(Equal(rolloutRetry))

		w.complete(ctx, 2)
		setReady(ctx, metav1.ConditionTrue, "rendered-canary-2")
		w.settlePools(ctx, "canary")
		Expect(w.told(ctx)).To(BeEmpty())
		Expect(w.gatesCondition(ctx).Message).To(ContainSubstring("MachineConfigPool canary must stay ready until "))

		w.passed += 10*time.Minute + time.Second
		w.settlePools(ctx, "canary")
		Expect(w.told(ctx)).To(Equal([]int{0}))
		Expect(w.gatesCondition(ctx)).To(BeNil())
	})

	It("begins none before a host of that one runs what a new version of Poolboot gives to all, although its status does not say so yet", func(ctx SpecContext) {
		w.passed += time.Hour
		w.force, w.reconciler.revisions = "a new version", lru.New(100)
		w.settle(ctx)
		Expect(w.told(ctx)).To(BeEmpty())
		Expect(w.gatesCondition(ctx).Message).To(HaveSuffix("and its host host-2 is to be updated, which its status does not say yet"))
		w.settlePools(ctx, "canary")
		Expect(w.told(ctx)).To(Equal([]int{2}))
		w.complete(ctx, 2)
		w.settlePools(ctx, "canary")
		Expect(w.told(ctx)).To(Equal([]int{0}))
	})

	It("completes the update that it has begun, with the newer configuration", func(ctx SpecContext) {
		w.passed += time.Hour
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{0}))
		w.reports(ctx, 0, agentv1.Applying, w.toldRevision(ctx, 0), "")
		setReady(ctx, metav1.ConditionFalse, "rendered-canary-1")
		w.render(ctx, "rendered-worker-3")
		w.settle(ctx)
		Expect(w.toldRevision(ctx, 0)).To(Equal(revisionOf(0, "rendered-worker-3")))
		w.complete(ctx, 0)
		w.settle(ctx)
		Expect(w.told(ctx)).To(BeEmpty())
	})

	It("waits for one that does not exist, and says so until the order is corrected", func(ctx SpecContext) {
		Expect(w.management.Delete(ctx, &poolv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Namespace: poolKey.Namespace, Name: "canary"}})).To(Succeed())
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		Expect(w.told(ctx)).To(BeEmpty())
		Expect(w.gatesCondition(ctx).Message).To(HaveSuffix(`the Cluster has no MachineConfigPool of role "canary": create it, or correct the role, or take it out of the order`))
		w.changePool(ctx, func(p *poolv1.MachineConfigPool) { p.Spec.Updates.Cluster.Order = nil })
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{0}))
		Expect(w.gatesCondition(ctx)).To(BeNil())
	})
})

var _ = Describe("A pool whose updates need an approval", func() {
	It("begins an update only to the rendered config that is approved", func(ctx SpecContext) {
		w := newWorld(2)
		w.adopt(ctx)
		approve := func(name string) {
			w.changePool(ctx, func(p *poolv1.MachineConfigPool) {
				p.Annotations = map[string]string{poolv1.ApprovedConfigurationAnnotation: name}
			})
			w.settle(ctx)
		}
		w.changePool(ctx, func(p *poolv1.MachineConfigPool) { p.Spec.Updates.Approval = poolv1.ApprovalManual })
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		Expect(w.told(ctx)).To(BeEmpty())
		Expect(w.updated(ctx, 0).Message).To(ContainSubstring("and rendered-worker-2 is not approved"))

		approve("rendered-worker-2")
		Expect(w.told(ctx)).To(Equal([]int{0}))
		w.reports(ctx, 0, agentv1.Applying, w.toldRevision(ctx, 0), "")

		By("rendering another one in the middle")
		w.render(ctx, "rendered-worker-3")
		w.settle(ctx)
		Expect(w.toldRevision(ctx, 0)).To(Equal(revisionOf(0, "rendered-worker-2")), "it completes what was approved")
		w.complete(ctx, 0)
		w.settle(ctx)
		Expect(w.told(ctx)).To(BeEmpty())
		Expect(w.updated(ctx, 1).Message).To(ContainSubstring("names rendered-worker-2, which the pool does not hand out"))
		approve("rendered-worker-3")
		Expect(w.told(ctx)).To(HaveLen(1))
	})
})
