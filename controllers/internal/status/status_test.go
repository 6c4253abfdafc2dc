package status

import (
	"context"
	"errors"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/controllertest"
)

type configStatus = bootstrapv1.PoolbootConfigStatus

// samples are changes of one part of a status each.
var samples = map[string]func(*configStatus){
	"poolRole":                func(s *configStatus) { s.PoolRole = "other" },
	"hostAddresses":           func(s *configStatus) { s.HostAddresses = []string{"192.0.2.9"} },
	"boot.preparedTime":       func(s *configStatus) { s.Boot.PreparedTime = at(7) },
	"boot.nodeReadyTime":      func(s *configStatus) { s.Boot.NodeReadyTime = at(7) },
	"conditions[Ready]":       condition(clusterv1.ReadyCondition, metav1.ConditionTrue),
	"conditions[PoolDecided]": condition(bootstrapv1.PoolDecidedCondition, metav1.ConditionTrue),
	"conditions[NodeInPool]":  condition(bootstrapv1.NodeInPoolCondition, metav1.ConditionTrue),
}

func at(second int64) *metav1.MicroTime { return ptr.To(metav1.NewMicroTime(time.Unix(second, 0))) }

func condition(kind string, value metav1.ConditionStatus) func(*configStatus) {
	return func(s *configStatus) {
		config := &bootstrapv1.PoolbootConfig{Status: *s}
		conditions.Set(config, metav1.Condition{Type: kind, Status: value, Reason: "Sample", Message: fmt.Sprint("since ", time.Now())})
		*s = config.Status
	}
}

// written returns a config whose status has a data Secret and a request, and these changes.
func written(changes ...func(*configStatus)) *bootstrapv1.PoolbootConfig {
	config := &bootstrapv1.PoolbootConfig{}
	s := &config.Status
	s.DataSecretName, s.PoolRole = "machine", "infra"
	s.Requests.Addresses = []bootstrapv1.TokenAddress{{Address: "192.0.2.1", Token: "token"}}
	for _, change := range changes {
		change(s)
	}
	return config
}

var _ = Describe("A patch of a status", func() {
	var (
		c       client.Client
		patches int
		config  *bootstrapv1.PoolbootConfig
	)
	BeforeEach(func(ctx SpecContext) {
		patches = 0
		config = written()
		config.ObjectMeta = metav1.ObjectMeta{Namespace: "site", Name: "machine"}
		c = fake.NewClientBuilder().WithScheme(controllertest.Scheme()).WithObjects(config).WithStatusSubresource(config).WithInterceptorFuncs(interceptor.Funcs{
			SubResourcePatch: func(ctx context.Context, c client.Client, subResource string, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
				patches++
				return c.SubResource(subResource).Patch(ctx, object, patch, options...)
			},
		}).Build()
		Expect(c.Get(ctx, client.ObjectKeyFromObject(config), config)).To(Succeed())
	})
	changed := func(changes ...func(*configStatus)) *bootstrapv1.PoolbootConfig {
		after := config.DeepCopy()
		for _, change := range changes {
			change(&after.Status)
		}
		return after
	}

	It("is one request for all differences", func(ctx SpecContext) {
		after := changed(samples["poolRole"], samples["conditions[PoolDecided]"], samples["conditions[Ready]"])
		Expect(Patch(ctx, c, config, after)).To(Succeed())
		Expect(patches).To(Equal(1))
		current := &bootstrapv1.PoolbootConfig{}
		Expect(c.Get(ctx, client.ObjectKeyFromObject(config), current)).To(Succeed())
		Expect(current.Status.PoolRole).To(Equal("other"))
		Expect(current.Status.Conditions).To(HaveLen(2))
	})

	It("is no request if nothing differs", func(ctx SpecContext) {
		Expect(Patch(ctx, c, config, config.DeepCopy())).To(Succeed())
		Expect(patches).To(BeZero())
	})

	It("also writes the condition Ready, which follows from the others", func(ctx SpecContext) {
		ready := changed(samples["conditions[Ready]"])
		Expect(c.Status().Update(ctx, ready)).To(Succeed())
		after := ready.DeepCopy()
		conditions.Set(after, metav1.Condition{Type: bootstrapv1.NodeInPoolCondition, Status: metav1.ConditionFalse, Reason: bootstrapv1.NodeOutsidePoolReason})
		Expect(Patch(ctx, c, ready, after)).To(Succeed())
		Expect(patches).To(Equal(1))
		Expect(conditions.IsFalse(after, clusterv1.ReadyCondition)).To(BeTrue())
	})

	It("writes no condition Ready of a generation that its controller has not observed", func(ctx SpecContext) {
		ready := changed(samples["conditions[Ready]"])
		Expect(c.Status().Update(ctx, ready)).To(Succeed())
		ready.Generation++
		after := ready.DeepCopy()
		after.Status.Boot.NodeReadyTime = at(7)
		Expect(Patch(ctx, c, ready, after)).To(Succeed())
		Expect(conditions.IsTrue(after, clusterv1.ReadyCondition)).To(BeTrue())
	})

	It("writes no condition Ready before its controller does", func(ctx SpecContext) {
		after := changed(samples["conditions[NodeInPool]"])
		Expect(Patch(ctx, c, config, after)).To(Succeed())
		Expect(conditions.Has(after, clusterv1.ReadyCondition)).To(BeFalse())
	})

	It("is a conflict if the object has changed since it was read, and the reconcile is repeated", func(ctx SpecContext) {
		Expect(Patch(ctx, c, config, changed(samples["hostAddresses"]))).To(Succeed())
		err := Patch(ctx, c, config, changed(samples["boot.nodeReadyTime"]))
		Expect(apierrors.IsConflict(err)).To(BeTrue())
		Expect(RetryConflict(ctx, ctrl.Result{}, err)).To(Equal(ctrl.Result{RequeueAfter: ConflictRetry}))
		Expect(RetryConflict(ctx, ctrl.Result{}, errors.New("other"))).Error().To(MatchError("other"))
		Expect(RetryConflict(ctx, ctrl.Result{}, errors.Join(err, errors.Join(err)))).To(Equal(ctrl.Result{RequeueAfter: ConflictRetry}))
		Expect(RetryConflict(ctx, ctrl.Result{RequeueAfter: 1}, errors.Join(errors.New("other"), err))).Error().To(MatchError(ContainSubstring("other")))
	})

	It("that records what was done elsewhere is applied to the current version after a conflict", func(ctx SpecContext) {
		Expect(Patch(ctx, c, config, changed(samples["hostAddresses"]))).To(Succeed())
		after, err := Record(ctx, c, c, config, func(config *bootstrapv1.PoolbootConfig) { samples["boot.preparedTime"](&config.Status) })
		Expect(err).NotTo(HaveOccurred())
		Expect(after.Status.HostAddresses).NotTo(BeEmpty())
		Expect(after.Status.Boot.PreparedTime).NotTo(BeNil())
		Expect(patches).To(Equal(3))
	})

	It("that records what was done elsewhere fails if the PoolbootConfig is being deleted", func(ctx SpecContext) {
		now := metav1.Now()
		config.DeletionTimestamp = &now
		_, err := Record(ctx, c, c, config, func(*bootstrapv1.PoolbootConfig) { Fail("nothing is left to record") })
		Expect(apierrors.IsNotFound(err)).To(BeTrue())
	})
})
