package machineconfigpool

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
)

var _ = Describe("A pool whose hosts wait for their update", func() {
	var s *fixture
	BeforeEach(func() {
		s = newFixture(cluster(), newPool("worker", "worker", 2), newPool("infra", "infra", 1), config("50-infra", "infra", "0"),
			follower("m1", bootstrapv1.UpdateWaitingReason), follower("m2", bootstrapv1.UpdateWaitingReason))
		s.reconcile("infra")
	})

	It("says when the maintenance window opens for which its hosts wait, and looks again then", func() {
		p := s.pool("infra")
		opens := time.Now().UTC().AddDate(0, 0, 7) // a date, so that the test does not depend on the hour
		p.Spec.Updates.MaintenanceWindow = poolv1.MaintenanceWindow{Schedule: fmt.Sprintf("0 0 %d %d *", opens.Day(), opens.Month()), DurationMinutes: 1}
		Expect(s.Update(ctx(), p)).To(Succeed())
		result, err := s.reconciler.Reconcile(ctx(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(p)})
		Expect(err).NotTo(HaveOccurred())
		Expect(result.RequeueAfter).To(Equal(rollout.MaxWait))
		why := "; the maintenance window of MachineConfigPool infra opens at " + opens.Format(time.DateOnly) + "T00:00:00Z"
		for _, kind := range []string{poolv1.UpdatedCondition, poolv1.UpdatingCondition} {
			Expect(meta.FindStatusCondition(s.pool("infra").Status.Conditions, kind).Message).To(HaveSuffix(why))
		}
		s.becomes("m1", bootstrapv1.UpdateDoneReason)
		Expect(meta.FindStatusCondition(s.becomes("m2", bootstrapv1.UpdateDoneReason).Status.Conditions, poolv1.UpdatedCondition).Message).NotTo(ContainSubstring("window"))
	})

	It("says that its hosts wait because the pool is paused, also for an update that does not change the rendered config", func() {
		s.complete("m1", "m2")
		s.pause(true)
		Expect(s.reconcile("infra")).To(haveCondition(poolv1.ReadyCondition, yes, poolv1.AllHostsUpdatedReason))
		Expect(s.becomes("m1", bootstrapv1.UpdateWaitingReason)).To(haveCondition(poolv1.ReadyCondition, no, poolv1.RolloutPausedReason,
			"1 of 2 hosts wait for their update (m1)", "the pool is paused: run kubectl poolboot rollout resume infra -n site"))
	})

	It("names the hosts whose update fails before it begins, apart from those that wait", func() {
		const next = ": see kubectl poolboot rollout status infra -n site"
		Expect(s.becomes("m1", bootstrapv1.UpdateFailingReason)).To(haveCondition(poolv1.ReadyCondition, no, poolv1.HostsPendingReason,
			"1 of 2 hosts fail to follow the pool, and retry it (m1)"+next+"; 1 of 2 hosts wait for their update (m2)"+next))

		s.complete("m1", "m2")
		Expect(s.becomes("m1", bootstrapv1.UpdateFailingReason)).To(haveCondition(poolv1.ReadyCondition, no, poolv1.HostsPendingReason,
			"1 of 2 hosts fail to follow the pool, and retry it (m1)"), "also if the update changes only the rules of updates")
	})

	DescribeTable("has the reason of a gate for which all hosts wait, and names it", func(reason string) {
		p := s.pool("infra")
		p.Spec.Updates.Gates = []poolv1.UpdateGate{{Name: "ceph"}}
		Expect(s.Update(ctx(), p)).To(Succeed())
		const why = "the gate ceph: read it"
		meta.SetStatusCondition(&p.Status.Conditions, metav1.Condition{Type: poolv1.UpdateGatesOpenCondition, Status: metav1.ConditionFalse, Reason: reason, Message: why})
		Expect(s.Status().Update(ctx(), p)).To(Succeed())
		p = s.becomes("m2", bootstrapv1.UpdateWaitingReason)
		for _, kind := range []string{poolv1.UpdatedCondition, poolv1.ReadyCondition} {
			Expect(p).To(haveCondition(kind, no, reason, "wait for their update (m1, m2): see kubectl poolboot rollout status infra -n site; "+why))
		}
		Expect(s.becomes("m1", bootstrapv1.UpdateApplyingReason)).To(haveCondition(poolv1.UpdatingCondition, yes, poolv1.HostsUpdatingReason, "; "+why))
		s.becomes("m1", bootstrapv1.UpdateDoneReason)
		Expect(meta.FindStatusCondition(s.becomes("m2", bootstrapv1.UpdateDoneReason).Status.Conditions, poolv1.UpdatedCondition).Message).NotTo(ContainSubstring("gate"))
	},
		Entry("if it is closed", poolv1.GateClosedReason),
		Entry("if it can't be read", poolv1.GateUnreadableReason),
		Entry("if it is an earlier pool", poolv1.EarlierPoolsPendingReason),
	)

	It("says that what it hands out is not approved, and names what is", func() {
		p := s.pool("infra")
		p.Spec.Updates.Approval = poolv1.ApprovalManual
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, poolv1.ApprovedConfigurationAnnotation, "rendered-infra-1")
		Expect(s.Update(ctx(), p)).To(Succeed())
		name := p.Status.Configuration.Name
		Expect(s.becomes("m1", bootstrapv1.UpdateWaitingReason)).To(haveCondition(poolv1.ReadyCondition, no, poolv1.ApprovalPendingReason,
			"; "+name+" is not approved, because the annotation poolboot.io/approved-configuration names rendered-infra-1, which the pool does not hand out", "kubectl poolboot rollout approve infra -n site --configuration "+name))
		p = s.pool("infra")
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, poolv1.ApprovedConfigurationAnnotation, name)
		Expect(s.Update(ctx(), p)).To(Succeed())
		Expect(s.reconcile("infra")).To(haveCondition(poolv1.ReadyCondition, no, poolv1.HostsPendingReason))
	})
})
