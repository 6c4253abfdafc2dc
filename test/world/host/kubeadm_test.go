package host_test

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/controlplane"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/kubeadm"
)

const joinToken = "abcdef.0123456789abcdef"

const joinConfiguration = `apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
discovery:
  bootstrapToken: {token: %q, apiServerEndpoint: %q, unsafeSkipCAVerification: true}
nodeRegistration:
  # The checks are about the machine that this test runs on.
  ignorePreflightErrors: [all]
  # What this host's kubelet must be told, because it has no hardware of its own, is in a drop-in.
  kubeletExtraArgs: [{name: config-dir, value: /etc/kubernetes/kubelet.conf.d}]
`

var _ = Describe("The real kubeadm on a simulated host", func() {
	It("joins a cluster completely, and the kubelet unit of the image starts", func(ctx SpecContext) {
		cluster, err := controlplane.Start(ctx, controlplane.Options{Name: "kubeadm", ControllerManager: true})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(cluster.Stop)
		Expect(kubeadm.Init(ctx, cluster, joinToken)).To(Succeed())

		h := host.New(host.Options{
			Name: "kubeadm-0", Dir: GinkgoT().TempDir(), Image: host.KubeadmImage, Log: GinkgoWriter,
		})
		DeferCleanup(h.PowerOff)
		Expect(h.PowerOn(ctx, document(map[string]any{
			"ignition": map[string]any{"version": "3.5.0"},
			"storage": map[string]any{"files": []any{file("/etc/kubernetes/join.yaml", 0o600,
				fmt.Sprintf(joinConfiguration, joinToken, cluster.Endpoint))}},
			"systemd": map[string]any{"units": []any{
				map[string]any{"name": "kubelet.service", "enabled": true},
				unit("join.service", "[Unit]\nConditionPathExists=!/etc/kubernetes/kubelet.conf\n"+
					"[Service]\nType=oneshot\nRemainAfterExit=yes\n"+
					"ExecStart=/usr/bin/kubeadm join --config=/etc/kubernetes/join.yaml\n"+
					"ExecStart=/usr/bin/mkdir -p /run/cluster-api\n"+
					"ExecStart=/usr/bin/touch /run/cluster-api/bootstrap-success.complete\n"+
					"[Install]\nWantedBy=multi-user.target\n"),
			}},
		}))).To(Succeed())

		Eventually(func(g Gomega) {
			if failed := h.When(host.UnitFailed); !failed.IsZero() {
				StopTrying("a unit failed: see the console in the output").Now()
			}
			g.Expect(h.Joined()).To(BeTrue())
		}).WithTimeout(2 * time.Minute).Should(Succeed())
		client := kubernetes.NewForConfigOrDie(cluster.Config)
		Eventually(func(g Gomega) {
			node, err := client.CoreV1().Nodes().Get(ctx, "kubeadm-0", metav1.GetOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(node.Status.Conditions).To(ContainElement(And(
				HaveField("Type", corev1.NodeReady), HaveField("Status", corev1.ConditionTrue))))
		}).Should(Succeed())
		AddReportEntry("seconds from power on to a Ready Node", time.Since(h.When(host.PoweredOn)).Seconds())
	}, SpecTimeout(5*time.Minute))
})
