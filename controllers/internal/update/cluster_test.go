package update

import (
	"context"
	"errors"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
)

var _ = Describe("The limit for all pools of a Cluster", func() {
	var w *world
	keyOf := func(role string) client.ObjectKey {
		return client.ObjectKey{Namespace: poolKey.Namespace, Name: role}
	}
	poolOf := func(ctx context.Context, role string) *poolv1.MachineConfigPool {
		GinkgoHelper()
		p := &poolv1.MachineConfigPool{}
		Expect(w.management.Get(ctx, keyOf(role), p)).To(Succeed())
		return p
	}
	// away returns the hosts that have a slot and are not done with it, or were told what they do not have yet. A slot
	// stays in the list until its own pool is looked at.
	away := func(ctx context.Context) sets.Set[string] {
		GinkgoHelper()
		hosts := sets.New[string]()
		for _, role := range []string{poolv1.RoleWorker, "infra"} {
			for _, slot := range poolOf(ctx, role).Status.Slots {
				config, node := &bootstrapv1.PoolbootConfig{}, &corev1.Node{}
				Expect(w.management.Get(ctx, client.ObjectKey{Namespace: poolKey.Namespace, Name: slot.Host}, config)).To(Succeed())
				Expect(w.workload.Get(ctx, client.ObjectKey{Name: slot.Host}, node)).To(Succeed())
				if !rollout.HostOf(nil, config, nil, node).IsDoneWith(slot.ID) {
					hosts.Insert(slot.Host)
				}
			}
		}
		for _, i := range w.told(ctx) {
			hosts.Insert(hostName(i))
		}
		return hosts
	}
	limit := func(ctx context.Context, value intstr.IntOrString) {
		GinkgoHelper()
		w.changePool(ctx, func(p *poolv1.MachineConfigPool) { p.Spec.Updates.Cluster.MaxUnavailable = &value })
	}
	// change lets both pools render something else.
	change := func(ctx context.Context) {
		GinkgoHelper()
		w.render(ctx, "rendered-worker-2")
		p := poolOf(ctx, "infra")
		p.Status.Configuration.Name = "rendered-infra-2"
		Expect(w.management.Status().Update(ctx, p)).To(Succeed())
	}
	// completeAll lets hosts complete their updates until none is told anything, and returns the most that were away.
	completeAll := func(ctx context.Context) (most int) {
		GinkgoHelper()
		for range 20 {
			w.settlePools(ctx, "infra")
			told := w.told(ctx)
			most = max(most, len(away(ctx)))
			if len(told) == 0 {
				break
			}
			w.complete(ctx, told[0])
		}
		for i := range 6 {
			Expect(w.config(ctx, i).Status.Boot.ServedConfiguration.Name).To(HaveSuffix("-2"), hostName(i))
		}
		return most
	}

	BeforeEach(func(ctx SpecContext) { // hosts 3 to 5 are in the pool infra
		w = newWorld(6)
		three := ptr.To(intstr.FromInt32(3))
		w.addPool(ctx, "infra", func(p *poolv1.MachineConfigPool) { p.Spec.MaxUnavailable = three })
		for i := 3; i < 6; i++ {
			w.move(ctx, i, "infra")
		}
		w.adopt(ctx)
		w.settlePools(ctx, "infra")
		for i := 3; i < 6; i++ {
			w.complete(ctx, i)
		}
		w.settlePools(ctx, "infra")
		w.changePool(ctx, func(p *poolv1.MachineConfigPool) { p.Spec.MaxUnavailable = three })
		w.settlePools(ctx, "infra")
		Expect(away(ctx)).To(BeEmpty())
	})

	It("is kept at every write, until all hosts are updated", func(ctx SpecContext) {
		limit(ctx, intstr.FromInt32(2))
		change(ctx)
		w.afterWrite = func() { Expect(len(away(ctx))).To(BeNumerically("<=", 2)) }
		Expect(completeAll(ctx)).To(Equal(2))
		Expect(poolOf(ctx, "infra").Status.Conditions).NotTo(ContainElement(HaveField("Reason", poolv1.ClusterLimitReason)))
	})

	It("is more than one pool alone could use, and each pool keeps its own", func(ctx SpecContext) {
		limit(ctx, intstr.FromString("100%"))
		w.changePool(ctx, func(p *poolv1.MachineConfigPool) { p.Spec.MaxUnavailable = nil })
		change(ctx)
		Expect(completeAll(ctx)).To(Equal(4))
	})

	It("is 1 for 0%", func(ctx SpecContext) {
		limit(ctx, intstr.FromString("0%"))
		change(ctx)
		Expect(completeAll(ctx)).To(Equal(1))
	})

	It("counts hosts that are away for another reason, and names them", func(ctx SpecContext) {
		limit(ctx, intstr.FromInt32(1))
		w.changeNode(ctx, 4, func(node *corev1.Node) { setReady(node, false) })
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		Expect(w.told(ctx)).To(BeEmpty())
		Expect(w.gatesCondition(ctx)).To(And(HaveField("Status", metav1.ConditionFalse), HaveField("Reason", poolv1.ClusterLimitReason),
			HaveField("Message", "spec.updates.cluster of MachineConfigPool worker limits all pools, and 1 of 6 hosts can be unavailable at a time, now host-4: wait for these, or correct them")))
		w.changeNode(ctx, 4, func(node *corev1.Node) { setReady(node, true) })
		w.settle(ctx)
		Expect(w.told(ctx)).To(HaveLen(1))
	})

	It("lets only hosts of one failure domain begin, whatever their pools are", func(ctx SpecContext) {
		for i := range 6 {
			w.changeNode(ctx, i, func(node *corev1.Node) { node.Labels["rack"] = []string{"a", "b"}[i%2] })
		}
		w.changePool(ctx, func(p *poolv1.MachineConfigPool) { p.Spec.Updates.Cluster.FailureDomainLabel = "rack" })
		change(ctx)
		w.afterWrite = func() {
			racks := sets.New[string]()
			for name := range away(ctx) {
				node := &corev1.Node{}
				Expect(w.workload.Get(ctx, client.ObjectKey{Name: name}, node)).To(Succeed())
				racks.Insert(node.Labels["rack"])
			}
			Expect(len(racks)).To(BeNumerically("<=", 1))
		}
		Expect(completeAll(ctx)).To(Equal(3))
	})

	DescribeTable("is kept if two managers count at the same time", func(ctx SpecContext, first, second string) {
		limit(ctx, intstr.FromInt32(1))
		change(ctx)
		w.afterWrite = func() { Expect(len(away(ctx))).To(BeNumerically("<=", 1)) }
		raced := false
		slow := w.newManager(func(ctx context.Context, o client.Object, do func() error) error {
			if _, isPool := o.(*poolv1.MachineConfigPool); isPool && !raced {
				raced = true
				_, err := w.reconciler.reconcilePool(ctx, keyOf(second))
				Expect(err).NotTo(HaveOccurred())
				Expect(away(ctx)).To(HaveLen(1))
			}
			return do()
		})
		_, err := slow.reconcilePool(ctx, keyOf(first))
		Expect(err).NotTo(HaveOccurred())
		Expect(raced).To(BeTrue())
		Expect(away(ctx)).To(HaveLen(1))
		Expect(completeAll(ctx)).To(Equal(1))
	},
		Entry("the slow one for the worker pool", poolv1.RoleWorker, "infra"),
		Entry("the slow one for another pool", "infra", poolv1.RoleWorker),
		Entry("both for the same pool", "infra", "infra"),
	)

	It("is kept if a manager crashes between the intent and the slot, and the place is free again later", func(ctx SpecContext) {
		limit(ctx, intstr.FromInt32(1))
		change(ctx)
		writes := 0
		crashing := w.newManager(func(_ context.Context, o client.Object, do func() error) error {
			if writes++; writes > 1 {
				return errors.New("killed")
			}
			return do()
		})
		_, err := crashing.reconcilePool(ctx, keyOf("infra"))
		Expect(err).To(MatchError(ContainSubstring("killed")))
		Expect(poolOf(ctx, poolv1.RoleWorker).Status.SlotIntents).To(HaveLen(1))
		Expect(away(ctx)).To(BeEmpty())
		w.settle(ctx) // the worker pool only
		Expect(away(ctx)).To(BeEmpty(), "the write of the slot could still come")
		w.passed += 76 * time.Second
		w.settle(ctx)
		Expect(away(ctx)).To(HaveLen(1))
		Expect(completeAll(ctx)).To(Equal(1))
	})

	It("costs no request without settings, and none for a pool that begins nothing", func(ctx SpecContext) {
		lists := 0
		w.reconciler.APIReader = interceptor.NewClient(w.management, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			lists++
			return c.List(ctx, list, options...)
		}})
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		Expect(lists).To(BeZero())
		limit(ctx, intstr.FromInt32(3))
		w.settlePools(ctx, "infra")
		Expect(lists).To(BeZero())
	})
})
