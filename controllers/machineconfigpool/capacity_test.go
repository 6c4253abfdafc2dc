package machineconfigpool

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
)

var _ = Describe("The capacity of a pool", func() {
	var s *scope
	now := time.Now()
	// after sets the capacity with hosts that have joined, and all Machines, and returns it.
	after := func(passed time.Duration, joined, total int32) int32 {
		s.again = 0
		s.setCapacity(counts{joined: joined, total: total}, now.Add(passed))
		return s.pool.Status.CapacityHostCount
	}
	BeforeEach(func() {
		s = &scope{pool: newPool("infra", "infra", 0), cache: &renderCache{}}
		Expect(after(0, 2, 2)).To(BeEquivalentTo(2))
	})

	It("stays while a host is replaced, also before Cluster API has created the replacement, until that has joined", func() {
		Expect(after(0, 1, 1)).To(BeEquivalentTo(2), "the old Machine is gone")
		Expect(s.again).To(Equal(replacementDelay))
		Expect(after(30*time.Second, 1, 2)).To(BeEquivalentTo(2), "the new Machine exists")
		Expect(after(24*time.Hour, 1, 2)).To(BeEquivalentTo(2), "the new host boots")
		Expect(after(25*time.Hour, 1, 1)).To(BeEquivalentTo(2), "the next attempt to replace it begins")
		Expect(after(25*time.Hour+time.Second, 2, 2)).To(BeEquivalentTo(2))
	})

	It("shrinks a minute after a host is gone that is not replaced", func() {
		Expect(after(0, 1, 1)).To(BeEquivalentTo(2))
		Expect(after(59*time.Second, 1, 1)).To(BeEquivalentTo(2))
		Expect(s.again).To(Equal(time.Second))
		Expect(after(time.Minute, 1, 1)).To(BeEquivalentTo(1))
		Expect(s.again).To(BeZero())
	})

	It("includes a host that is gone for a minute, and a rollout that waits for it says so", func() {
		Expect(counts{notReplaced: 1}.blockedMessage()).To(Equal("no host begins its update while these are unavailable (1 that are gone and whose replacements have not joined): " +
			"the rollout goes on when these have joined, or by itself after a minute if nothing replaces those that are gone; "))
		Expect(counts{notReplaced: 1, notInPool: []string{"m1"}}.blockedMessage()).To(ContainSubstring("correct these hosts"))
	})

	It("does not include hosts that boot for the first time, or in addition to the others", func() {
		Expect(after(0, 2, 12)).To(BeEquivalentTo(2))
		Expect(after(time.Hour, 3, 12)).To(BeEquivalentTo(3), "the first of them has joined")
		s.pool.Status.CapacityHostCount = 0
		Expect(after(2*time.Hour, 0, 12)).To(BeZero())
	})

	DescribeTable("does not include a host from when it is", func(leave func(*bootstrapv1.PoolbootConfig)) {
		objects := []client.Object{cluster(), newPool("worker", "worker", time.Hour), newPool("infra", "infra", 0)}
		for _, name := range []string{"a", "b"} {
			c := joined(machine(name, "infra", "", true))
			c.Status.NodeRef = bootstrapv1.NodeReference{Name: "node-" + name, UID: "uid-" + name}
			objects = append(objects, c)
		}
		f := newFixture(objects...)
		Expect(f.reconcile("infra").Status.CapacityHostCount).To(BeEquivalentTo(2))

		moved := objects[len(objects)-1].(*bootstrapv1.PoolbootConfig)
		Expect(f.Get(ctx(), client.ObjectKeyFromObject(moved), moved)).To(Succeed())
		leave(moved)
		status := moved.Status.DeepCopy()
		Expect(f.Update(ctx(), moved)).To(Succeed())
		moved.Status = *status
		Expect(f.Status().Update(ctx(), moved)).To(Succeed())
		f.crash = func(verb string) bool { return verb == "patch status" }
		_, err := f.reconciler.Reconcile(ctx(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: "infra"}})
		Expect(err).To(MatchError(errCrash), "it is tried again")
		f.crash = func(string) bool { return false }
		Expect(f.reconcile("infra").Status.CapacityHostCount).To(BeEquivalentTo(1))
	},
		Entry("in another pool", func(c *bootstrapv1.PoolbootConfig) { c.Status.PoolRole = "worker" }),
		Entry("again as it was found", func(c *bootstrapv1.PoolbootConfig) {
			c.Spec.Host = bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeNode, NodeName: c.Name, Adoption: bootstrapv1.AdoptionPreview}
			c.Status.Update.Desired.Name = agentv1.AsFoundConfig
		}),
	)
})
