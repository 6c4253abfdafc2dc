package host_test

import (
	"net"
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/controlplane"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/host"
)

// kubeletConfig is a minimal kubelet configuration.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  webhook: {enabled: false}
authorization: {mode: AlwaysAllow}
`

var _ = Describe("The real kubelet on a simulated host", Ordered, func() {
	var (
		client     kubernetes.Interface
		kubeconfig []byte
	)

	BeforeAll(func(ctx SpecContext) {
		cluster, err := controlplane.Start(ctx, controlplane.Options{Name: "hosts"})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(cluster.Stop)
		client = kubernetes.NewForConfigOrDie(cluster.Config)
		kubeconfig, err = os.ReadFile(cluster.Kubeconfig)
		Expect(err).NotTo(HaveOccurred())
	})

	// userData starts a kubelet with an administrator's kubeconfig: this test only tests the host.
	userData := func(name, kind string) []byte {
		return document(map[string]any{
			"ignition": map[string]any{"version": "3.5.0"},
			"storage": map[string]any{"files": []any{
				file("/etc/hostname", 0o644, name+"\n"),
				file("/etc/kubernetes/kubelet.conf", 0o600, string(kubeconfig)),
				file("/etc/kubernetes/kubelet.yaml", 0o644, kubeletConfig),
				file("/etc/poolboot.env", 0o600, "ARGS=--node-labels=example.com/site=ber1 --v=2\n"),
			}},
			"systemd": map[string]any{"units": []any{unit("kubelet.service",
				"[Service]\nType="+kind+"\nEnvironmentFile=/etc/poolboot.env\n"+
					"ExecStart=/usr/bin/kubelet --config=/etc/kubernetes/kubelet.yaml "+
					"--config-dir=/etc/kubernetes/kubelet.conf.d --kubeconfig=/etc/kubernetes/kubelet.conf $ARGS\n"+
					"ExecStartPost=/usr/bin/mkdir -p /run/cluster-api\n"+
					"ExecStartPost=/usr/bin/touch /run/cluster-api/bootstrap-success.complete\n"+
					"Restart=on-failure\n[Install]\nWantedBy=multi-user.target\n")}},
		})
	}

	DescribeTable("registers a Node that becomes Ready, with the files of Ignition", func(ctx SpecContext, name, kind string) {
		h := host.New(host.Options{Name: "not-" + name, Dir: filepath.Join(GinkgoT().TempDir(), longName), Log: GinkgoWriter})
		DeferCleanup(h.PowerOff)
		Expect(h.PowerOn(ctx, userData(name, kind))).To(Succeed())

		Eventually(func(g Gomega) {
			node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(node.Labels).To(HaveKeyWithValue("example.com/site", "ber1"))
			g.Expect(node.Status.Conditions).To(ContainElement(And(
				HaveField("Type", corev1.NodeReady), HaveField("Status", corev1.ConditionTrue))))
			g.Expect(h.Joined()).To(BeTrue())
		}).WithTimeout(2 * time.Minute).Should(Succeed())
		AddReportEntry("seconds from power on to a Ready Node", time.Since(h.When(host.PoweredOn)).Seconds())
		Expect(h.Err()).NotTo(HaveOccurred())
		Expect(h.When(host.KubeletStarted)).To(BeTemporally(">", h.When(host.FilesWritten)))

		h.PowerOff()
		node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		_, err = net.Dial("tcp", net.JoinHostPort("127.0.0.1", portOf(node)))
		Expect(err).To(HaveOccurred(), "nobody listens on the kubelet's port once the power is off")
	},
		Entry("as a simple service", "simple-host", "simple", SpecTimeout(3*time.Minute)),
		Entry("as a service that notifies when it is ready", "notifying-host", "notify", SpecTimeout(3*time.Minute)),
	)
})

// longName makes a path longer than the maximum of a socket's address.
const longName = "a-folder-with-a-name-as-long-as-those-that-test-runs-leave-for-their-temporary-files-on-busy-machines"
