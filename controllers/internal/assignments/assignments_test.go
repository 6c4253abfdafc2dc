package assignments_test

import (
	"context"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/assignments"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/controllertest"
)

func TestAssignments(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Assignment Secrets")
}

var _ = Describe("An assignment Secret", func() {
	It("is created and replaced, with the label by which the config server finds it", func(ctx SpecContext) {
		c := controllertest.NewClientBuilder().Build()
		secrets := assignments.Secrets{Client: c, Namespace: "poolboot-system"}
		for _, document := range []string{"first", "first", "second"} {
			version, err := secrets.Store(ctx, "u-1", []byte(document), []byte("CA"))
			Expect(err).NotTo(HaveOccurred())
			stored := &corev1.Secret{}
			Expect(c.Get(ctx, secrets.Key("u-1"), stored)).To(Succeed())
			Expect(stored.ResourceVersion).To(Equal(version))
			Expect(stored.Name).To(Equal("assignment-u-1"))
			Expect(stored.Labels).To(Equal(map[string]string{bootstrapv1.AssignmentLabel: "u-1"}))
			Expect(stored.Data).To(Equal(map[string][]byte{bootstrapv1.AssignmentKey: []byte(document), bootstrapv1.AssignmentClientCAKey: []byte("CA")}))
		}
	})
})

var _ = Describe("References to rendered configs", func() {
	It("are read once, and a config that does not exist is read again", func(ctx SpecContext) {
		rendered := &poolv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: "rendered-infra-1"}, Spec: poolv1.MachineConfigSpec{KernelArguments: []string{"quiet"}}}
		reads := 0
		c := controllertest.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				reads++
				return c.Get(ctx, key, o, opts...)
			},
		}).Build()
		references := assignments.NewRenderedConfigs(c)
		_, err := references.Get(ctx, client.ObjectKeyFromObject(rendered))
		Expect(apierrors.IsNotFound(err)).To(BeTrue())
		Expect(c.Create(ctx, rendered)).To(Succeed())
		want, err := join.RenderedOf(rendered)
		Expect(err).NotTo(HaveOccurred())
		for range 2 {
			Expect(references.Get(ctx, client.ObjectKeyFromObject(rendered))).To(Equal(want))
		}
		Expect(reads).To(Equal(2))
	})
})
