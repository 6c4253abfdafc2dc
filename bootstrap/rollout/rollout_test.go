package rollout_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
)

func TestRollout(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Rollout")
}

var start = time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)

// waiting returns a host that waits for the revision "new". Its age follows its name.
func waiting(name string) rollout.Candidate {
	return rollout.Candidate{Name: name, Desired: "old", Target: "new", CreationTime: start.Add(time.Duration(name[0]) * time.Second)}
}

func in(zone string, h rollout.Candidate) rollout.Candidate {
	h.Zone = zone
	return h
}

func inDomain(domain string, h rollout.Candidate) rollout.Candidate {
	h.Domain = domain
	return h
}

func unavailable(h rollout.Candidate) rollout.Candidate {
	h.IsUnavailable = true
	return h
}

func excluded(h rollout.Candidate) rollout.Candidate {
	h.IsExcluded = true
	return h
}

// told returns the host after it was told to have a revision.
func told(revision string, progress rollout.Progress, h rollout.Candidate) rollout.Candidate {
	h.Desired, h.Progress = revision, progress
	return h
}

var _ = DescribeTable("The next hosts are", func(maxUnavailable int, hosts []rollout.Candidate, expected ...string) {
	slices.Reverse(hosts)
	Expect(rollout.Next(hosts, maxUnavailable)).To(HaveExactElements(expected))
},
	Entry("the oldest", 1, []rollout.Candidate{waiting("a"), waiting("b")}, "a"),
	Entry("those of the first zone, and those without a zone last", 3,
		[]rollout.Candidate{waiting("a"), in("zone-2", waiting("b")), in("zone-1", waiting("c")), in("zone-1", waiting("d"))}, "c", "d", "b"),
	Entry("all, if enough may be unavailable", 2, []rollout.Candidate{waiting("a"), waiting("b")}, "a", "b"),
	Entry("fewer by those in an update", 2, []rollout.Candidate{told("new", rollout.InUpdate, waiting("a")), waiting("b"), waiting("c")}, "b"),
	Entry("fewer by those that are unavailable", 2, []rollout.Candidate{unavailable(waiting("a")), waiting("b"), waiting("c")}, "b"),
	Entry("fewer by those that are unavailable after their update", 1,
		[]rollout.Candidate{unavailable(told("new", rollout.Done, waiting("a"))), waiting("b")}),
	Entry("fewer by those whose update failed, so a bad config stops there", 1,
		[]rollout.Candidate{told("new", rollout.Failed, waiting("a")), waiting("b")}),
	Entry("none if more are unavailable than allowed", 1, []rollout.Candidate{unavailable(waiting("a")), unavailable(waiting("b")), waiting("c")}),
	Entry("none that have the revision already", 2, []rollout.Candidate{told("new", rollout.Done, waiting("a")), waiting("b")}, "b"),
	Entry("none that are excluded", 2, []rollout.Candidate{excluded(waiting("a")), waiting("b")}, "b"),
	Entry("also those in an update to an older revision, which count already", 1,
		[]rollout.Candidate{told("bad", rollout.InUpdate, waiting("a")), waiting("b")}, "a"),
	Entry("also an unavailable one in an update to an older revision", 1,
		[]rollout.Candidate{unavailable(told("bad", rollout.InUpdate, waiting("a"))), waiting("b")}, "a"),
	Entry("also those that report nothing, if they are the only ones that count", 1,
		[]rollout.Candidate{told("bad", rollout.Unknown, waiting("a")), waiting("b")}, "a"),
	Entry("none of those that report nothing if there are more than allowed, as after all Nodes registered again", 1,
		[]rollout.Candidate{told("old", rollout.Unknown, waiting("a")), told("old", rollout.Unknown, waiting("b"))}),
	Entry("first those whose update to an older revision failed", 1,
		[]rollout.Candidate{waiting("a"), told("bad", rollout.Failed, waiting("b"))}, "b"),
	Entry("those of one failure domain, also if more are allowed", 3,
		[]rollout.Candidate{inDomain("rack-2", waiting("a")), inDomain("rack-1", waiting("b")), inDomain("rack-1", waiting("c"))}, "b", "c"),
	Entry("those of the failure domain in which hosts are updated", 3,
		[]rollout.Candidate{inDomain("rack-2", told("new", rollout.InUpdate, waiting("a"))), inDomain("rack-1", waiting("b")), inDomain("rack-2", waiting("c"))}, "c"),
	Entry("none of another failure domain than that of an unavailable host", 3,
		[]rollout.Candidate{inDomain("rack-2", unavailable(waiting("a"))), inDomain("rack-1", waiting("b"))}),
	Entry("none of another failure domain than that of a host whose update failed", 3,
		[]rollout.Candidate{inDomain("rack-2", told("new", rollout.Failed, waiting("a"))), inDomain("rack-1", waiting("b"))}),
	Entry("none while hosts of two failure domains are unavailable", 4,
		[]rollout.Candidate{inDomain("rack-2", unavailable(waiting("a"))), inDomain("rack-1", unavailable(waiting("b"))), inDomain("rack-1", waiting("c"))}),
	Entry("those without a failure domain last, and on their own", 3,
		[]rollout.Candidate{waiting("a"), inDomain("rack-1", waiting("b")), waiting("c")}, "b"),
	Entry("those of one failure domain whose update to an older revision failed", 2,
		[]rollout.Candidate{inDomain("rack-2", told("bad", rollout.Failed, waiting("a"))), inDomain("rack-1", told("bad", rollout.Failed, waiting("b")))}, "b"),
	Entry("not all of those whose update failed if maxUnavailable is lower now", 1,
		[]rollout.Candidate{told("bad", rollout.Failed, waiting("a")), told("bad", rollout.Failed, waiting("b"))}, "a"),
)

var _ = DescribeTable("maxUnavailable is", func(value *intstr.IntOrString, hosts, expected int) {
	Expect(rollout.MaxUnavailable(value, hosts)).To(Equal(expected))
},
	Entry("1 by default", nil, 10, 1),
	Entry("a number", ptr.To(intstr.FromInt32(3)), 10, 3),
	Entry("a percentage, rounded down", ptr.To(intstr.FromString("33%")), 10, 3),
	Entry("1 if the percentage is less than a host", ptr.To(intstr.FromString("10%")), 9, 1),
	Entry("1 for 0%", ptr.To(intstr.FromString("0%")), 100, 1),
	Entry("all hosts for 100%", ptr.To(intstr.FromString("100%")), 7, 7),
)

var _ = DescribeTable("A value that is neither a number nor a percentage is refused", func(value intstr.IntOrString, message string) {
	_, err := rollout.MaxUnavailable(&value, 3)
	Expect(err).To(MatchError("maxUnavailable: is " + message + `, or set a percentage such as "10%"`))
},
	Entry("a word", intstr.FromString("some"), `"some": set a number of at least 1`),
	Entry("a number in quotes", intstr.FromString("2"), `"2": remove the quotes`),
	Entry("a negative number in quotes", intstr.FromString("-2"), `"-2": set a number of at least 1`),
	Entry("a negative number", intstr.FromInt32(-1), `"-1": set a number of at least 1`),
	Entry("a negative percentage", intstr.FromString("-10%"), `"-10%": set a number of at least 1`),
)

// reference is a second implementation of Next: it chooses hosts one by one, each time the best one that the rules
// allow.
func reference(hosts []rollout.Candidate, maxUnavailable int) map[string]bool {
	hosts, chosen := slices.Clone(hosts), map[string]bool{}
	isTold := map[string]bool{} // these are unavailable from now on
	tell := func(h *rollout.Candidate) { h.Desired, isTold[h.Name], chosen[h.Name] = h.Target, true, true }
	isActive := func(h rollout.Candidate) bool {
		return h.IsUnavailable || isTold[h.Name] || h.Progress == rollout.InUpdate || h.Progress == rollout.Unknown
	}
	active := func() (count int) {
		for _, h := range hosts {
			if isActive(h) {
				count++
			}
		}
		return count
	}
	// areIn reports whether all hosts that count are in a domain.
	areIn := func(domain string, counts func(rollout.Candidate) bool) bool {
		return !slices.ContainsFunc(hosts, func(h rollout.Candidate) bool { return counts(h) && h.Domain != domain })
	}
	best := func(allowed func(rollout.Candidate) bool) *rollout.Candidate {
		var found *rollout.Candidate
		rank := func(h *rollout.Candidate) string {
			return fmt.Sprintf("%s/%s/%020d/%s", cmp.Or(h.Domain, "~"), cmp.Or(h.Zone, "~"), h.CreationTime.UnixNano(), h.Name)
		}
		for i := range hosts {
			h := &hosts[i]
			if h.Desired != h.Target && !h.IsExcluded && allowed(*h) && (found == nil || rank(h) < rank(found)) {
				found = h
			}
		}
		return found
	}
	for _, rule := range []struct {
		allowed func(rollout.Candidate) bool
		has     func() bool
	}{
		{func(h rollout.Candidate) bool { return h.Progress == rollout.InUpdate }, func() bool { return true }},
		{func(h rollout.Candidate) bool { return h.Progress == rollout.Unknown }, func() bool { return active() <= maxUnavailable }},
		{func(h rollout.Candidate) bool {
			return !h.IsUnavailable && h.Progress == rollout.Failed && areIn(h.Domain, isActive)
		}, func() bool { return active() < maxUnavailable }},
		{func(h rollout.Candidate) bool {
			return !h.IsUnavailable && h.Progress == rollout.Done && areIn(h.Domain, func(o rollout.Candidate) bool { return isActive(o) || o.Progress == rollout.Failed })
		}, func() bool {
			counted := 0
			for _, h := range hosts {
				if isActive(h) || h.Progress == rollout.Failed {
					counted++
				}
			}
			return counted < maxUnavailable
		}},
	} {
		for h := best(rule.allowed); h != nil && rule.has(); h = best(rule.allowed) {
			tell(h)
		}
	}
	return chosen
}

// random returns a pool in any state.
func random(r *rand.Rand) []rollout.Candidate {
	hosts := make([]rollout.Candidate, r.IntN(12))
	revisions, zones := []string{"", "1", "2", "3"}, []string{"", "a", "b"}
	domains := zones[:1+r.IntN(3)]
	for i := range hosts {
		h := &hosts[i]
		*h = rollout.Candidate{
			Name: fmt.Sprintf("host-%02d", r.IntN(1000)*100+i), Zone: zones[r.IntN(3)], Domain: domains[r.IntN(len(domains))],
			CreationTime: start.Add(time.Duration(r.IntN(3)) * time.Hour),
			Desired:      revisions[r.IntN(4)], Target: revisions[1+r.IntN(3)],
			Progress: rollout.Progress(r.IntN(4)), IsUnavailable: r.IntN(4) == 0, IsExcluded: r.IntN(5) == 0,
		}
	}
	return hosts
}

var _ = Describe("In any state of a pool", func() {
	// forEach calls a function with many pools. A failure names the seed.
	forEach := func(check func(r *rand.Rand, hosts []rollout.Candidate, maxUnavailable int)) {
		seed := uint64(GinkgoRandomSeed())
		r := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // not for secrets
		for range 5000 {
			check(r, random(r), 1+r.IntN(5))
		}
	}

	It("the decision is that of an implementation that tells one host at a time", func() {
		forEach(func(_ *rand.Rand, hosts []rollout.Candidate, maxUnavailable int) {
			chosen := map[string]bool{}
			for _, name := range rollout.Next(hosts, maxUnavailable) {
				chosen[name] = true
			}
			Expect(chosen).To(Equal(reference(hosts, maxUnavailable)), "%d of %+v", maxUnavailable, hosts)
		})
	})

	It("no decision makes more hosts unavailable than allowed, or those of two failure domains, whatever the hosts report next", func() {
		forEach(func(r *rand.Rand, hosts []rollout.Candidate, maxUnavailable int) {
			for i := range hosts { // a healthy pool at the start
				hosts[i].Desired, hosts[i].Progress, hosts[i].IsUnavailable = "old", rollout.Done, false
			}
			for range 30 {
				for _, name := range rollout.Next(hosts, maxUnavailable) {
					i := slices.IndexFunc(hosts, func(h rollout.Candidate) bool { return h.Name == name })
					hosts[i].Desired, hosts[i].Progress = hosts[i].Target, rollout.Unknown
				}
				Expect(rollout.Count(hosts)).To(BeNumerically("<=", maxUnavailable), "%+v", hosts)
				counted := map[string]bool{}
				for _, h := range hosts {
					if h.Progress != rollout.Done {
						counted[h.Domain] = true
					}
				}
				Expect(len(counted)).To(BeNumerically("<=", 1), "hosts of several failure domains: %+v", hosts)
				for i := range hosts {
					if h := &hosts[i]; (h.Progress == rollout.InUpdate || h.Progress == rollout.Unknown) && r.IntN(2) == 0 {
						h.Progress = rollout.Progress(r.IntN(4))
					}
					if r.IntN(10) == 0 {
						hosts[i].Target = fmt.Sprint(r.IntN(4))
					}
				}
			}
		})
	})
})
