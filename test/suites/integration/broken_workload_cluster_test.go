package integration

import (
	"encoding/pem"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/clusterapi"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/loopback"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/rights"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

// brokenCluster is a tenant whose kubeconfig does not give Poolboot access to an API server.
type brokenCluster struct {
	*tenant.Tenant
	kubeconfig   []byte
	refusedField string // the invalid field of the kubeconfig; empty if the kubeconfig is valid
	config       *bootstrapv1.PoolbootConfig
}

// newKubeconfig returns a changed copy of the workload cluster administrator's kubeconfig.
func newKubeconfig(change func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo)) []byte {
	GinkgoHelper()
	config, err := clientcmd.LoadFromFile(lab.Workload.Kubeconfig)
	Expect(err).NotTo(HaveOccurred())
	current := config.Contexts[config.CurrentContext]
	change(config.Clusters[current.Cluster], config.AuthInfos[current.AuthInfo])
	content, err := clientcmd.Write(*config)
	Expect(err).NotTo(HaveOccurred())
	return content
}

// startSilentServer starts a server that accepts connections and never answers.
func startSilentServer() string {
	GinkgoHelper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(listener.Close)
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			DeferCleanup(connection.Close)
		}
	}()
	return "https://" + listener.Addr().String()
}

var _ = Describe("Workload clusters that are unreachable or have an invalid kubeconfig", func() {
	It("answer their hosts with 503, report the cause, do not delay other clusters, and recover when the kubeconfig is corrected", func(ctx SpecContext) {
		stranger, err := loopback.NewCA("a stranger")
		Expect(err).NotTo(HaveOccurred())
		nobody, err := lab.Workload.UserKubeconfig("nobody")
		Expect(err).NotTo(HaveOccurred())
		silent := startSilentServer()
		touched, token := filepath.Join(GinkgoT().TempDir(), "touched"), filepath.Join(GinkgoT().TempDir(), "token")
		Expect(os.WriteFile(token, []byte("the manager's token"), 0o600)).To(Succeed())
		var stolen atomic.Int32
		thief := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			// Cluster API's own managers read tokenFile. The default user agent is the program's name.
			if strings.Contains(r.UserAgent(), rights.Manager) || strings.HasPrefix(r.UserAgent(), "manager/") {
				stolen.Add(1)
			}
		}))
		DeferCleanup(thief.Close)
		thiefCA := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: thief.Certificate().Raw})
		bad := []*brokenCluster{
			{kubeconfig: newKubeconfig(func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.CertificateAuthorityData = stranger.PEM() })},
			{kubeconfig: newKubeconfig(func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.Server = silent })},
			{kubeconfig: nobody},
			{refusedField: "users[0].user.exec", kubeconfig: newKubeconfig(func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
				u.Exec = &clientcmdapi.ExecConfig{Command: "touch", Args: []string{touched}, APIVersion: "client.authentication.k8s.io/v1",
					InteractiveMode: clientcmdapi.NeverExecInteractiveMode}
			})},
			{refusedField: "users[0].user.tokenFile", kubeconfig: newKubeconfig(func(c *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
				c.Server, c.CertificateAuthorityData, u.TokenFile = thief.URL, thiefCA, token
			})},
		}
		for _, b := range bad {
			b.Tenant = tenant.NewEmpty(ctx, lab)
			b.CreateCluster(ctx, clusterapi.ClusterOptions{Kubeconfig: b.kubeconfig})
			b.Create(ctx, b.Pool("worker"), b.Pool("infra"), b.MachineConfig("51-infra", "infra", "/etc/infratest", "infra"))
			b.AddHosts(ctx, 2)
			b.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 2, Labels: infraLabels})
		}
		for _, b := range bad {
			Eventually(ctx, func() []bootstrapv1.PoolbootConfig { return b.Configs(ctx, "infra") }).Should(HaveLen(2))
			b.config = &b.Configs(ctx, "infra")[0]
			secret := "the kubeconfig in Secret " + b.Namespace + "/" + b.Namespace + "-kubeconfig"
			reason, message := bootstrapv1.WorkloadClusterUnreachableReason, HaveSuffix("no API server answers to "+secret+
				": check its server, its certificate authority and its user; the manager's log has the cause")
			if b.refusedField != "" {
				reason, message = bootstrapv1.KubeconfigInvalidReason, And(ContainSubstring(b.refusedField+": "), HaveSuffix("correct "+secret))
			}
			Eventually(ctx, b.Condition(b.config, bootstrapv1.BootPreparedCondition)).Should(And(HavePrefix("False "+reason), message))
			Eventually(ctx, b.Condition(b.config, clusterv1.ReadyCondition)).Should(HavePrefix("False " + reason))
			for i := range 2 {
				host := hosts.get(client.ObjectKey{Namespace: b.Namespace, Name: b.HostName(i)})
				Eventually(ctx, host.statusCodes).Should(And(Not(BeEmpty()), HaveEach(503)))
			}
		}

		By("booting a host of a working cluster meanwhile")
		bootHost(ctx, tenant.New(ctx, lab, 1), nil)
		for _, b := range bad {
			Expect(b.Condition(b.config, bootstrapv1.BootPreparedCondition)(ctx)).To(HavePrefix("False "), "the broken clusters stay broken")
		}

		By("correcting their kubeconfigs")
		correct, err := os.ReadFile(lab.Workload.Kubeconfig)
		Expect(err).NotTo(HaveOccurred())
		for _, b := range bad {
			patch(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: b.Namespace + "-kubeconfig"}}, func(s *corev1.Secret) { s.Data["value"] = correct })
		}
		for _, b := range bad {
			waitForConfiguration(ctx, b.Tenant, b.config)
		}
		Expect(touched).NotTo(BeAnExistingFile(), "no program of the kubeconfig was run")
		Expect(stolen.Load()).To(BeZero(), "no file of the manager was sent")
	}, SpecTimeout(5*time.Minute))
})
