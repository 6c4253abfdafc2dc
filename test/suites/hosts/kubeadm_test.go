package hosts_test

import (
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/cluster-api/util"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/baremetal"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/controlplane"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/kubeadm"
)

const joinToken = "abcdef.0123456789abcdef"

const joinConfiguration = `apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
discovery:
  bootstrapToken: {token: %q, apiServerEndpoint: %q, unsafeSkipCAVerification: true}
nodeRegistration:
  # This check is about the kernel of the machine, which hosts share.
  ignorePreflightErrors: [SystemVerification]
  # The settings for a shared machine are in a drop-in.
  kubeletExtraArgs: [{name: config-dir, value: /etc/kubernetes/kubelet.conf.d}]
`

var _ = Describe("kubeadm on a host in namespaces", func() {
	It("joins a cluster completely, and the kubelet unit of the image starts", func(ctx SpecContext) {
		rack := newRack(ctx)
		cluster, err := controlplane.Start(ctx, controlplane.Options{Name: "kubeadm", Host: rack.Address(), ControllerManager: true})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(cluster.Stop)
		Expect(kubeadm.Init(ctx, cluster, joinToken)).To(Succeed())

		h := newHost(rack, "kubeadm-0", baremetal.KubeadmImage, map[string]any{
			"storage": files(file("/etc/kubernetes/join.yaml", 0o600, fmt.Sprintf(joinConfiguration, joinToken, cluster.Endpoint))),
			"systemd": units(
				map[string]any{"name": "kubelet.service", "enabled": true},
				unit("join.service",
					"[Unit]", "After=containerd.service network-online.target", "Wants=network-online.target",
					"ConditionPathExists=!/etc/kubernetes/kubelet.conf",
					"[Service]", "Type=oneshot", "RemainAfterExit=yes",
					"ExecStart=/usr/bin/kubeadm join --config=/etc/kubernetes/join.yaml",
					"ExecStart=/usr/bin/mkdir -p /run/cluster-api",
					"ExecStart=/usr/bin/touch /run/cluster-api/bootstrap-success.complete",
					"[Install]", "WantedBy=multi-user.target")),
		})
		Expect(h.PowerOn(ctx)).To(Succeed())
		Eventually(h.Joined).Should(BeTrue())
		client := kubernetes.NewForConfigOrDie(cluster.Config)
		Eventually(func() (*corev1.Node, error) {
			return client.CoreV1().Nodes().Get(ctx, "kubeadm-0", metav1.GetOptions{})
		}).Should(Satisfy(util.IsNodeReady))
		reportStages(h, "Node Ready")
	}, SpecTimeout(5*time.Minute))
})
