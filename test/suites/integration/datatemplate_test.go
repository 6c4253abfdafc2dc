package integration

import (
	"context"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	ipamv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/metal3/ipam/v1alpha1"
	infrav1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/metal3/v1beta2"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

var _ = Describe("A Machine with a data template of Metal3", func() {
	It("boots into its pool, and leaves references on its host that explain names when they keep the next Machine from booting", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 1)
		history, err := site.RecordNodes(ctx, lab.WorkloadClient)
		Expect(err).NotTo(HaveOccurred())
		t.Create(ctx,
			&ipamv1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "rack"}, Spec: ipamv1.IPPoolSpec{
				NamePrefix: "rack", Prefix: 24, Pools: []ipamv1.Pool{{Start: "192.0.2.10", End: "192.0.2.19"}}}},
			&infrav1.Metal3DataTemplate{ObjectMeta: metav1.ObjectMeta{Name: "rack"}, Spec: infrav1.Metal3DataTemplateSpec{
				MetaData: &infrav1.MetaData{ObjectNames: []infrav1.MetaDataObjectName{{Key: "name", Object: "machine"}}},
				NetworkData: &infrav1.NetworkData{Networks: infrav1.NetworkDataNetwork{
					IPv4: []infrav1.NetworkDataIPv4{{ID: "net", Link: "eth0", IPAddressFromIPPool: "rack"}}}}}})
		deployment := t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels, DataTemplate: "rack"})
		config := t.Config(ctx, "infra")
		waitForConfiguration(ctx, t, config)
		name := config.Status.NodeRef.Name
		Eventually(ctx, func() []site.NodeVersion { return history.Of(name) }).ShouldNot(BeEmpty())
		Expect(site.Judge(history.Of(name), "infra", t.Pools(ctx))).To(And(HaveField("BornInPool", true), HaveField("Outside", 0)))
		bmh := newHost(t, t.HostName(0))
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(bmh), bmh)).To(Succeed())
		gone := t.Machine(ctx, config).Spec.InfrastructureRef.Name + "-networkdata"
		Expect(bmh.Spec.NetworkData).To(Equal(&corev1.SecretReference{Namespace: t.Namespace, Name: gone}))

		By("using the host for a Machine without a data template")
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(deployment), deployment)).To(Succeed())
		t.Scale(ctx, deployment, 0)
		Eventually(ctx, func(ctx context.Context) (*corev1.ObjectReference, error) {
			err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(bmh), bmh)
			return bmh.Spec.ConsumerRef, err
		}).Should(BeNil())
		t.Deploy(ctx, tenant.Deployment{Name: "plain", Replicas: 1})
		plain := t.Config(ctx, "plain")
		machine := t.Machine(ctx, plain)
		shell := &terminal{dir: GinkgoT().TempDir()}
		Eventually(ctx, func() string {
			return unwrap(shell.run(ctx, "kubectl poolboot explain machine "+machine.Name+" -n "+t.Namespace))
		}).Should(
			ContainSubstring("spec.networkData of BareMetalHost " + t.Namespace + "/" + bmh.Name + " is Secret " + gone +
				", which does not exist: create the Secret, or remove spec.networkData"))
		patch(ctx, bmh, func(h *bmov1alpha1.BareMetalHost) { h.Spec.MetaData, h.Spec.NetworkData = nil, nil })
		waitForConfiguration(ctx, t, plain)
		Expect(plain.Status.PoolRole).To(Equal("worker"))
	})
})
