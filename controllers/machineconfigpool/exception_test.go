package machineconfigpool

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/controllertest"
)

var _ = Describe("A pool that skips a host", func() {
	var s *fixture
	// withNode gives a host a Node with its name.
	withNode := func(c *bootstrapv1.PoolbootConfig) *bootstrapv1.PoolbootConfig {
		c.Status.NodeRef = bootstrapv1.NodeReference{Name: c.Name, UID: c.Name}
		return c
	}
	// except sets an exception for the host m2.
	except := func(action poolv1.UpdateExceptionAction, until time.Time) string {
		GinkgoHelper()
		p := s.pool("infra")
		p.Spec.Updates.Exceptions = []poolv1.UpdateException{{Node: "m2", Action: action, Until: &metav1.Time{Time: until}, Reason: "waits for a disk"}}
		Expect(s.Update(ctx(), p)).To(Succeed())
		return "m2 until " + until.UTC().Format(time.RFC3339) + ": waits for a disk"
	}
	again := func() time.Duration {
		GinkgoHelper()
		result, err := s.reconciler.Reconcile(ctx(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: "infra"}})
		Expect(err).NotTo(HaveOccurred())
		return result.RequeueAfter
	}
	var inAnHour time.Time

	BeforeEach(func() {
		s = newFixture(cluster(), newPool("worker", "worker", 2), newPool("infra", "infra", 1), config("50-infra", "infra", "0"),
			withNode(follower("m1", bootstrapv1.UpdateWaitingReason)), withNode(follower("m2", bootstrapv1.UpdateWaitingReason)))
		s.reconcile("infra")
		inAnHour = time.Now().Add(time.Hour).Truncate(time.Second)
	})

	It("is done but for this one, never says that all hosts run its config, and names it with the reason", func() {
		skipped := except(poolv1.ExceptionSkip, inAnHour)
		p := s.reconcile("infra")
		Expect(p).To(haveCondition(poolv1.UpdatedCondition, no, poolv1.HostsPendingReason, "1 of 2 hosts wait for their update (m1)", "1 of 2 hosts are skipped ("+skipped+")"))
		Expect(p).To(haveCondition(poolv1.UpdatingCondition, yes, poolv1.HostsPendingReason))
		s.becomes("m1", bootstrapv1.UpdateApplyingReason)
		p = s.becomes("m1", bootstrapv1.UpdateDoneReason)
		for _, kind := range []string{poolv1.UpdatedCondition, poolv1.UpdatingCondition, poolv1.ReadyCondition} {
			Expect(p).To(haveCondition(kind, no, poolv1.HostsSkippedReason, "1 of 2 hosts are skipped ("+skipped+"): wait until then, or remove the entry in spec.updates.exceptions, and they are updated"))
		}
		Expect(p.Status.UpdatedHostCount).To(HaveValue(BeEquivalentTo(1)))
		Expect(p.Status.Rollout.CompletionTime).To(BeNil(), "a host must still change")
		Expect(again()).To(And(BeNumerically(">", 59*time.Minute), BeNumerically("<=", time.Hour)), "the pool is looked at again when it ends")

		except(poolv1.ExceptionSkip, time.Now().Add(-time.Second))
		p = s.reconcile("infra")
		Expect(p).To(haveCondition(poolv1.UpdatingCondition, yes, poolv1.HostsPendingReason, "1 of 2 hosts wait for their update (m2)"))
		s.becomes("m2", bootstrapv1.UpdateApplyingReason)
		p = s.becomes("m2", bootstrapv1.UpdateDoneReason)
		Expect(p).To(haveCondition(poolv1.ReadyCondition, yes, poolv1.AllHostsUpdatedReason))
		Expect(p.Status.Rollout.CompletionTime).NotTo(BeNil())
	})

	It("says what a host does that has begun its update before", func() {
		except(poolv1.ExceptionSkip, inAnHour)
		s.becomes("m1", bootstrapv1.UpdateDoneReason)
		Expect(s.becomes("m2", bootstrapv1.UpdateDrainingReason)).To(haveCondition(poolv1.UpdatingCondition, yes, poolv1.HostsUpdatingReason, "1 of 2 hosts are being updated (m2)"))
		Expect(s.becomes("m2", bootstrapv1.UpdateDoneReason)).To(haveCondition(poolv1.UpdatedCondition, yes, poolv1.AllHostsUpdatedReason))
	})

	It("goes on, and needs nobody, after the update of this one failed", func() {
		s.becomes("m2", bootstrapv1.UpdateApplyingReason)
		Expect(s.becomes("m2", bootstrapv1.UpdateDegradedReason)).To(haveCondition(poolv1.UpdatingCondition, yes, poolv1.RolloutStoppedReason))
		skipped := except(poolv1.ExceptionSkip, inAnHour)
		p := s.reconcile("infra")
		Expect(p).To(haveCondition(poolv1.UpdatingCondition, yes, poolv1.HostsPendingReason, "(m1)", "1 of 2 hosts are skipped ("+skipped+")"))
		Expect(p).To(haveCondition(poolv1.NodeDegradedCondition, no, poolv1.AsExpectedReason))
		s.becomes("m1", bootstrapv1.UpdateDoneReason)
		Expect(s.reconcile("infra")).To(haveCondition(poolv1.ReadyCondition, no, poolv1.HostsSkippedReason))

		except(poolv1.ExceptionSkip, time.Now().Add(-time.Second))
		Expect(s.reconcile("infra")).To(haveCondition(poolv1.ReadyCondition, no, poolv1.HostsDegradedReason, "m2: Degraded"))
	})

	It("is held back by a pause too", func() {
		except(poolv1.ExceptionSkip, inAnHour)
		s.becomes("m1", bootstrapv1.UpdateDoneReason)
		s.pause(true)
		s.reconcile("infra")
		s.set(config("50-infra", "infra", "0"), "1")
		p := s.reconcile("infra")
		Expect(p).To(haveCondition(poolv1.UpdatedCondition, no, poolv1.RolloutPausedReason))
		Expect(p).To(haveCondition(poolv1.UpdatingCondition, no, poolv1.RolloutPausedReason))
	})

	It("names an exception for a Node that is that of no host, until it expires", func() {
		except(poolv1.ExceptionSkip, inAnHour)
		p := s.pool("infra")
		p.Spec.Updates.Exceptions = append(p.Spec.Updates.Exceptions, poolv1.UpdateException{Node: "typo", Action: poolv1.ExceptionSkip, Until: &metav1.Time{Time: inAnHour}, Reason: "x"},
			poolv1.UpdateException{Node: "gone", Action: poolv1.ExceptionSkip, Until: ptr.To(metav1.NewTime(time.Now().Add(-time.Hour))), Reason: "x"})
		Expect(s.Update(ctx(), p)).To(Succeed())
		Expect(s.reconcile("infra")).To(haveCondition(poolv1.UpdatedCondition, no, poolv1.HostsPendingReason, "; spec.updates.exceptions has Nodes that are those of no host of the pool (typo): correct or remove them"))
	})

	It("writes nothing again", func() {
		except(poolv1.ExceptionSkip, inAnHour)
		s.reconcile("infra")
		controllertest.Events(s.events)
		writes := s.writes
		s.reconcile("infra")
		Expect(s.writes).To(Equal(writes))
	})
})
