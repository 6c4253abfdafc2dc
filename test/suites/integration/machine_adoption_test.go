package integration

import (
	"context"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	infrav1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/metal3/v1beta2"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

var _ = Describe("A Machine that Poolboot does not boot", func() {
	It("is adopted once it has joined if its pool says so, also again, and its PoolbootConfig is deleted with it", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 1, func(p *poolv1.MachineConfigPool) {
			if p.Spec.PoolRole == "infra" {
				p.Spec.Adoption = poolv1.PoolAdoptionPreview
			}
		})
		name := t.Namespace + "-foreign"
		machine := &clusterv1.Machine{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: t.Namespace, poolv1.NodeRoleLabelPrefix + "infra": ""}},
			Spec: clusterv1.MachineSpec{
				ClusterName: t.Namespace, Version: "v1.36.3", Bootstrap: clusterv1.Bootstrap{DataSecretName: ptr.To("foreign")},
				InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "Metal3Machine", Name: name},
			},
		}
		metal3Machine := &infrav1.Metal3Machine{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: t.Namespace}}}
		metal3Machine.Spec.Image = infrav1.Image{URL: site.KubeletImageURL, Checksum: site.KubeletImageURL + ".sha256sum"}
		t.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "foreign"}, Data: map[string][]byte{"value": []byte("#cloud-config\n")}, Type: clusterv1.ClusterSecretType}, metal3Machine, machine)
		host := &bmov1alpha1.BareMetalHost{}
		Eventually(ctx, func() bmov1alpha1.ProvisioningState {
			Expect(lab.ManagementClient.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: t.HostName(0)}, host)).To(Succeed())
			return host.Status.Provisioning.State
		}).Should(Equal(bmov1alpha1.StateProvisioned))

		By("joining as kubeadm does")
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: t.HostName(0), Labels: map[string]string{"metal3.io/uuid": string(host.UID)}}}
		Expect(lab.WorkloadClient.Create(ctx, node)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) error { return client.IgnoreNotFound(lab.WorkloadClient.Delete(ctx, node)) })
		config := &bootstrapv1.PoolbootConfig{}
		read := func(ctx context.Context) (*bootstrapv1.PoolbootConfig, error) {
			config = &bootstrapv1.PoolbootConfig{}
			return config, lab.ManagementClient.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: name}, config)
		}
		isAdopted := func(policy bootstrapv1.AdoptionPolicy) {
			GinkgoHelper()
			Eventually(ctx, read).Should(And(
				HaveField("Spec.Host", bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeNode, NodeName: node.Name, Adoption: policy}),
				HaveField("Spec.PoolRole", "infra"), HaveField("DeletionTimestamp", BeNil()),
				HaveField("OwnerReferences", ConsistOf(And(HaveField("Kind", "Machine"), HaveField("Name", name)))),
				WithTransform(func(c *bootstrapv1.PoolbootConfig) string {
					return conditions.GetReason(c, bootstrapv1.UpdatedCondition)
				}, Equal(bootstrapv1.NoAgentReason)),
			))
		}
		isAdopted(bootstrapv1.AdoptionPreview)
		Expect(conditions.GetMessage(config, bootstrapv1.UpdatedCondition)).To(ContainSubstring("kubectl poolboot install-agent " + name + " -n " + t.Namespace))

		By("changing the pool, and deleting the PoolbootConfig")
		infra := t.Pool("infra")
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(infra), infra)).To(Succeed())
		before := infra.DeepCopy()
		infra.Spec.Adoption = poolv1.PoolAdoptionFollow
		Expect(lab.ManagementClient.Patch(ctx, infra, client.MergeFrom(before))).To(Succeed())
		Consistently(ctx, read).Should(HaveField("Spec.Host.Adoption", bootstrapv1.AdoptionPreview))
		Expect(lab.ManagementClient.Delete(ctx, config)).To(Succeed())
		isAdopted(bootstrapv1.AdoptionFollow)

		By("deleting the Machine")
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(machine), machine)).To(Succeed())
		Expect(lab.ManagementClient.Delete(ctx, machine)).To(Succeed())
		Eventually(ctx, func() int {
			configs := &bootstrapv1.PoolbootConfigList{}
			Expect(lab.ManagementClient.List(ctx, configs, client.InNamespace(t.Namespace))).To(Succeed())
			return len(configs.Items)
		}).Should(BeZero())
	})
})
