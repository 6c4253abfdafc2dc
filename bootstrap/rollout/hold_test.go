package rollout_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
)

var _ = Describe("A pool whose updates need an approval", func() {
	newPool := func(approved string) *poolv1.MachineConfigPool {
		p := &poolv1.MachineConfigPool{}
		p.Namespace, p.Name = "edge", "infra"
		p.Spec.Updates.Approval = poolv1.ApprovalManual
		p.Status.Configuration.Name = "rendered-infra-2"
		if approved != "" {
			p.Annotations = map[string]string{poolv1.ApprovedConfigurationAnnotation: approved}
		}
		return p
	}
	const remedy = " (spec.updates.approval of MachineConfigPool infra is Manual): check it, and run kubectl poolboot rollout approve infra -n edge --configuration rendered-infra-2"

	DescribeTable("begins no update", func(approved, why string) {
		Expect(rollout.HoldOf(newPool(approved), time.Now())).To(Equal(rollout.Hold{Reason: poolv1.ApprovalPendingReason, Why: "rendered-infra-2 is not approved" + why + remedy}))
	},
		Entry("without one", "", ""),
		Entry("with one of a superseded config, which is named", "rendered-infra-1",
			", because the annotation poolboot.io/approved-configuration names rendered-infra-1, which the pool does not hand out"),
		Entry("with one that is no name, which is printed on one line", "a\nb",
			", because the annotation poolboot.io/approved-configuration names a b, which the pool does not hand out"),
	)

	It("begins updates with one of what it hands out", func() {
		Expect(rollout.HoldOf(newPool("rendered-infra-2"), time.Now())).To(BeZero())
	})

	It("has nothing to approve before it hands out something", func() {
		p := newPool("")
		p.Status.Configuration.Name = ""
		Expect(rollout.HoldOf(p, time.Now())).To(BeZero())
	})

	It("is held by a pause first, and by its window after the approval", func() {
		p := newPool("")
		p.Spec.Paused = ptr.To(true)
		Expect(rollout.HoldOf(p, time.Now()).Reason).To(Equal(poolv1.RolloutPausedReason))
		p = newPool("rendered-infra-2")
		p.Spec.Updates.MaintenanceWindow = poolv1.MaintenanceWindow{Schedule: "0 22 * * 6", DurationMinutes: 60}
		Expect(rollout.HoldOf(p, timeOf("2026-11-20T12:00:00Z"))).To(And(HaveField("Reason", ""), HaveField("Why", HaveSuffix("opens at 2026-11-21T22:00:00Z"))))
	})
})

var _ = It("A clock that jumps over a window, or back into one, opens it as its schedule says", func() {
	p := &poolv1.MachineConfigPool{}
	p.Name = "infra"
	p.Spec.Updates.MaintenanceWindow = poolv1.MaintenanceWindow{Schedule: "0 22 * * 6", DurationMinutes: 60}
	at := func(now string) rollout.Hold { return rollout.HoldOf(p, timeOf(now)) }
	Expect(at("2026-11-21T21:59:00Z").Wait).To(Equal(time.Minute))
	Expect(at("2026-11-21T23:01:00Z")).To(And(HaveField("Why", HaveSuffix("opens at 2026-11-28T22:00:00Z")), HaveField("Wait", rollout.MaxWait)), "after the jump")
	Expect(at("2026-11-21T22:30:00Z")).To(BeZero(), "after the clock was corrected")
})
