package e2e

import (
	"context"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hostaccess"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

// promptly is how often a step is looked for that a crash has to follow at once.
const promptly = 10 * time.Millisecond

var _ = Describe("Poolboot that is killed", func() {
	It("between the steps of a boot goes on where it was: one Secret, one Node, born in its pool, and nothing left", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 0)
		history, err := site.RecordNodes(ctx, lab.WorkloadClient)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(revive)
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		t.Deploy(ctx, tenant.Deployment{Name: "worker", Replicas: 1})
		configs := map[string]*bootstrapv1.PoolbootConfig{"infra": t.Config(ctx, "infra"), "worker": t.Config(ctx, "worker")}
		eventually := func(step string, taken func(*bootstrapv1.PoolbootConfig) bool) {
			GinkgoHelper()
			By(step)
			for _, config := range configs {
				Eventually(ctx, func() (bool, error) {
					err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(config), config)
					return taken(config), err
				}).WithPolling(promptly).Should(BeTrue(), step)
			}
		}

		secrets := map[string]*corev1.Secret{"infra": {}, "worker": {}}
		for role, secret := range secrets {
			Eventually(ctx, func() error {
				return lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(configs[role]), secret)
			}).WithPolling(promptly).Should(Succeed(), "the data Secret")
		}
		kill(lab.Manager, lab.ConfigServer)
		start(ctx, lab.Manager, lab.ConfigServer)
		eventually("the data Secret known to the Machine", func(c *bootstrapv1.PoolbootConfig) bool {
			return ptr.Deref(t.Machine(ctx, c).Spec.Bootstrap.DataSecretName, "") == c.Name
		})

		kill(lab.Manager)
		t.AddHosts(ctx, 2)
		eventually("the boot request, while nobody prepares", func(c *bootstrapv1.PoolbootConfig) bool { return c.Status.Boot.RequestedTime != nil })
		kill(lab.ConfigServer)
		start(ctx, lab.Manager)
		Eventually(ctx, func() []corev1.Node {
			return slices.Concat(nodes(ctx, configs["infra"]), nodes(ctx, configs["worker"]))
		}).WithPolling(promptly).ShouldNot(BeEmpty(), "the first Node")
		kill(lab.Manager)
		start(ctx, lab.Manager)
		eventually("the pre-registration, while nobody serves", func(c *bootstrapv1.PoolbootConfig) bool { return c.Status.Boot.PreparedTime != nil })
		letStand(ctx, configs["infra"], true)
		letStand(ctx, configs["worker"], true)
		kill(lab.Manager)
		start(ctx, lab.ConfigServer)
		eventually("the configuration served, while nobody approves", func(c *bootstrapv1.PoolbootConfig) bool { return c.Status.Boot.ServedTime != nil })
		kill(lab.ConfigServer)
		start(ctx, lab.Manager, lab.ConfigServer)

		By("the kubelet registered, while nobody ends the boot")
		var first *bootstrapv1.PoolbootConfig
		Eventually(ctx, func() *bootstrapv1.PoolbootConfig {
			first = approved(ctx, configs)
			return first
		}).WithPolling(promptly).ShouldNot(BeNil())
		kill(lab.Manager, lab.ConfigServer)
		Eventually(ctx, func() bool { return site.Ready(t.Node(ctx, first)) }).Should(BeTrue())
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(first), first)).To(Succeed())
		Expect(hostaccess.HasJoined(first)).To(BeFalse())
		start(ctx, lab.Manager, lab.ConfigServer)

		for role, config := range configs {
			letStand(ctx, config, false)
			joined(ctx, t, config)
			Expect(config.Status.PoolRole).To(Equal(role))
			seen := versions(ctx, history, config.Status.NodeRef.Name)
			verdict := site.Judge(seen, role, pools(ctx, t))
			Expect(verdict).To(Equal(site.Verdict{Versions: verdict.Versions, BornInPool: true}))
			Expect(overlays(ctx, config)).To(BeEmpty())
			Expect(joinTokens(ctx, config)).To(BeEmpty())
			Expect(nodes(ctx, config)).To(HaveExactElements(HaveField("Name", config.Status.NodeRef.Name)))
			for _, version := range seen {
				Expect(string(version.Node.UID)).To(Equal(config.Status.NodeRef.UID), "there was one Node only")
			}
			secret := &corev1.Secret{}
			Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(config), secret)).To(Succeed())
			Expect(secret.UID).To(Equal(secrets[role].UID))
			Expect(secret.Data).To(Equal(secrets[role].Data))
			Expect(secret.ManagedFields).To(ContainElement(secrets[role].ManagedFields[0]), "written once: the operator adds its label only")
		}
	}, SpecTimeout(5*time.Minute))
})

// approved returns a config whose host's request for a certificate is approved, nil while there is none.
func approved(ctx context.Context, configs map[string]*bootstrapv1.PoolbootConfig) *bootstrapv1.PoolbootConfig {
	var requests certificatesv1.CertificateSigningRequestList
	ExpectWithOffset(1, lab.WorkloadClient.List(ctx, &requests)).To(Succeed())
	for _, request := range requests.Items {
		for _, config := range configs {
			if request.Spec.Username == bootstrapapi.BootstrapUserPrefix+config.Status.Boot.CredentialID && len(request.Status.Conditions) > 0 {
				return config
			}
		}
	}
	return nil
}

// letStand has a boot that is prepared stand before its end, or go on, by a pause of its config: certificates are
// approved all the same. Without, a Node may be Ready, and its boot over, before the manager that has just approved its
// certificate is killed. The manager must run.
func letStand(ctx context.Context, config *bootstrapv1.PoolbootConfig, stand bool) {
	GinkgoHelper()
	before := config.DeepCopy()
	delete(config.Annotations, clusterv1.PausedAnnotation)
	if stand {
		metav1.SetMetaDataAnnotation(&config.ObjectMeta, clusterv1.PausedAnnotation, "")
	}
	Expect(client.IgnoreNotFound(lab.ManagementClient.Patch(ctx, config, client.MergeFrom(before)))).To(Succeed())
}

// kill ends programs as a crash does.
func kill(programs ...*site.Program) {
	for _, program := range programs {
		ExpectWithOffset(1, program.Kill()).To(Succeed())
	}
}

// start starts programs that were killed; it returns when they are ready.
func start(ctx context.Context, programs ...*site.Program) {
	for _, program := range programs {
		ExpectWithOffset(1, program.Start(ctx)).To(Succeed())
	}
}

// revive gives the specs after one that failed half way both programs back.
func revive(ctx SpecContext) {
	if CurrentSpecReport().Failed() {
		kill(lab.Manager, lab.ConfigServer)
		start(ctx, lab.Manager, lab.ConfigServer)
	}
}
