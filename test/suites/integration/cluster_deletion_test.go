package integration

import (
	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// isMachineConfig says whether an object is a MachineConfig: those that are not rendered are a person's.
func isMachineConfig(object runtime.Object) bool {
	_, is := object.(*poolv1.MachineConfig)
	return is
}

var _ = Describe("A Cluster that is deleted", func() {
	It("takes all with it that was made for its hosts without a Machine, whatever the garbage collector takes first", func(ctx SpecContext) {
		a := newAnnotated(ctx)
		record, _ := a.boots(ctx)
		b := newToken(ctx, a.Tenant, lab.ManagementClient, 1)
		Eventually(ctx, b.ready).Should(HavePrefix("True"))
		served(ctx, b.pointer(b.name(0)))
		enrolled := b.record(b.name(0))
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(enrolled), enrolled)).To(Succeed())

		Expect(lab.ManagementClient.Delete(ctx, a.Cluster)).To(Succeed())
		for _, list := range []client.ObjectList{
			&bootstrapv1.PoolbootConfigList{}, &poolv1.MachineConfigPoolList{}, &poolv1.MachineConfigList{}, &poolv1.EnrollmentList{},
		} {
			Eventually(ctx, func() (left []string, err error) {
				if err := lab.ManagementClient.List(ctx, list, client.InNamespace(a.Namespace)); err != nil {
					return nil, err
				}
				return left, meta.EachListItem(list, func(item runtime.Object) error {
					if _, rendered := item.(client.Object).GetLabels()[poolv1.RenderedForLabel]; rendered || !isMachineConfig(item) {
						left = append(left, item.(client.Object).GetName())
					}
					return nil
				})
			}).Should(BeEmpty(), "%T", list)
		}
		for _, config := range []*bootstrapv1.PoolbootConfig{record, enrolled} {
			overlay := client.ObjectKey{Namespace: "poolboot-system", Name: bootstrapv1.OverlayNamePrefix + string(config.UID)}
			Eventually(ctx, func() error { return lab.ManagementClient.Get(ctx, overlay, &corev1.Secret{}) }).Should(Satisfy(apierrors.IsNotFound))
		}
		Eventually(ctx, func() error {
			return lab.ManagementClient.Get(ctx, client.ObjectKey{Namespace: a.Namespace, Name: record.Name}, &corev1.Secret{})
		}).Should(Satisfy(apierrors.IsNotFound), "the data Secret")

		By("leaving what is a person's: the host with its image and annotations, the token, the template")
		host, err := a.host(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(host.Spec.UserData).To(BeNil())
		Expect(host).To(And(HaveField("Spec.Image", Not(BeNil())), HaveField("Status.Provisioning.State", Or(
			Equal(bmov1alpha1.StateProvisioning), Equal(bmov1alpha1.StateProvisioned)))))
		Expect(host.Annotations).To(HaveKey(poolv1.HostPoolAnnotation))
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(b.secret), &corev1.Secret{})).To(Succeed())
	})
})
