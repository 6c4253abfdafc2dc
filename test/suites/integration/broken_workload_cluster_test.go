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

// badCluster is a tenant whose kubeconfig leads to no API server that Poolboot can work with.
type badCluster struct {
	*tenant.Tenant
	kubeconfig []byte
	refused    string // the field that is refused; empty when nothing is wrong but what answers
	config     *bootstrapv1.PoolbootConfig
}

// changedKubeconfig is the workload cluster administrator's kubeconfig, with another way to the API server.
func changedKubeconfig(do func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo)) []byte {
	GinkgoHelper()
	config, err := clientcmd.LoadFromFile(lab.Workload.Kubeconfig)
	Expect(err).NotTo(HaveOccurred())
	chosen := config.Contexts[config.CurrentContext]
	do(config.Clusters[chosen.Cluster], config.AuthInfos[chosen.AuthInfo])
	content, err := clientcmd.Write(*config)
	Expect(err).NotTo(HaveOccurred())
	return content
}

// silentServer takes connections and never says a word.
func silentServer() string {
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

var _ = Describe("Workload clusters that lie, keep silent or refuse", func() {
	It("give their hosts 503 and the cause, hold up no others, and are right again when their kubeconfig is", func(ctx SpecContext) {
		stranger, err := loopback.NewCA("a stranger")
		Expect(err).NotTo(HaveOccurred())
		nobody, err := lab.Workload.UserKubeconfig("nobody")
		Expect(err).NotTo(HaveOccurred())
		silent := silentServer()
		touched, token := filepath.Join(GinkgoT().TempDir(), "touched"), filepath.Join(GinkgoT().TempDir(), "token")
		Expect(os.WriteFile(token, []byte("the manager's own token"), 0o600)).To(Succeed())
		var stolen atomic.Int32
		thief := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			// Cluster API's own managers follow tokenFile. Without a name of its own a client has its program's.
			if strings.Contains(r.UserAgent(), rights.Manager) || strings.HasPrefix(r.UserAgent(), "manager/") {
				stolen.Add(1)
			}
		}))
		DeferCleanup(thief.Close)
		thiefCA := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: thief.Certificate().Raw})
		bad := []*badCluster{
			{kubeconfig: changedKubeconfig(func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.CertificateAuthorityData = stranger.PEM() })},
			{kubeconfig: changedKubeconfig(func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.Server = silent })},
			{kubeconfig: nobody},
			{refused: "users[0].user.exec", kubeconfig: changedKubeconfig(func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
				u.Exec = &clientcmdapi.ExecConfig{Command: "touch", Args: []string{touched}, APIVersion: "client.authentication.k8s.io/v1",
					InteractiveMode: clientcmdapi.NeverExecInteractiveMode}
			})},
			{refused: "users[0].user.tokenFile", kubeconfig: changedKubeconfig(func(c *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
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
			reason, says := bootstrapv1.WorkloadClusterUnreachableReason, HaveSuffix("no API server answers to "+secret+
				": check its server, its certificate authority and its user; the manager's log has the cause")
			if b.refused != "" {
				reason, says = bootstrapv1.KubeconfigInvalidReason, And(ContainSubstring(b.refused+": "), HaveSuffix("correct "+secret))
			}
			Eventually(ctx, b.Condition(b.config, bootstrapv1.BootPreparedCondition)).Should(And(HavePrefix("False "+reason), says))
			Eventually(ctx, b.Condition(b.config, clusterv1.ReadyCondition)).Should(HavePrefix("False " + reason))
			for i := range 2 {
				host := hosts.of(client.ObjectKey{Namespace: b.Namespace, Name: b.HostName(i)})
				Eventually(ctx, host.answered).Should(And(Not(BeEmpty()), HaveEach(503)))
			}
		}

		By("booting a host of a cluster that is right beside them")
		booting(ctx, tenant.New(ctx, lab, 1), nil)
		for _, b := range bad {
			Expect(b.Condition(b.config, bootstrapv1.BootPreparedCondition)(ctx)).To(HavePrefix("False "), "it is refused as before")
		}

		By("correcting their kubeconfigs")
		right, err := os.ReadFile(lab.Workload.Kubeconfig)
		Expect(err).NotTo(HaveOccurred())
		for _, b := range bad {
			patched(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: b.Namespace, Name: b.Namespace + "-kubeconfig"}}, func(s *corev1.Secret) { s.Data["value"] = right })
		}
		for _, b := range bad {
			asking(ctx, b.Tenant, b.config)
		}
		Expect(touched).NotTo(BeAnExistingFile(), "no program was run")
		Expect(stolen.Load()).To(BeZero(), "no file was sent")
	}, SpecTimeout(5*time.Minute))
})
