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

// isMachineConfig reports whether an object is a MachineConfig. Those that are not rendered belong to users.
func isMachineConfig(object runtime.Object) bool {
	_, ok := object.(*poolv1.MachineConfig)
	return ok
}

var _ = Describe("A deleted Cluster", func() {
	It("takes with it all objects that Poolboot created for its hosts without a Machine, in any order of garbage collection", func(ctx SpecContext) {
		a := newAnnotatedHost(ctx)
		record, _ := a.boot(ctx)
		b := createEnrollmentToken(ctx, a.Tenant, lab.ManagementClient, 1)
		Eventually(ctx, b.getReady).Should(HavePrefix("True"))
		fetchConfiguration(ctx, b.pointer(b.hostName(0)))
		enrolled := b.newRecord(b.hostName(0))
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

		By("keeping the objects of users: the host with its image and annotations, and the token's Secret")
		host, err := a.getHost(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(host.Spec.UserData).To(BeNil())
		Expect(host).To(And(HaveField("Spec.Image", Not(BeNil())), HaveField("Status.Provisioning.State", Or(
			Equal(bmov1alpha1.StateProvisioning), Equal(bmov1alpha1.StateProvisioned)))))
		Expect(host.Annotations).To(HaveKey(poolv1.HostPoolAnnotation))
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(b.secret), &corev1.Secret{})).To(Succeed())
	})
})
