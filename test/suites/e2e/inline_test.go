package e2e

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/kubeadm"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

func inline(spec *bootstrapv1.BootSpec) {
	spec.ConfigSource = bootstrapv1.ConfigSource{Type: bootstrapv1.ConfigSourceInline}
}

var _ = Describe("A host that can't reach the config server", func() {
	BeforeEach(func(ctx SpecContext) { without(ctx, lab.ConfigServer) })

	It("is born in its pool with what is in the data Secret, however long it takes to get one", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 0)
		history, err := site.RecordNodes(ctx, lab.WorkloadClient)
		Expect(err).NotTo(HaveOccurred())
		infra := t.Pool("infra")
		Eventually(ctx, func() (poolv1.PoolConfiguration, error) {
			err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(infra), infra)
			return infra.Status.Configuration, err
		}).Should(HaveValue(HaveField("Source", HaveLen(2))), "the data Secret is written once, with what is rendered by then")
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels, Config: inline})
		config := t.Config(ctx, "infra")
		content, credential := inlined(ctx, t, config)
		Expect(content.Ignition.Config.Merge).To(BeEmpty(), "nothing is fetched")
		Expect(pathsIn(content)).To(ContainElements("/etc/workertest", "/etc/infratest", "/etc/kubernetes/bootstrap-kubelet.conf", "/etc/poolboot/kubelet.env"))
		token := "bootstrap-token-" + credential.ID
		Expect(joinTokens(ctx, config)).To(ConsistOf(HaveField("Name", token)))
		Eventually(t.Condition(config, bootstrapv1.BootPreparedCondition)).WithContext(ctx).Should(HavePrefix("Unknown WaitingForHost"))
		name := t.Machine(ctx, config).Name

		By("letting the host boot while the manager is gone and the credential is about to end")
		back := without(ctx, lab.Manager)
		endsAt(ctx, config, time.Now().Add(5*time.Minute)) // what a busy machine takes to boot a host
		t.AddHosts(ctx, 1)
		Eventually(ctx, func() []certificatesv1.CertificateSigningRequest { return requestsFor(ctx, name) }).Should(And(Not(BeEmpty()), HaveEach(
			HaveField("Status.Conditions", BeEmpty()))), "it asks for a certificate and gets none")
		Expect(nodes(ctx, config)).To(BeEmpty())

		By("having the manager back")
		back()
		joined(ctx, t, config)
		expectBornInPool(ctx, t, config, history)
		node := t.Node(ctx, config)
		Expect(node.Labels).To(HaveKeyWithValue("metal3.io/uuid", config.Status.HostRef.UID))
		Expect(node.Spec.ProviderID).To(HavePrefix("metal3://" + t.Namespace + "/" + config.Status.HostRef.Name + "/"))
		Expect(onDisk(config, "/etc/infratest")).To(Equal("infra"))
		Expect(answered("patch", "secrets", "", token)).To(BeNumerically("<", answered("delete", "secrets", "", token)),
			"the credential's life was extended before it went")
	})

	It("joins with kubeadm, although the manager was gone until the credential had ended and the host had booted", func(ctx SpecContext) {
		Expect(kubeadm.Init(ctx, lab.Workload, kubeadmToken)).To(Succeed())
		t := tenant.New(ctx, lab, 0)
		history, err := site.RecordNodes(ctx, lab.WorkloadClient)
		Expect(err).NotTo(HaveOccurred())
		config := deployKubeadm(ctx, t, inline)
		_, credential := inlined(ctx, t, config)

		back := without(ctx, lab.Manager)
		endsAt(ctx, config, time.Now().Add(-time.Minute))
		Eventually(ctx, func() []corev1.Secret { return joinTokens(ctx, config) }).Should(BeEmpty(), "Kubernetes cleans up")
		t.AddHosts(ctx, 1)
		Eventually(ctx, func() bool {
			machine := lab.Hardware.Host(t.HostName(0))
			return machine != nil && !machine.When(host.UnitsStarted).IsZero()
		}).Should(BeTrue(), "the host boots by itself")
		back()
		Eventually(ctx, func() []corev1.Secret { return joinTokens(ctx, config) }).Should(ConsistOf(
			HaveField("Data", HaveKeyWithValue("token-secret", []byte(credential.Secret)))))
		joined(ctx, t, config)
		expectBornInPool(ctx, t, config, history)
	})

	It("can't name its Node after itself: the name is fixed before it is chosen", func(ctx SpecContext) {
		t := tenant.NewEmpty(ctx, lab)
		template := &bootstrapv1.PoolbootConfigTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: t.Namespace, Name: "infra"}}
		template.Spec.Template.Spec.Join.Type = bootstrapv1.JoinKubelet
		template.Spec.Template.Spec.NodeNameSource = bootstrapv1.NodeNameFromHost
		inline(&template.Spec.Template.Spec)
		Expect(lab.ManagementClient.Create(ctx, template)).To(MatchError(ContainSubstring("spec.template.spec.nodeNameSource")))
	})
})

// inlined waits for a config's data Secret and returns what is in it.
func inlined(ctx context.Context, t *tenant.Tenant, config *bootstrapv1.PoolbootConfig) (ignition.Config, join.Credential) {
	GinkgoHelper()
	Eventually(t.Condition(config, clusterv1.ReadyCondition)).WithContext(ctx).Should(HavePrefix("True"))
	secret := &corev1.Secret{}
	Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(config), secret)).To(Succeed())
	content, err := ignition.Parse(secret.Data["value"])
	Expect(err).NotTo(HaveOccurred())
	credential, err := join.CredentialIn(content)
	Expect(err).NotTo(HaveOccurred())
	return content, credential
}

func pathsIn(config ignition.Config) (paths []string) {
	for _, file := range config.Storage.Files {
		paths = append(paths, file.Path)
	}
	return paths
}

// endsAt lets time pass by for a config's join credential: on record and in the workload cluster.
func endsAt(ctx context.Context, config *bootstrapv1.PoolbootConfig, end time.Time) {
	GinkgoHelper()
	token := joinTokens(ctx, config)[0]
	token.Data["expiration"] = []byte(end.UTC().Format(time.RFC3339))
	Expect(lab.WorkloadClient.Update(ctx, &token)).To(Succeed())
	Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(config), config)).To(Succeed())
	before := config.DeepCopy()
	config.Status.Boot.CredentialExpirationTime = &metav1.Time{Time: end}
	Expect(lab.ManagementClient.Status().Patch(ctx, config, client.MergeFrom(before))).To(Succeed())
}
