package integration

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

var _ = Describe("Poolboot's objects in a workload cluster", func() {
	It("are restored when they are deleted or changed, or lose their label", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 1)
		bootHost(ctx, t, nil)
		guard := metav1.ObjectMeta{Name: "poolboot-node-guard." + t.Namespace + "." + t.Namespace}
		bootstrapper := metav1.ObjectMeta{Name: "poolboot:node-bootstrapper"}
		getUID := func(ctx context.Context, object client.Object) (string, error) {
			err := lab.WorkloadClient.Get(ctx, client.ObjectKeyFromObject(object), object)
			return string(object.GetUID()), err
		}
		for _, object := range []client.Object{
			&admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: guard},
			&admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: guard},
			&rbacv1.ClusterRoleBinding{ObjectMeta: bootstrapper},
			&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "poolboot:node-certificate-renewal"}},
		} {
			Eventually(ctx, getUID).WithArguments(object).ShouldNot(BeEmpty())
			before := object.GetUID()
			Expect(lab.WorkloadClient.Delete(ctx, object)).To(Succeed())
			Eventually(ctx, getUID).WithArguments(object).Should(And(Not(BeEmpty()), Not(BeEquivalentTo(before))), object.GetName())
		}

		binding := &rbacv1.ClusterRoleBinding{ObjectMeta: bootstrapper}
		_, err := getUID(ctx, binding)
		Expect(err).NotTo(HaveOccurred())
		want := binding.DeepCopy()
		binding.Subjects = nil
		Expect(lab.WorkloadClient.Update(ctx, binding)).To(Succeed())
		current := func(ctx context.Context) (*rbacv1.ClusterRoleBinding, error) {
			_, err := getUID(ctx, binding)
			return binding, err
		}
		Eventually(ctx, current).Should(HaveField("Subjects", want.Subjects))
		delete(binding.Labels, poolv1.ManagedByLabel)
		Expect(lab.WorkloadClient.Update(ctx, binding)).To(Succeed())
		Eventually(ctx, current).Should(HaveField("Labels", want.Labels))
	}, SpecTimeout(5*time.Minute))
})
