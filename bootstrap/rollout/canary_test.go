package rollout_test

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
)

var _ = Describe("The canaries of a pool", func() {
	now := timeOf("2026-11-21T12:00:00Z")
	byNumber := func(n int32) *poolv1.CanarySettings {
		return &poolv1.CanarySettings{Hosts: n, SoakSeconds: ptr.To[int32](600)}
	}
	byLabel := &poolv1.CanarySettings{NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"canary": ""}}, SoakSeconds: ptr.To[int32](600)}
	// hosts returns hosts that wait for their update, in order.
	hosts := func(changes ...func(*rollout.Candidate)) []rollout.Candidate {
		list := make([]rollout.Candidate, 5)
		for i := range list {
			list[i] = rollout.Candidate{Name: fmt.Sprint("h", i), Desired: "old", Target: "new", CreationTime: now.Add(time.Duration(i-100) * time.Hour)}
			if i < len(changes) && changes[i] != nil {
				changes[i](&list[i])
			}
		}
		return list
	}
	told := func(h *rollout.Candidate) {
		h.Desired, h.HasSlot, h.Progress, h.HasBegun = "new", true, rollout.InUpdate, true
	}
	failed := func(h *rollout.Candidate) { h.Desired, h.Progress = "new", rollout.Failed }
	failedBefore := func(h *rollout.Candidate) { h.Progress = rollout.Failed }
	done := func(ago time.Duration) func(*rollout.Candidate) {
		return func(h *rollout.Candidate) { h.Desired, h.CompletedTime = "new", now.Add(-ago) }
	}
	notReady := func(h *rollout.Candidate) { h.Desired, h.IsUnavailable = "new", true }
	canary := func(changes ...func(*rollout.Candidate)) func(*rollout.Candidate) {
		return func(h *rollout.Candidate) {
			h.IsCanary = true
			for _, change := range changes {
				change(h)
			}
		}
	}
	names := func(names ...string) []string { return names }

	DescribeTable("are the only ones to begin until they are done", func(settings *poolv1.CanarySettings, list []rollout.Candidate, chosen []string, why string) {
		next, closed := rollout.NextAfter(settings, list, 4, now)
		Expect(next).To(Equal(chosen))
		if why == "" {
			Expect(closed).To(BeNil())
			return
		}
		Expect(closed).To(Equal(&rollout.ClosedGate{Reason: poolv1.CanaryPendingReason, Why: "others wait for the canaries of the pool (spec.updates.canary), and " + why}))
	},
		Entry("the first ones", byNumber(2), hosts(), names("h0", "h1"), "0 of 2 have completed their update: wait for the next"),
		Entry("one more if one has begun", byNumber(2), hosts(nil, told), names("h0"), "0 of 2 have completed their update: see what these do: h1"),
		Entry("no more if all have begun", byNumber(2), hosts(told, told), nil, "0 of 2 have completed their update: see what these do: h0, h1"),
		Entry("no other in place of one that failed", byNumber(2), hosts(done(time.Hour), failed), nil, "1 of 2 have completed their update: see what these do: h1"),
		Entry("no other in place of one that is not Ready", byNumber(1), hosts(notReady), nil, "0 of 1 have completed their update: see what these do: h0"),
		Entry("first one that failed before, which can be corrected", byNumber(1), hosts(nil, nil, failedBefore), names("h2"), "0 of 1 have completed their update: wait for the next"),
		Entry("not until all have soaked", byNumber(2), hosts(done(time.Hour), done(599*time.Second)), nil, "they must run it until 2026-11-21T12:00:01Z (soakSeconds): wait, or set fewer seconds"),
		Entry("and then the others", byNumber(2), hosts(done(time.Hour), done(600*time.Second)), names("h2", "h3", "h4"), ""),
		Entry("also if one that came later soaks", byNumber(2), hosts(done(time.Hour), done(time.Hour), done(0)), names("h3", "h4"), ""),
		Entry("all of a pool that has fewer", byNumber(9), hosts(), names("h0", "h1", "h2", "h3"), ""),
		Entry("those with the label", byLabel, hosts(nil, canary(), nil, canary()), names("h1", "h3"), "0 of 2 have completed their update: see what these do: h1, h3"),
		Entry("the rest of those with the label", byLabel, hosts(nil, canary(done(time.Hour)), nil, canary()), names("h3"), "1 of 2 have completed their update: see what these do: h3"),
		Entry("none without the label while the last one soaks", byLabel, hosts(nil, canary(done(time.Hour)), nil, canary(done(time.Second))), nil,
			"they must run it until 2026-11-21T12:09:59Z (soakSeconds): wait, or set fewer seconds"),
		Entry("all once those with the label are done", byLabel, hosts(nil, canary(done(time.Hour))), names("h0", "h2", "h3", "h4"), ""),
		Entry("none while no Node has the label", byLabel, hosts(), nil, "nodeSelector selects no Node of the pool: label one, or correct nodeSelector"),
		Entry("all without canaries", &poolv1.CanarySettings{}, hosts(), names("h0", "h1", "h2", "h3"), ""),
	)

	It("hold back no host that is in an update and gets a newer target, or that returns", func() {
		begun := func(h *rollout.Candidate) { h.Desired, h.Progress, h.HasBegun = "between", rollout.InUpdate, true }
		for _, settings := range []*poolv1.CanarySettings{byNumber(1), byLabel} {
			next, _ := rollout.NextAfter(settings, hosts(canary(), nil, begun), 4, now)
			Expect(next).To(ContainElement("h2"))
			Expect(next).NotTo(ContainElement("h1"))
		}
	})

	It("are under the limits of the pool", func() {
		next, _ := rollout.NextAfter(byNumber(3), hosts(), 1, now)
		Expect(next).To(Equal(names("h0")))
	})
})
