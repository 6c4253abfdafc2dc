package update

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
)

var _ = Describe("Staging", func() {
	var w *world
	now := time.Now()
	BeforeEach(func() { now = time.Now() })
	next := func(ctx context.Context, i int) string { return w.node(ctx, i).Annotations[agentv1.NextAnnotation] }
	reports := func(ctx context.Context, i int, staging string) {
		w.changeNode(ctx, i, func(node *corev1.Node) { node.Annotations[agentv1.StagingAnnotation] = staging })
	}
	stored := func(ctx context.Context, i int) string {
		secret := &corev1.Secret{}
		Expect(w.management.Get(ctx, w.reconciler.secrets().Key(w.config(ctx, i).UID), secret)).To(Succeed())
		return assignment.Revision(secret.Data[bootstrapv1.AssignmentKey])
	}
	pool := func(ctx context.Context) poolv1.MachineConfigPoolStatus {
		p := &poolv1.MachineConfigPool{}
		Expect(w.management.Get(ctx, poolKey, p)).To(Succeed())
		return p.Status
	}
	// begin returns hosts whose agents stage, in a pool that renders something else now.
	begin := func(ctx context.Context, hosts int, maxHosts int32) {
		w = newWorld(hosts)
		w.reconciler.clock = func() time.Time { return now }
		w.adopt(ctx)
		for i := range hosts {
			reports(ctx, i, revisionOf(i, "rendered-worker-1"))
		}
		w.changePool(ctx, func(p *poolv1.MachineConfigPool) {
			p.Spec.Updates.Staging.MaxHosts, p.Spec.MaxUnavailable = maxHosts, ptr.To(intstr.FromInt32(2))
			p.Status.Configuration.Name = "rendered-worker-2"
		})
		w.settle(ctx)
	}
	second := func(i int) string { return revisionOf(i, "rendered-worker-2") }

	It("is for as many hosts at a time as the pool says, in the order of the rollout, and begins no update", func(ctx SpecContext) {
		begin(ctx, 4, 3)
		for i := range 3 {
			Expect(next(ctx, i)).To(Equal(second(i)))
			Expect(stored(ctx, i)).To(Equal(second(i)))
		}
		Expect(next(ctx, 3)).To(BeEmpty())
		Expect(pool(ctx).Staging).To(HaveLen(3))
		Expect(w.told(ctx)).To(BeEmpty())
		Expect(pool(ctx).Slots).To(BeEmpty())

		reports(ctx, 2, second(2))
		w.settle(ctx)
		Expect(next(ctx, 3)).To(Equal(second(3)))
		Expect(w.told(ctx)).To(Equal([]int{2}), "the first host that has everything is updated first")
		Expect(next(ctx, 2)).To(BeEmpty())
		for i := range 2 {
			reports(ctx, i, second(i))
		}
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{0, 2}))
		Expect(pool(ctx).StagedHostCount).To(BeEquivalentTo(1), "host 1, which waits")
	})

	It("that fails takes no place: others are updated, and the host is as soon as it has everything", func(ctx SpecContext) {
		begin(ctx, 3, 1)
		reports(ctx, 0, second(0)+" file /etc/f: download from files.example: 404 Not Found")
		w.settle(ctx)
		Expect(next(ctx, 1)).To(Equal(second(1)), "it makes room")
		reports(ctx, 1, second(1))
		w.settle(ctx)
		reports(ctx, 2, second(2))
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{1, 2}))
		Expect(w.updated(ctx, 0)).To(And(HaveField("Reason", bootstrapv1.UpdateFailingReason), HaveField("Message", And(
			ContainSubstring("file /etc/f: download from files.example: 404 Not Found"), ContainSubstring("takes no place of spec.maxUnavailable")))))
		w.complete(ctx, 1)
		reports(ctx, 0, second(0))
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{0, 2}))
	})

	It("that never ends holds no others for ever, and its host keeps what it runs, is reported, and is updated once it has staged", func(ctx SpecContext) {
		begin(ctx, 3, 1)
		w.changePool(ctx, func(p *poolv1.MachineConfigPool) { p.Spec.MaxUnavailable = nil })
		Expect(next(ctx, 1)).To(BeEmpty())
		Expect(w.updated(ctx, 0).Reason).To(Equal(bootstrapv1.UpdateWaitingReason))
		now = now.Add(rollout.StagingPatience)
		w.settle(ctx)
		for i := 1; i < 3; i++ {
			Expect(next(ctx, i)).To(Equal(second(i)))
			reports(ctx, i, second(i))
			w.settle(ctx)
			Expect(w.told(ctx)).To(Equal([]int{i}), "the place of spec.maxUnavailable is theirs, too")
			w.complete(ctx, i)
			w.settle(ctx)
		}
		Expect(w.told(ctx)).To(BeEmpty())
		Expect(w.updated(ctx, 0)).To(And(HaveField("Reason", bootstrapv1.UpdateFailingReason), HaveField("Message", And(
			ContainSubstring("has not said for 60m whether the update to rendered-worker-2 is on the host"), ContainSubstring("takes no place of spec.maxUnavailable")))))
		Expect(w.config(ctx, 0).Status.Boot.ServedConfiguration.Name).To(Equal("rendered-worker-1"))
		reports(ctx, 0, second(0))
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{0}))
	})

	It("gives a host that fails and goes on again and again no more time than another one", func(ctx SpecContext) {
		begin(ctx, 3, 1)
		now = now.Add(rollout.StagingPatience / 2)
		reports(ctx, 0, second(0)+" it can't")
		w.settle(ctx)
		Expect(next(ctx, 1)).To(Equal(second(1)))
		reports(ctx, 0, revisionOf(0, "rendered-worker-1"))
		now = now.Add(rollout.StagingPatience / 2)
		reports(ctx, 1, second(1))
		w.settle(ctx)
		Expect(next(ctx, 2)).To(Equal(second(2)))
	})

	It("is replaced if the pool renders something else, and ends if it returns to what the host has", func(ctx SpecContext) {
		begin(ctx, 1, 1)
		w.render(ctx, "rendered-worker-3")
		w.settle(ctx)
		Expect(next(ctx, 0)).To(Equal(revisionOf(0, "rendered-worker-3")))
		reports(ctx, 0, second(0)) // too late
		w.settle(ctx)
		Expect(w.told(ctx)).To(BeEmpty())
		w.render(ctx, "rendered-worker-1")
		w.settle(ctx)
		Expect(next(ctx, 0)).To(BeEmpty())
		Expect(stored(ctx, 0)).To(Equal(revisionOf(0, "rendered-worker-1")))
		Expect(pool(ctx)).To(And(HaveField("Staging", BeEmpty()), HaveField("StagedHostCount", BeZero())))
	})

	It("of what is not next any more ends also on hosts that wait for their turn again", func(ctx SpecContext) {
		begin(ctx, 3, 3)
		w.changePool(ctx, func(p *poolv1.MachineConfigPool) { p.Spec.Updates.Staging.MaxHosts = 1 })
		w.render(ctx, "rendered-worker-3")
		w.settle(ctx)
		Expect([]string{next(ctx, 0), next(ctx, 1), next(ctx, 2)}).To(ConsistOf(HavePrefix(""), BeEmpty(), BeEmpty()))
		Expect(pool(ctx).Staging).To(HaveLen(1))
	})

	It("needs no other write of the assignment when the host gets its slot", func(ctx SpecContext) {
		begin(ctx, 1, 1)
		secret := &corev1.Secret{}
		Expect(w.management.Get(ctx, w.reconciler.secrets().Key(w.config(ctx, 0).UID), secret)).To(Succeed())
		version := secret.ResourceVersion
		reports(ctx, 0, second(0))
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{0}))
		Expect(w.management.Get(ctx, w.reconciler.secrets().Key(w.config(ctx, 0).UID), secret)).To(Succeed())
		Expect(secret.ResourceVersion).To(Equal(version))
	})

	It("goes on in a closed maintenance window", func(ctx SpecContext) {
		w = newWorld(1)
		w.adopt(ctx)
		reports(ctx, 0, revisionOf(0, "rendered-worker-1"))
		w.changePool(ctx, func(p *poolv1.MachineConfigPool) {
			p.Spec.Updates.MaintenanceWindow = poolv1.MaintenanceWindow{Schedule: time.Now().Add(48 * time.Hour).UTC().Format("4 15 2 1 *"), DurationMinutes: 60}
			p.Status.Configuration.Name = "rendered-worker-2"
		})
		w.settle(ctx)
		Expect(next(ctx, 0)).To(Equal(second(0)))
		reports(ctx, 0, second(0))
		w.settle(ctx)
		Expect(w.told(ctx)).To(BeEmpty())
	})

	for n := 1; n <= 10; n++ {
		for _, late := range []bool{false, true} {
			It(fmt.Sprintf("goes on if the manager crashes: write %d, which takes effect: %t", n, late), func(ctx SpecContext) {
				w = newWorld(2)
				w.adopt(ctx)
				for i := range 2 {
					reports(ctx, i, revisionOf(i, "rendered-worker-1"))
				}
				w.render(ctx, "rendered-worker-2")
				w.afterWrite = w.expectLimit(ctx, 1)
				w.CrashAt, w.Late = w.Writes+n, late
				for range 2 {
					w.settle(ctx)
					for i := range 2 {
						if revision := next(ctx, i); revision != "" {
							Expect(stored(ctx, i)).To(Equal(revision), "what is named can be downloaded")
							reports(ctx, i, revision)
						}
					}
					w.settle(ctx)
					for _, i := range w.told(ctx) {
						w.complete(ctx, i)
					}
				}
				w.settle(ctx)
				for i := range 2 {
					Expect(w.config(ctx, i).Status.Boot.ServedConfiguration.Name).To(Equal("rendered-worker-2"))
				}
			})
		}
	}

	It("is not waited for if the agent is an earlier one", func(ctx SpecContext) {
		w = newWorld(1)
		w.adopt(ctx)
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		Expect(next(ctx, 0)).To(BeEmpty())
		Expect(w.told(ctx)).To(Equal([]int{0}))
	})
})

var _ = Describe("Staging", func() {
	It("costs each host one write of its Node, and none of its record", func(ctx SpecContext) {
		const hosts = 10
		cost := func(stages bool) (nodes, records, secrets, pools int) {
			w := newWorld(hosts)
			w.adopt(ctx)
			for i := range hosts {
				if stages {
					w.changeNode(ctx, i, func(node *corev1.Node) {
						node.Annotations[agentv1.StagingAnnotation] = revisionOf(i, "rendered-worker-1")
					})
				}
			}
			w.settle(ctx)
			count := map[string]int{}
			w.reconciler = w.newManager(func(ctx context.Context, object client.Object, write func() error) error {
				count[fmt.Sprintf("%T", object)]++
				return w.Write(ctx, object, write)
			})
			w.render(ctx, "rendered-worker-2")
			for range hosts {
				w.settle(ctx)
				for i := range hosts {
					if next := w.node(ctx, i).Annotations[agentv1.NextAnnotation]; next != "" {
						w.changeNode(ctx, i, func(node *corev1.Node) { node.Annotations[agentv1.StagingAnnotation] = next })
					}
				}
				w.settle(ctx)
				for _, i := range w.told(ctx) {
					w.complete(ctx, i)
				}
			}
			w.settle(ctx)
			for i := range hosts {
				Expect(w.updated(ctx, i).Reason).To(Equal(bootstrapv1.UpdateDoneReason))
			}
			return count["*v1.Node"], count["*v1alpha1.PoolbootConfig"], count["*v1.Secret"] + count["<nil>"], count["*v1alpha1.MachineConfigPool"]
		}
		nodes, records, secrets, pools := cost(false)
		stagedNodes, stagedRecords, stagedSecrets, stagedPools := cost(true)
		GinkgoWriter.Println(nodes, records, secrets, pools, stagedNodes, stagedRecords, stagedSecrets, stagedPools)
		Expect(stagedNodes).To(Equal(nodes + hosts))
		Expect(stagedSecrets).To(Equal(secrets))
		Expect(stagedRecords).To(BeNumerically("<=", records+1), "the first host waits, too")
		Expect(stagedPools).To(BeNumerically("<=", pools+3))
	})
})
