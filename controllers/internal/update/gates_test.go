package update

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// gateReader reads the objects of update gates, and counts the requests.
type gateReader struct {
	client.Reader
	err   error
	reads int
	// only is the name of the object for which err is, or "" for all.
	only string
	// deadlines are those of the requests.
	deadlines []time.Time
}

func (r *gateReader) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	r.reads++
	deadline, _ := ctx.Deadline()
	r.deadlines = append(r.deadlines, deadline)
	if r.err != nil && (r.only == "" || r.only == key.Name) {
		return r.err
	}
	return r.Reader.Get(ctx, key, object, options...)
}

func (w *world) gatesCondition(ctx context.Context) *metav1.Condition {
	GinkgoHelper()
	p := &poolv1.MachineConfigPool{}
	Expect(w.management.Get(ctx, poolKey, p)).To(Succeed())
	return meta.FindStatusCondition(p.Status.Conditions, poolv1.UpdateGatesOpenCondition)
}

// addSecondGate adds a gate with the object of the first one.
func addSecondGate(p *poolv1.MachineConfigPool) {
	second := p.Spec.Updates.Gates[0]
	second.Name = "second"
	p.Spec.Updates.Gates = append(p.Spec.Updates.Gates, second)
}

var _ = Describe("A pool with an update gate", func() {
	var (
		w      *world
		reader *gateReader
		store  *appsv1.Deployment
	)

	BeforeEach(func(ctx SpecContext) {
		w = newWorld(3)
		w.adopt(ctx)
		store = &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "store"}}
		Expect(w.workload.Create(ctx, store)).To(Succeed())
		reader = &gateReader{Reader: w.workload}
		w.reconciler.gateReader = func(context.Context, client.ObjectKey) (client.Reader, error) { return reader, nil }
		w.changePool(ctx, func(p *poolv1.MachineConfigPool) {
			p.UID = types.UID("pool-uid")
			p.Spec.Updates.Gates = []poolv1.UpdateGate{{Name: "storage", Expression: "object.spec.replicas == 3",
				ObjectRef: poolv1.UpdateGateObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "default", Name: "store"}}}
		})
		w.settle(ctx)
	})

	ready := func(ctx context.Context, replicas int32) {
		GinkgoHelper()
		store.Spec.Replicas = &replicas
		Expect(w.workload.Update(ctx, store)).To(Succeed())
	}

	It("reads no object while no host is next", func(ctx SpecContext) {
		Expect(reader.reads).To(BeZero())
		Expect(w.gatesCondition(ctx)).To(BeNil())
	})

	It("begins an update only while the gate is open, and completes those that began", func(ctx SpecContext) {
		ready(ctx, 2)
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		Expect(w.told(ctx)).To(BeEmpty())
		Expect(w.gatesCondition(ctx)).To(And(HaveField("Status", metav1.ConditionFalse), HaveField("Reason", poolv1.GateClosedReason),
			HaveField("Message", "the gate storage is closed: its expression is false for Deployment default/store")))
		Expect(w.updated(ctx, 0)).To(And(HaveField("Reason", bootstrapv1.UpdateWaitingReason), HaveField("Message", And(ContainSubstring("waits for its turn before"), HaveSuffix(": see kubectl poolboot rollout plan worker -n edge")))))
		result, err := w.reconcilePool(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(result.RequeueAfter).To(Equal(rolloutRetry))

		ready(ctx, 3)
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{0}))
		Expect(w.gatesCondition(ctx)).To(And(HaveField("Status", metav1.ConditionTrue), HaveField("Reason", poolv1.GatesOpenReason)))

		By("closing the gate during the update of a host")
		ready(ctx, 2)
		w.reports(ctx, 0, agentv1.Applying, w.node(ctx, 0).Annotations[agentv1.DesiredAnnotation], "")
		w.settle(ctx)
		w.complete(ctx, 0)
		w.settle(ctx)
		Expect(w.updated(ctx, 0).Reason).To(Equal(bootstrapv1.UpdateDoneReason))
		Expect(w.told(ctx)).To(BeEmpty())
		Expect(w.gatesCondition(ctx).Reason).To(Equal(poolv1.GateClosedReason))

		By("reverting the change")
		w.render(ctx, "rendered-worker-1")
		w.complete(ctx, 0)
		w.changePool(ctx, func(p *poolv1.MachineConfigPool) { p.Spec.Updates.Gates = nil })
		w.settle(ctx)
		Expect(w.gatesCondition(ctx)).To(BeNil())
	})

	It("gives a host in an update the newer configuration, although the gate is closed", func(ctx SpecContext) {
		ready(ctx, 3)
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{0}))
		before := w.node(ctx, 0).Annotations[agentv1.DesiredAnnotation]
		w.reports(ctx, 0, agentv1.Applying, before, "")
		ready(ctx, 2)
		w.render(ctx, "rendered-worker-3")
		w.settle(ctx)
		Expect(w.node(ctx, 0).Annotations[agentv1.DesiredAnnotation]).NotTo(Equal(before))
		Expect(w.told(ctx)).To(Equal([]int{0}))
	})

	It("does not hold back a host that has its slot and was not told yet", func(ctx SpecContext) {
		ready(ctx, 3)
		w.render(ctx, "rendered-worker-2")
		Expect(w.reconcilePool(ctx)).Error().NotTo(HaveOccurred())
		Expect(w.slots(ctx)).To(Equal([]string{hostName(0)}))
		ready(ctx, 2)
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{0}))
	})

	It("holds back neither a host that was told and returns to what it has, nor one that gets a newer configuration", func(ctx SpecContext) {
		ready(ctx, 3)
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{0}))
		ready(ctx, 2)
		for _, rendered := range []string{"rendered-worker-3", "rendered-worker-1"} {
			w.render(ctx, rendered)
			w.settle(ctx)
			Expect(w.node(ctx, 0).Annotations).To(HaveKeyWithValue(agentv1.DesiredAnnotation, revisionOf(0, rendered)))
		}
		w.settle(ctx)
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		Expect(w.node(ctx, 0).Annotations).To(HaveKeyWithValue(agentv1.DesiredAnnotation, revisionOf(0, "rendered-worker-1")), "this begins an update")
	})

	It("holds back a host that repairs what it has", func(ctx SpecContext) {
		ready(ctx, 2)
		w.render(ctx, "rendered-worker-2")
		w.reports(ctx, 0, agentv1.Applying, revisionOf(0, "rendered-worker-1"), "")
		w.settle(ctx)
		Expect(w.config(ctx, 0).Status.Update.Desired.Name).To(Equal("rendered-worker-1"))
		Expect(reader.reads).NotTo(BeZero())
	})

	It("does not hold back a host whose update failed, and that returns to what it has", func(ctx SpecContext) {
		ready(ctx, 3)
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		w.reports(ctx, 0, agentv1.Degraded, revisionOf(0, "rendered-worker-2"), "")
		ready(ctx, 2)
		w.settle(ctx)
		Expect(w.updated(ctx, 0).Reason).To(Equal(bootstrapv1.UpdateDegradedReason))
		w.render(ctx, "rendered-worker-1")
		w.settle(ctx)
		Expect(w.node(ctx, 0).Annotations).To(HaveKeyWithValue(agentv1.DesiredAnnotation, revisionOf(0, "rendered-worker-1")))
		w.complete(ctx, 0)
		ready(ctx, 3)
		w.settle(ctx)
		Expect(w.updated(ctx, 0)).To(And(HaveField("Reason", bootstrapv1.UpdateDoneReason), HaveField("Status", metav1.ConditionTrue)))
		Expect(w.node(ctx, 0)).To(And(HaveField("Spec.Unschedulable", BeFalse()), HaveField("Annotations", Not(HaveKey(agentv1.DrainedAnnotation)))), "it was not drained for it")
	})

	It("reads each of several gates until the first closed one, once in each look at the pool", func(ctx SpecContext) {
		ready(ctx, 2)
		w.changePool(ctx, addSecondGate)
		w.render(ctx, "rendered-worker-2")
		for range 2 {
			reader.reads = 0
			Expect(w.reconcilePool(ctx)).Error().NotTo(HaveOccurred())
			Expect(reader.reads).To(Equal(1))
		}
	})

	DescribeTable("begins no update if the object", func(ctx SpecContext, change func(*poolv1.UpdateGate), err error, words string) {
		ready(ctx, 3)
		reader.err = err
		w.changePool(ctx, func(p *poolv1.MachineConfigPool) { change(&p.Spec.Updates.Gates[0]) })
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		Expect(w.told(ctx)).To(BeEmpty())
		Expect(w.gatesCondition(ctx)).To(And(HaveField("Status", metav1.ConditionFalse), HaveField("Reason", poolv1.GateUnreadableReason), HaveField("Message", ContainSubstring(words))))
		Expect(w.eventsOf("the gate storage can't be read")).To(HaveLen(1))
	},
		Entry("does not exist", func(g *poolv1.UpdateGate) { g.ObjectRef.Name = "other" }, nil, "Deployment default/other does not exist"),
		Entry("can't be read by the user", func(*poolv1.UpdateGate) {}, apierrors.NewForbidden(schema.GroupResource{}, "", nil), "the user poolboot:update-gates"),
		Entry("is too large", func(*poolv1.UpdateGate) {}, &workload.TooLargeError{}, "has more than 262144 bytes"),
		Entry("lacks a field", func(g *poolv1.UpdateGate) { g.Expression = "object.status.health == 'OK'" }, nil, "its expression fails for Deployment default/store at 1:14"),
		Entry("is used in a wrong expression", func(g *poolv1.UpdateGate) { g.Expression = "object.status" }, nil, "expression: Invalid value: 1:1: the result is of type dyn"),
		Entry("is a Secret", func(g *poolv1.UpdateGate) { g.ObjectRef.APIVersion, g.ObjectRef.Kind = "v1", "Secret" }, nil, "can't read Secrets"),
	)

	It("reports that a gate is not answered after one that is open, but not that it was once, long ago", func(ctx SpecContext) {
		now := time.Now()
		w.reconciler.clock = func() time.Time { return now }
		reader.err, reader.only = context.DeadlineExceeded, "other"
		ready(ctx, 3)
		w.changePool(ctx, func(p *poolv1.MachineConfigPool) {
			second := p.Spec.Updates.Gates[0]
			second.Name, second.ObjectRef.Name = "second", "other"
			p.Spec.Updates.Gates = append(p.Spec.Updates.Gates, second)
		})
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		now = now.Add(24 * time.Hour)
		w.settle(ctx)
		Expect(w.gatesCondition(ctx)).To(BeNil())
		for range 2 {
			now = now.Add(30 * time.Second)
			w.settle(ctx)
		}
		Expect(w.gatesCondition(ctx)).To(And(HaveField("Reason", poolv1.GateUnreadableReason), HaveField("Message", ContainSubstring("the gate second can't be read"))))
	})

	It("reads all its gates within ten seconds, because the next change of the pool waits for that", func(ctx SpecContext) {
		ready(ctx, 3)
		w.changePool(ctx, addSecondGate)
		w.render(ctx, "rendered-worker-2")
		reader.deadlines = nil
		w.settle(ctx)
		Expect(reader.deadlines).To(HaveLen(2))
		Expect(reader.deadlines[0]).To(And(BeTemporally("~", time.Now(), 10*time.Second), Equal(reader.deadlines[1])))
	})

	It("tries again if the API server does not answer, keeps its condition, and reports it after a minute", func(ctx SpecContext) {
		now := time.Now()
		w.reconciler.clock = func() time.Time { return now }
		reader.err = context.DeadlineExceeded
		w.render(ctx, "rendered-worker-2")
		result, err := w.reconcilePool(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(result.RequeueAfter).To(Equal(10 * time.Second))
		Expect(w.told(ctx)).To(BeEmpty())
		Expect(w.gatesCondition(ctx)).To(BeNil())

		By("closing the gate")
		reader.err = nil
		ready(ctx, 2)
		w.settle(ctx)
		Expect(w.gatesCondition(ctx)).To(HaveField("Reason", poolv1.GateClosedReason))
		reader.err = context.DeadlineExceeded
		w.settle(ctx)
		Expect(w.gatesCondition(ctx)).To(HaveField("Reason", poolv1.GateClosedReason))

		By("waiting")
		for range 3 {
			now = now.Add(20 * time.Second)
			w.settle(ctx)
		}
		Expect(w.gatesCondition(ctx)).To(And(HaveField("Reason", poolv1.GateUnreadableReason), HaveField("Message",
			"the gate storage can't be read, so it is closed: the API server has not answered a request for Deployment default/store for more than 1m0s: check the server of this kind")))
		Expect(w.eventsOf("the gate storage can't be read")).To(HaveLen(1))
		Expect(w.told(ctx)).To(BeEmpty())

		By("answering")
		reader.err = nil
		ready(ctx, 3)
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{0}))
		Expect(w.gatesCondition(ctx)).To(HaveField("Reason", poolv1.GatesOpenReason))
		Expect(w.reconciler.unansweredGates.known.Len()).To(BeZero())
	})
})
