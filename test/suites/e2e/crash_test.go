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
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

// crashPollingInterval is short, because a crash has to follow a step immediately.
const crashPollingInterval = 10 * time.Millisecond

var _ = Describe("Poolboot killed between the steps of a boot", func() {
	It("resumes the boot: one Secret, one Node that is always in its pool, and no leftovers", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 0)
		history, err := site.RecordNodes(ctx, lab.WorkloadClient)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(restartAfterFailure)
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		t.Deploy(ctx, tenant.Deployment{Name: "worker", Replicas: 1})
		configs := map[string]*bootstrapv1.PoolbootConfig{"infra": t.Config(ctx, "infra"), "worker": t.Config(ctx, "worker")}
		eventually := func(step string, reached func(*bootstrapv1.PoolbootConfig) bool) {
			GinkgoHelper()
			By(step)
			for _, config := range configs {
				Eventually(ctx, func() (bool, error) {
					err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(config), config)
					return reached(config), err
				}).WithPolling(crashPollingInterval).Should(BeTrue(), step)
			}
		}

		secrets := map[string]*corev1.Secret{"infra": {}, "worker": {}}
		for role, secret := range secrets {
			Eventually(ctx, func() error {
				return lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(configs[role]), secret)
			}).WithPolling(crashPollingInterval).Should(Succeed(), "the data Secret")
		}
		kill(lab.Manager, lab.ConfigServer)
		start(ctx, lab.Manager, lab.ConfigServer)
		eventually("waiting for the Machine to refer to the data Secret", func(c *bootstrapv1.PoolbootConfig) bool {
			return ptr.Deref(t.Machine(ctx, c).Spec.Bootstrap.DataSecretName, "") == c.Name
		})

		kill(lab.Manager)
		t.AddHosts(ctx, 2)
		eventually("waiting for the boot request while the manager is stopped", func(c *bootstrapv1.PoolbootConfig) bool { return c.Status.Requests.RequestedTime != nil })
		kill(lab.ConfigServer)
		start(ctx, lab.Manager)
		Eventually(ctx, func() []corev1.Node {
			return slices.Concat(listNodes(ctx, configs["infra"]), listNodes(ctx, configs["worker"]))
		}).WithPolling(crashPollingInterval).ShouldNot(BeEmpty(), "the first pre-registered Node")
		kill(lab.Manager)
		start(ctx, lab.Manager)
		eventually("waiting for the pre-registration while the config server is stopped", func(c *bootstrapv1.PoolbootConfig) bool { return c.Status.Boot.PreparedTime != nil })
		setPaused(ctx, configs["infra"], true)
		setPaused(ctx, configs["worker"], true)
		kill(lab.Manager)
		start(ctx, lab.ConfigServer)
		eventually("waiting for the configuration to be served while the manager is stopped", func(c *bootstrapv1.PoolbootConfig) bool { return c.Status.Requests.ServedTime != nil })
		kill(lab.ConfigServer)
		start(ctx, lab.Manager, lab.ConfigServer)

		By("waiting for the Node to be Ready while the manager is stopped")
		var first *bootstrapv1.PoolbootConfig
		Eventually(ctx, func() *bootstrapv1.PoolbootConfig {
			first = findApproved(ctx, configs)
			return first
		}).WithPolling(crashPollingInterval).ShouldNot(BeNil())
		kill(lab.Manager, lab.ConfigServer)
		Eventually(ctx, func() bool { return util.IsNodeReady(t.Node(ctx, first)) }).Should(BeTrue())
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(first), first)).To(Succeed())
		Expect(record.HasJoined(first)).To(BeFalse())
		start(ctx, lab.Manager, lab.ConfigServer)

		for role, config := range configs {
			setPaused(ctx, config, false)
			expectJoined(ctx, t, config)
			Expect(config.Status.PoolRole).To(Equal(role))
			seen := listVersions(ctx, history, config.Status.NodeRef.Name)
			verdict := site.Judge(seen, role, t.Pools(ctx))
			Expect(verdict).To(Equal(site.Verdict{Versions: verdict.Versions, BornInPool: true}))
			Expect(listOverlays(ctx, config)).To(BeEmpty())
			Expect(listJoinTokens(ctx, config)).To(BeEmpty())
			Expect(listNodes(ctx, config)).To(HaveExactElements(HaveField("Name", config.Status.NodeRef.Name)))
			for _, version := range seen {
				Expect(string(version.Node.UID)).To(Equal(config.Status.NodeRef.UID), "only one Node was created")
			}
			secret := &corev1.Secret{}
			Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(config), secret)).To(Succeed())
			Expect(secret.UID).To(Equal(secrets[role].UID))
			Expect(secret.Data).To(Equal(secrets[role].Data))
			Expect(secret.ManagedFields).To(ContainElement(secrets[role].ManagedFields[0]), "Poolboot wrote it once: the Bare Metal Operator adds its label")
		}
	}, SpecTimeout(5*time.Minute))
})

// findApproved returns a config whose host's certificate request was decided, or nil.
func findApproved(ctx context.Context, configs map[string]*bootstrapv1.PoolbootConfig) *bootstrapv1.PoolbootConfig {
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

// setPaused pauses or resumes the boot of a config. Certificates of a paused config are approved, but its boot is not
// completed: otherwise the manager can complete a boot between approving the certificate and being killed. The manager
// must be running.
func setPaused(ctx context.Context, config *bootstrapv1.PoolbootConfig, paused bool) {
	GinkgoHelper()
	before := config.DeepCopy()
	delete(config.Annotations, clusterv1.PausedAnnotation)
	if paused {
		metav1.SetMetaDataAnnotation(&config.ObjectMeta, clusterv1.PausedAnnotation, "")
	}
	Expect(client.IgnoreNotFound(lab.ManagementClient.Patch(ctx, config, client.MergeFrom(before)))).To(Succeed())
}

// kill kills programs with SIGKILL.
func kill(programs ...*site.Program) {
	for _, program := range programs {
		ExpectWithOffset(1, program.Kill()).To(Succeed())
	}
}

// start starts killed programs and waits until they are ready.
func start(ctx context.Context, programs ...*site.Program) {
	for _, program := range programs {
		ExpectWithOffset(1, program.Start(ctx)).To(Succeed())
	}
}

// restartAfterFailure restarts both programs when the current spec has failed, for the specs after it.
func restartAfterFailure(ctx SpecContext) {
	if CurrentSpecReport().Failed() {
		kill(lab.Manager, lab.ConfigServer)
		start(ctx, lab.Manager, lab.ConfigServer)
	}
}
