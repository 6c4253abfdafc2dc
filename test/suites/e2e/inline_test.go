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
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/baremetal"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/kubeadm"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

func setInline(spec *bootstrapv1.BootSpec) {
	spec.ConfigSource = bootstrapv1.ConfigSource{Type: bootstrapv1.ConfigSourceTypeInline}
}

var _ = Describe("A host that can't reach the config server", func() {
	BeforeEach(func(ctx SpecContext) { stopProgram(ctx, lab.ConfigServer) })

	It("boots into its pool with its data Secret, although the credential would have expired before a host was available", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 0)
		history, err := site.RecordNodes(ctx, lab.WorkloadClient)
		Expect(err).NotTo(HaveOccurred())
		infra := t.Pool("infra")
		Eventually(ctx, func() (poolv1.PoolConfiguration, error) {
			err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(infra), infra)
			return infra.Status.Configuration, err
		}).Should(HaveValue(HaveField("Source", HaveLen(2))), "the data Secret is written once, with the configuration that is rendered at that time")
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels, Config: setInline})
		config := t.Config(ctx, "infra")
		content, credential := readInlineSecret(ctx, t, config)
		Expect(content.Ignition.Config.Merge).To(BeEmpty(), "the host fetches nothing")
		Expect(listPaths(content)).To(ContainElements("/etc/workertest", "/etc/infratest", "/etc/kubernetes/bootstrap-kubelet.conf", "/etc/poolboot/kubelet.env"))
		token := "bootstrap-token-" + credential.ID
		Expect(listJoinTokens(ctx, config)).To(ConsistOf(HaveField("Name", token)))
		Eventually(t.Condition(config, bootstrapv1.BootPreparedCondition)).WithContext(ctx).Should(HavePrefix("Unknown WaitingForHost"))
		name := t.Machine(ctx, config).Name

		By("booting the host while the manager is stopped and the credential is about to expire")
		restart := stopProgram(ctx, lab.Manager)
		setCredentialExpiration(ctx, config, time.Now().Add(5*time.Minute)) // enough to boot a host on a busy machine
		t.AddHosts(ctx, 1)
		Eventually(ctx, func() []certificatesv1.CertificateSigningRequest { return listClientRequests(ctx, name) }).Should(And(Not(BeEmpty()), HaveEach(
			HaveField("Status.Conditions", BeEmpty()))), "its request for a certificate is pending")
		Expect(listNodes(ctx, config)).To(BeEmpty())

		By("restarting the manager")
		restart()
		expectJoined(ctx, t, config)
		expectBornInPool(ctx, t, config, history)
		node := t.Node(ctx, config)
		Expect(node.Labels).To(HaveKeyWithValue("metal3.io/uuid", config.Status.HostRef.UID))
		Expect(node.Spec.ProviderID).To(HavePrefix("metal3://" + t.Namespace + "/" + config.Status.HostRef.Name + "/"))
		Expect(readHostFile(config, "/etc/infratest")).To(Equal("infra"))
		Expect(findInAuditLog("patch", "secrets", "", token)).To(BeNumerically("<", findInAuditLog("delete", "secrets", "", token)),
			"the credential's expiration was extended before its deletion")
	})

	It("joins with kubeadm, although the manager was stopped until the credential had expired and the host had booted", func(ctx SpecContext) {
		Expect(kubeadm.Init(ctx, lab.Workload, kubeadmToken)).To(Succeed())
		t := tenant.New(ctx, lab, 0)
		history, err := site.RecordNodes(ctx, lab.WorkloadClient)
		Expect(err).NotTo(HaveOccurred())
		config := deployKubeadm(ctx, t, setInline)
		_, credential := readInlineSecret(ctx, t, config)

		restart := stopProgram(ctx, lab.Manager)
		setCredentialExpiration(ctx, config, time.Now().Add(-time.Minute))
		Eventually(ctx, func() []corev1.Secret { return listJoinTokens(ctx, config) }).Should(BeEmpty(), "kube-controller-manager deletes expired tokens")
		t.AddHosts(ctx, 1)
		Eventually(ctx, func() bool {
			machine := lab.Hardware.Host(t.HostName(0))
			return machine != nil && !machine.When(baremetal.UnitsStarted).IsZero()
		}).Should(BeTrue(), "the host boots without the manager")
		restart()
		Eventually(ctx, func() []corev1.Secret { return listJoinTokens(ctx, config) }).Should(ConsistOf(
			HaveField("Data", HaveKeyWithValue("token-secret", []byte(credential.Secret)))))
		expectJoined(ctx, t, config)
		expectBornInPool(ctx, t, config, history)
	})

	It("can't have nodeNameSource Host: the Node's name is fixed before a host is chosen", func(ctx SpecContext) {
		t := tenant.NewEmpty(ctx, lab)
		template := &bootstrapv1.PoolbootConfigTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: t.Namespace, Name: "infra"}}
		template.Spec.Template.Spec.Join.Type = bootstrapv1.JoinTypeKubelet
		template.Spec.Template.Spec.NodeNameSource = bootstrapv1.NodeNameSourceHost
		setInline(&template.Spec.Template.Spec)
		Expect(lab.ManagementClient.Create(ctx, template)).To(MatchError(ContainSubstring("spec.template.spec.nodeNameSource")))
	})
})

// readInlineSecret waits for a config's data Secret and returns its Ignition and join credential.
func readInlineSecret(ctx context.Context, t *tenant.Tenant, config *bootstrapv1.PoolbootConfig) (ignition.Config, join.Credential) {
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

func listPaths(config ignition.Config) (paths []string) {
	for _, file := range config.Storage.Files {
		paths = append(paths, file.Path)
	}
	return paths
}

// setCredentialExpiration changes when a config's join credential expires, in its status and in the workload cluster.
func setCredentialExpiration(ctx context.Context, config *bootstrapv1.PoolbootConfig, expiration time.Time) {
	GinkgoHelper()
	token := listJoinTokens(ctx, config)[0]
	token.Data["expiration"] = []byte(expiration.UTC().Format(time.RFC3339))
	Expect(lab.WorkloadClient.Update(ctx, &token)).To(Succeed())
	Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(config), config)).To(Succeed())
	before := config.DeepCopy()
	config.Status.Boot.CredentialExpirationTime = &metav1.Time{Time: expiration}
	Expect(lab.ManagementClient.Status().Patch(ctx, config, client.MergeFrom(before))).To(Succeed())
}
