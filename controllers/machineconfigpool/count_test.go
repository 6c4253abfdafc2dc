package machineconfigpool

import (
	"fmt"
	"math/rand/v2"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
)

// simulated is a Machine as the reference counts it.
type simulated struct {
	isInPool, hasJoined, runsTarget, isReady, needsPerson bool
}

// newConfig returns the PoolbootConfig of a simulated Machine.
func (m simulated) newConfig(name, target string) *bootstrapv1.PoolbootConfig {
	role, configuration := "worker", "rendered-infra-0"
	if m.isInPool {
		role = "infra"
	}
	if m.runsTarget {
		configuration = target
	}
	c := machine(name, role, configuration, m.hasJoined && m.isReady)
	if m.hasJoined {
		joined(c)
	}
	switch {
	case m.needsPerson && m.isReady:
		withProblem(c, bootstrapv1.UpdatedCondition, bootstrapv1.UpdateDegradedReason, "correct it")
	case m.needsPerson:
		withProblem(c, bootstrapv1.NodeInPoolCondition, bootstrapv1.NodeOutsidePoolReason, "put labels on it")
	}
	return c
}

// counted are the counts of a pool in the order of the API: all, updated, ready, unavailable and degraded Machines.
type counted [5]int32

// countAsReference counts with one loop for each count, in the words of the reference: a Machine is updated if it runs
// the config that the pool rendered last, ready if it is updated and its Node is Ready, unavailable if its Node is not
// there or not Ready, and degraded if a person must act.
func countAsReference(machines []simulated) (n counted) {
	of := func(counts func(simulated) bool) (number int32) {
		for _, m := range machines {
			if m.isInPool && counts(m) {
				number++
			}
		}
		return number
	}
	isUpdated := func(m simulated) bool { return m.hasJoined && m.runsTarget }
	return counted{
		of(func(simulated) bool { return true }),
		of(isUpdated),
		of(func(m simulated) bool { return isUpdated(m) && m.isReady }),
		of(func(m simulated) bool { return !m.hasJoined || !m.isReady }),
		of(func(m simulated) bool { return m.needsPerson }),
	}
}

var _ = Describe("The counts of a pool with any Machines", func() {
	It("are those of a second implementation of the reference's rules", func() {
		seed := uint64(GinkgoRandomSeed())
		r := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // not for secrets
		for round := range 60 {
			s := newFixture(cluster(), newPool("worker", "worker", 2*time.Hour), newPool("infra", "infra", time.Hour), config("50-infra", "infra", "0"))
			s.reconcile("infra")
			target := s.pool("infra").Status.Configuration.Name
			machines := make([]simulated, r.IntN(12))
			for i := range machines {
				is := func() bool { return r.IntN(2) == 0 }
				m := simulated{isInPool: r.IntN(4) > 0, hasJoined: is(), runsTarget: is(), isReady: is(), needsPerson: r.IntN(3) == 0}
				machines[i] = m
				Expect(s.Create(ctx(), m.newConfig(fmt.Sprintf("host-%d", i), target))).To(Succeed())
			}
			status := s.reconcile("infra").Status
			Expect(counted{*status.HostCount, *status.UpdatedHostCount, *status.ReadyHostCount, *status.UnavailableHostCount, *status.DegradedHostCount}).
				To(Equal(countAsReference(machines)), "round %d of seed %d: %+v", round, seed, machines)
		}
	})
})
