package scope_test

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/controllertest"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/scope"
)

func TestScope(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Scope of a host")
}

var _ = Describe("The scope of a host", func() {
	It("says to each phase that an earlier write of the status failed, and writes nothing more", func(ctx SpecContext) {
		config := &bootstrapv1.PoolbootConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "site", Name: "edge-1"}}
		lost, patches := errors.New("connection reset"), 0
		c := fake.NewClientBuilder().WithScheme(controllertest.Scheme()).WithObjects(config).WithStatusSubresource(config).
			WithInterceptorFuncs(interceptor.Funcs{
				SubResourcePatch: func(context.Context, client.Client, string, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
					patches++
					return lost
				},
			}).Build()
		hosts := scope.Hosts{Client: c, Live: c}
		_, err := hosts.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(config)}, func(ctx context.Context, s *scope.Scope) (ctrl.Result, error) {
			s.Config.Status.Update.Slot = "slot"
			err := s.Flush(ctx)
			Expect(s.Flush(ctx)).To(MatchError(lost))
			Expect(s.Record(ctx, func(*bootstrapv1.PoolbootConfig) {})).To(MatchError(lost))
			return ctrl.Result{}, err
		})
		Expect(err).To(MatchError(lost))
		Expect(patches).To(Equal(1))
	})
})
