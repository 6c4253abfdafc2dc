package rollout_test

import (
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
)

// newException returns an exception for the Node a.
func newException(action poolv1.UpdateExceptionAction, until string) poolv1.UpdateException {
	return poolv1.UpdateException{Node: "a", Action: action, Until: &metav1.Time{Time: timeOf(until)}, Reason: "waits for a disk"}
}

var _ = Describe("An exception for one host", func() {
	const inWindow, closed = "2026-11-21T22:30:00Z", "2026-11-20T12:00:00Z"
	const (
		windowWhy = "the maintenance window of MachineConfigPool infra opens at 2026-11-21T22:00:00Z"
		skipWhy   = "it is skipped until 2026-11-24T06:00:00Z: waits for a disk (spec.updates.exceptions of the pool)"
		pauseWhy  = "the pool is paused: run kubectl poolboot rollout resume infra to hand out what it renders. Until then, its hosts keep what they run"
	)
	paused := func(p *poolv1.MachineConfigPool) { p.Spec.Paused = ptr.To(true) }
	unapproved := func(p *poolv1.MachineConfigPool) { p.Spec.Updates.Approval = poolv1.ApprovalManual }
	unreadable := func(p *poolv1.MachineConfigPool) { p.Spec.Updates.MaintenanceWindow.Schedule = "x" }
	// newPool returns a pool with a window and exceptions for the Node a until a Tuesday, and for two others.
	newPool := func(action poolv1.UpdateExceptionAction, changes ...func(*poolv1.MachineConfigPool)) *poolv1.MachineConfigPool {
		p := &poolv1.MachineConfigPool{}
		p.Name, p.Status.Configuration.Name = "infra", "rendered-infra-2"
		p.Spec.Updates.MaintenanceWindow = poolv1.MaintenanceWindow{Schedule: "0 22 * * 6", DurationMinutes: 60}
		other := newException(poolv1.ExceptionSkip, "2026-11-30T00:00:00Z")
		other.Node = "other"
		p.Spec.Updates.Exceptions = []poolv1.UpdateException{other, newException(action, "2026-11-24T06:00:00Z")}
		for _, change := range changes {
			change(p)
		}
		return p
	}

	DescribeTable("holds it, or lets it begin", func(p *poolv1.MachineConfigPool, now, why string, isSkipped bool, wait time.Duration) {
		of := rollout.HoldOf(p, timeOf(now)).Of("a")
		Expect(of.Why).To(Equal(why))
		Expect(of.IsSkipped).To(Equal(isSkipped))
		Expect(of.Wait).To(Equal(wait))
	},
		Entry("skipped in the window", newPool(poolv1.ExceptionSkip), inWindow, skipWhy, true, rollout.MaxWait),
		Entry("skipped while the window is closed", newPool(poolv1.ExceptionSkip), closed, skipWhy+". After that, "+windowWhy, true, rollout.MaxWait),
		Entry("skipped in a paused pool", newPool(poolv1.ExceptionSkip, paused), inWindow, skipWhy+". After that, "+pauseWhy, true, rollout.MaxWait),
		Entry("skipped for a minute more", newPool(poolv1.ExceptionSkip), "2026-11-24T05:59:00Z", skipWhy+". After that, the maintenance window of MachineConfigPool infra opens at 2026-11-28T22:00:00Z", true, time.Minute),
		Entry("skipped to this second, and then held by the window as any other", newPool(poolv1.ExceptionSkip), "2026-11-24T06:00:00Z",
			"the maintenance window of MachineConfigPool infra opens at 2026-11-28T22:00:00Z", false, rollout.MaxWait),
		Entry("free of the window", newPool(poolv1.ExceptionIgnoreWindow), closed, "", false, rollout.MaxWait),
		Entry("free of a window that can't be read", newPool(poolv1.ExceptionIgnoreWindow, unreadable), closed, "", false, rollout.MaxWait),
		Entry("free of the window for a minute more", newPool(poolv1.ExceptionIgnoreWindow), "2026-11-24T05:59:00Z", "", false, time.Minute),
		Entry("and held again after that", newPool(poolv1.ExceptionIgnoreWindow), "2026-11-24T06:00:00Z",
			"the maintenance window of MachineConfigPool infra opens at 2026-11-28T22:00:00Z", false, rollout.MaxWait),
		Entry("free of the window, and held by a pause", newPool(poolv1.ExceptionIgnoreWindow, paused), closed, pauseWhy, false, rollout.MaxWait),
		Entry("free of the window, and held by a missing approval", newPool(poolv1.ExceptionIgnoreWindow, unapproved), closed,
			"rendered-infra-2 is not approved (spec.updates.approval of MachineConfigPool infra is Manual): check it, and run kubectl poolboot rollout approve infra --configuration rendered-infra-2", false, rollout.MaxWait),
		Entry("that is stored without an end, which expired long ago", newPool(poolv1.ExceptionSkip, func(p *poolv1.MachineConfigPool) { p.Spec.Updates.Exceptions[1].Until = nil }), inWindow, "", false, time.Duration(0)),
		Entry("of an action that is not known, which changes nothing", newPool("Other"), closed, windowWhy, false, rollout.MaxWait),
	)

	It("holds no other host, and does not free it", func() {
		for _, action := range []poolv1.UpdateExceptionAction{poolv1.ExceptionSkip, poolv1.ExceptionIgnoreWindow} {
			Expect(rollout.HoldOf(newPool(action), timeOf(closed)).Of("b")).To(And(HaveField("Why", windowWhy), HaveField("IsSkipped", false)))
			Expect(rollout.HoldOf(newPool(action), timeOf(inWindow)).Of("b")).To(BeZero())
		}
	})

	It("ends as its time says if the clock of the manager jumps over that, and counts again if it jumps back", func() {
		p := newPool(poolv1.ExceptionSkip)
		p.Spec.Updates.MaintenanceWindow = poolv1.MaintenanceWindow{}
		p.Spec.Updates.Exceptions = p.Spec.Updates.Exceptions[1:]
		at := func(now string) rollout.Hold { return rollout.HoldOf(p, timeOf(now)) }
		Expect(at("2026-11-24T05:59:59Z")).To(And(HaveField("Why", ""), HaveField("Wait", time.Second)), "the pool is looked at again then")
		Expect(at("2027-01-01T00:00:00Z").Of("a")).To(BeZero())
		Expect(at("2027-01-01T00:00:00Z").Wait).To(BeZero())
		Expect(at("2026-11-01T00:00:00Z").Of("a").IsSkipped).To(BeTrue())
		Expect(at("2026-11-01T00:00:00Z").Wait).To(Equal(rollout.MaxWait), "the clock can be corrected")
	})

	It("lets a clock that jumps over a window open it for the host that ignores it, and for no other", func() {
		p := newPool(poolv1.ExceptionIgnoreWindow)
		at := func(node, now string) string { return rollout.HoldOf(p, timeOf(now)).Of(node).Why }
		for _, now := range []string{"2026-11-21T21:59:00Z", "2026-11-21T23:01:00Z"} {
			Expect(at("a", now)).To(BeEmpty())
			Expect(at("b", now)).NotTo(BeEmpty())
		}
		Expect(at("b", "2026-11-21T22:30:00Z")).To(BeEmpty(), "back in the window")
	})

	It("shows its reason in one line without what controls a terminal", func() {
		e := newException(poolv1.ExceptionIgnoreWindow, "2026-11-24T06:00:00Z")
		e.Reason = "a\x1b[31m\nb \u202e" + strings.Repeat("x", 4096)
		Expect(rollout.DescribeException(&e)).To(And(HavePrefix("ignores the maintenance window until 2026-11-24T06:00:00Z: a [31m b x"), Not(ContainSubstring("\u202e"))))
		Expect(len(rollout.DescribeException(&e))).To(BeNumerically("<", 1200))
	})

	It("is named if it has expired, or if its Node is that of no host", func() {
		p := newPool(poolv1.ExceptionSkip)
		isA := func(node string) bool { return node == "a" }
		Expect(rollout.ExpiredExceptions(p, timeOf("2026-11-25T00:00:00Z"))).To(Equal([]string{"a"}))
		Expect(rollout.UnusedExceptions(p, isA, timeOf(inWindow))).To(Equal([]string{"other"}))
		Expect(rollout.ExceptionOf(p, "other", timeOf("2026-12-01T00:00:00Z"))).To(BeNil())
		Expect(rollout.ExceptionOf(p, "other", timeOf(inWindow)).Action).To(Equal(poolv1.ExceptionSkip))
	})
})

var _ = DescribeTable("A host that a pool skips", func(change func(*rollout.Host), target string, slot *poolv1.UpdateSlot, isHeld, isSkipped, takesPlace bool) {
	p := &poolv1.MachineConfigPool{}
	p.Spec.Updates.Exceptions = []poolv1.UpdateException{newException(poolv1.ExceptionSkip, "2026-11-24T06:00:00Z")}
	h := newRunning()
	change(h)
	h.Report = rollout.ReportOf(h.Node)
	c := h.ForRollout(p, target, slot, rollout.HoldOf(p, timeOf("2026-11-20T12:00:00Z")))
	Expect(c.IsHeld).To(Equal(isHeld))
	Expect(c.IsSkipped).To(Equal(isSkipped))
	Expect(c.TakesPlace()).To(Equal(takesPlace))
	Expect(h.ForRollout(p, target, slot, rollout.HoldOf(p, timeOf("2026-11-24T06:00:00Z")))).To(And(HaveField("IsHeld", false), HaveField("IsSkipped", false)), "afterwards")
},
	Entry("begins no update, and takes no place", func(*rollout.Host) {}, newRevision, nil, true, true, false),
	Entry("is not affected if it has its target", func(*rollout.Host) {}, oldRevision, nil, false, false, false),
	Entry("completes what it has begun, and takes a place until then", working(newRevision, agentv1.Applying, newRevision), newRevision, nil, false, false, true),
	Entry("gets a newer target in the middle", working(newRevision, agentv1.Applying, newRevision), strings.Repeat("c", 64), nil, false, false, true),
	Entry("begins if it has a slot already", func(*rollout.Host) {}, newRevision, &poolv1.UpdateSlot{ID: "1", Host: "host", Revision: newRevision}, false, false, true),
	Entry("does not try again what failed, and holds no place for that", working(newRevision, agentv1.Degraded, newRevision), strings.Repeat("c", 64), nil, true, true, false),
	Entry("returns to what it has if its pool does", working(newRevision, agentv1.Degraded, newRevision), oldRevision, nil, false, false, true),
	Entry("takes a place while it is not available", func(h *rollout.Host) { h.Node.Spec.Unschedulable = true }, newRevision, nil, true, true, true),
)

// newRunning returns a host with the Node a that runs oldRevision.
func newRunning() *rollout.Host {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: "a"}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	node.Annotations = map[string]string{agentv1.ReportVersionAnnotation: "1", agentv1.AgentAnnotation: "v0.1.0", agentv1.DesiredAnnotation: oldRevision,
		agentv1.CurrentAnnotation: oldRevision, agentv1.TargetAnnotation: oldRevision, agentv1.StateAnnotation: string(agentv1.Done)}
	config := &bootstrapv1.PoolbootConfig{}
	config.Name = "host"
	config.Status.NodeRef = bootstrapv1.NodeReference{Name: "a", UID: "a"}
	config.Status.Update.DesiredRevision = oldRevision
	return &rollout.Host{Config: config, Node: node}
}

// working has a host report a state about a revision that it was told to begin.
func working(target string, state agentv1.State, told string) func(*rollout.Host) {
	return func(h *rollout.Host) {
		h.Config.Status.Update.DesiredRevision = told
		a := h.Node.Annotations
		a[agentv1.DesiredAnnotation], a[agentv1.BegunAnnotation], a[agentv1.TargetAnnotation], a[agentv1.StateAnnotation] = told, told, target, string(state)
	}
}

var _ = Describe("Hosts that are held or skipped", func() {
	now := timeOf("2026-11-21T12:00:00Z")
	hosts := func(changes ...func(*rollout.Candidate)) []rollout.Candidate {
		list := make([]rollout.Candidate, 4)
		for i := range list {
			list[i] = rollout.Candidate{Name: fmt.Sprint("h", i), Desired: "old", Target: "new", CreationTime: now.Add(time.Duration(i-100) * time.Hour)}
			if i < len(changes) && changes[i] != nil {
				changes[i](&list[i])
			}
		}
		return list
	}
	held := func(h *rollout.Candidate) { h.IsHeld = true }
	skipped := func(h *rollout.Candidate) { h.IsHeld, h.IsSkipped = true, true }
	skippedFailed := func(h *rollout.Candidate) {
		skipped(h)
		h.Desired, h.Progress, h.HasSlot = "new", rollout.Failed, true
	}
	failed := func(h *rollout.Candidate) { h.Progress = rollout.Failed }
	away := func(h *rollout.Candidate) { h.IsUnavailable = true }
	done := func(h *rollout.Candidate) { h.Desired, h.CompletedTime, h.HasBegun = "new", now.Add(-time.Hour), true }
	canary := func(change func(*rollout.Candidate)) func(*rollout.Candidate) {
		return func(h *rollout.Candidate) {
			change(h)
			h.IsCanary = true
		}
	}
	waiting := func(*rollout.Candidate) {}

	DescribeTable("leave their places to others", func(list []rollout.Candidate, limit int, chosen ...string) {
		Expect(rollout.Next(list, limit)).To(HaveExactElements(chosen))
	},
		Entry("the first ones", hosts(held, skipped), 1, "h2"),
		Entry("all but one, which ignores the window", hosts(held, held, held), 1, "h3"),
		Entry("one whose update failed", hosts(skippedFailed), 1, "h1"),
		Entry("two of them", hosts(skippedFailed, skippedFailed), 1, "h2"),
		Entry("not one that failed and is not skipped", hosts(skippedFailed, func(h *rollout.Candidate) { h.Desired, h.Progress = "new", rollout.Failed }), 1),
		Entry("one that failed before, and gets the correction", hosts(skipped, failed), 1, "h1"),
		Entry("not while one that is skipped is away for another reason", hosts(func(h *rollout.Candidate) { skipped(h); away(h) }), 1),
	)

	It("take no place for a failed update, and one while they are away", func() {
		Expect(rollout.Count(hosts(skippedFailed, failed, func(h *rollout.Candidate) { skipped(h); away(h) }))).To(Equal(2))
	})

	It("stage nothing while they are skipped, and do while they are held", func() {
		h := &rollout.Host{Report: rollout.Report{Staging: "other"}}
		Expect(hosts(skipped)[0].WithStaging(h).IsStaging).To(BeFalse())
		Expect(hosts(held)[0].WithStaging(h).IsStaging).To(BeTrue())
	})

	byLabel := &poolv1.CanarySettings{NodeSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"canary": ""}}}
	byNumber := &poolv1.CanarySettings{Hosts: 1}
	DescribeTable("are no canaries", func(settings *poolv1.CanarySettings, list []rollout.Candidate, isClosed bool, chosen ...string) {
		next, gate := rollout.NextAfter(settings, list, 4, now)
		Expect(next).To(HaveExactElements(chosen))
		Expect(gate != nil).To(Equal(isClosed))
	},
		Entry("by label: others wait for the other one", byLabel, hosts(canary(skipped), canary(waiting)), true, "h1"),
		Entry("by label: others go on when that is done", byLabel, hosts(canary(skipped), canary(done)), false, "h2", "h3"),
		Entry("by label: all are skipped", byLabel, hosts(canary(skipped)), false, "h1", "h2", "h3"),
		Entry("by label: all are skipped, one after its update failed", byLabel, hosts(canary(skippedFailed)), false, "h1", "h2", "h3"),
		Entry("by number: the next one is", byNumber, hosts(skipped), true, "h1"),
		Entry("by number: the next one is in place of one that failed", byNumber, hosts(skippedFailed), true, "h1"),
		Entry("by number: and then the others", byNumber, hosts(skippedFailed, done), false, "h2", "h3"),
		Entry("by number: one that ignores the window is", byNumber, hosts(held, held, held), false, "h3"),
		Entry("if the window holds all, no canary does", byNumber, hosts(held, held, held, held), false),
		Entry("by label: one that ignores the window waits for them", byLabel, hosts(canary(held), held, held), true),
	)
})
