package status

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kstatus "sigs.k8s.io/cli-utils/pkg/kstatus/status"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/controllertest"
)

var _ = Describe("Flux and others with kstatus", func() {
	// patch writes conditions of an object, and returns how the object is read then.
	patch := func(ctx SpecContext, object client.Object, set func(...metav1.Condition), conditions ...metav1.Condition) kstatus.Status {
		GinkgoHelper()
		c := fake.NewClientBuilder().WithScheme(controllertest.Scheme()).WithObjects(object).WithStatusSubresource(object).Build()
		Expect(c.Get(ctx, client.ObjectKeyFromObject(object), object)).To(Succeed())
		before := object.DeepCopyObject().(client.Object)
		set(conditions...)
		Expect(Patch(ctx, c, before, object)).To(Succeed())
		health, _ := controllertest.Health(object)
		return health
	}
	is := func(kind string, value metav1.ConditionStatus, reason string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: value, Reason: reason, Message: "why"}
	}
	meta := metav1.ObjectMeta{Namespace: "edge", Name: "a", Generation: 1}

	DescribeTable("read an Enrollment", func(ctx SpecContext, ready metav1.Condition, want kstatus.Status) {
		e := &poolv1.Enrollment{ObjectMeta: meta}
		Expect(patch(ctx, e, func(conditions ...metav1.Condition) { e.Status.ObservedGeneration, e.Status.Conditions = 1, conditions }, ready)).To(Equal(want))
	},
		Entry("that admits hosts as current", is(poolv1.EnrollmentReadyCondition, metav1.ConditionTrue, poolv1.EnrollmentAdmitsReason), kstatus.CurrentStatus),
		Entry("that is used up as failed", is(poolv1.EnrollmentReadyCondition, metav1.ConditionFalse, poolv1.EnrollmentUsedUpReason), kstatus.FailedStatus),
		Entry("whose pool does not exist as failed", is(poolv1.EnrollmentReadyCondition, metav1.ConditionFalse, poolv1.EnrollmentPoolNotFoundReason), kstatus.FailedStatus),
	)

	DescribeTable("read a PoolbootConfig", func(ctx SpecContext, want kstatus.Status, conditions ...metav1.Condition) {
		c := &bootstrapv1.PoolbootConfig{ObjectMeta: meta}
		Expect(patch(ctx, c, func(conditions ...metav1.Condition) { c.Status.ObservedGeneration, c.Status.Conditions = 1, conditions }, conditions...)).To(Equal(want))
	},
		Entry("that waits for its host as in progress", kstatus.InProgressStatus, is(clusterv1.ReadyCondition, metav1.ConditionFalse, bootstrapv1.WaitingForHostReason)),
		Entry("whose host has joined as current, also while it is updated", kstatus.CurrentStatus,
			is(clusterv1.ReadyCondition, metav1.ConditionTrue, clusterv1.ReadyReason), is(bootstrapv1.UpdatedCondition, metav1.ConditionFalse, bootstrapv1.UpdateRebootingReason)),
		Entry("whose update failed as failed", kstatus.FailedStatus,
			is(clusterv1.ReadyCondition, metav1.ConditionTrue, clusterv1.ReadyReason), is(bootstrapv1.UpdatedCondition, metav1.ConditionFalse, bootstrapv1.UpdateDegradedReason)),
		Entry("for which no pool exists as failed", kstatus.FailedStatus,
			is(clusterv1.ReadyCondition, metav1.ConditionFalse, bootstrapv1.PoolNotFoundReason), is(bootstrapv1.PoolDecidedCondition, metav1.ConditionFalse, bootstrapv1.PoolNotFoundReason)),
	)

	It("do not read what is over as failed", func(ctx SpecContext) {
		c := &bootstrapv1.PoolbootConfig{ObjectMeta: meta}
		c.Status.ObservedGeneration, c.Status.Conditions = 1, []metav1.Condition{
			is(clusterv1.ReadyCondition, metav1.ConditionTrue, clusterv1.ReadyReason), is(poolv1.StalledCondition, metav1.ConditionTrue, bootstrapv1.UpdateDegradedReason)}
		done := is(bootstrapv1.UpdatedCondition, metav1.ConditionTrue, bootstrapv1.UpdateDoneReason)
		Expect(patch(ctx, c, func(conditions ...metav1.Condition) { c.Status.Conditions = append(c.Status.Conditions, conditions...) }, done)).To(Equal(kstatus.CurrentStatus))
		Expect(c.Status.Conditions).NotTo(ContainElement(HaveField("Type", poolv1.StalledCondition)))
	})
})
