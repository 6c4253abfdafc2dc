package hosts_test

import (
	"os"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/cluster-api/util"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/baremetal"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/controlplane"
)

// kubeletConfig is a minimal kubelet configuration.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  webhook: {enabled: false}
authorization: {mode: AlwaysAllow}
`

// withKubelet returns the configuration of a host whose kubelet has an administrator's kubeconfig: these specs test the
// host and not the join.
func withKubelet(cluster *controlplane.ControlPlane) map[string]any {
	GinkgoHelper()
	kubeconfig, err := os.ReadFile(cluster.Kubeconfig)
	Expect(err).NotTo(HaveOccurred())
	return map[string]any{
		"storage": files(
			file("/etc/kubernetes/kubelet.conf", 0o600, string(kubeconfig)),
			file("/etc/kubernetes/kubelet.yaml", 0o644, kubeletConfig)),
		"systemd": units(unit("kubelet.service",
			"[Unit]", "After=containerd.service network-online.target", "Wants=network-online.target",
			"[Service]", "Type=notify", "ExecStart=/usr/bin/kubelet --config=/etc/kubernetes/kubelet.yaml "+
				"--config-dir=/etc/kubernetes/kubelet.conf.d --kubeconfig=/etc/kubernetes/kubelet.conf",
			"Restart=always", "RestartSec=1",
			"[Install]", "WantedBy=multi-user.target")),
	}
}

var _ = Describe("The kubelet on a host in namespaces", func() {
	It("runs Pods with the real container runtime, and keeps its Node over a reboot and a power loss", func(ctx SpecContext) {
		rack := newRack(ctx)
		cluster, err := controlplane.Start(ctx, controlplane.Options{Name: "hosts", Host: rack.Address(), ControllerManager: true})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(cluster.Stop)
		client := kubernetes.NewForConfigOrDie(cluster.Config)
		var node *corev1.Node
		ready := func(g Gomega) {
			var err error
			node, err = client.CoreV1().Nodes().Get(ctx, "host-0", metav1.GetOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(node).To(Satisfy(util.IsNodeReady))
		}

		h := newHost(rack, "host-0", baremetal.KubeletImage, withKubelet(cluster))
		Expect(h.PowerOn(ctx)).To(Succeed())
		Eventually(ready).Should(Succeed())
		reportStages(h, "Node Ready")
		reportCost(ctx, h, "Node Ready")
		Expect(node.Status.Addresses).To(ContainElement(corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: h.Address()}))
		Expect(node.Status.NodeInfo.ContainerRuntimeVersion).To(HavePrefix("containerd://"))
		Expect(node.Status.NodeInfo.OSImage).To(ContainSubstring("Debian"))

		pod, err := client.CoreV1().Pods(metav1.NamespaceDefault).Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "pod"},
			Spec: corev1.PodSpec{NodeName: "host-0", Containers: []corev1.Container{
				{Name: "pause", Image: "localhost/pause:1", ImagePullPolicy: corev1.PullNever}}},
		}, metav1.CreateOptions{})
		Expect(err).NotTo(HaveOccurred())
		running := func(g Gomega) {
			pod, err = client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(pod.Status.Phase).To(Equal(corev1.PodRunning))
			g.Expect(pod.Status.PodIP).To(HavePrefix("10.244."))
		}
		Eventually(running).Should(Succeed())
		Expect(h.Run(ctx, "ps", "-C", "pause", "-o", "cgroup=")).To(ContainSubstring("kubepods"), "the kubelet has control groups")

		first := node
		boot := waitForBoot(ctx, h)
		_, _ = h.Run(ctx, "systemctl", "reboot") // its connection can end first
		waitForAnotherBoot(ctx, h, boot)
		rebooted := func(g Gomega) {
			ready(g)
			g.Expect(node.Status.NodeInfo.BootID).NotTo(Equal(first.Status.NodeInfo.BootID))
			g.Expect(node.UID).To(Equal(first.UID))
			running(g)
			g.Expect(pod.Status.ContainerStatuses[0].RestartCount).To(BeEquivalentTo(1))
		}
		Eventually(rebooted).Should(Succeed())

		first = node
		Expect(h.Reset(ctx)).To(Succeed())
		Eventually(func(g Gomega) {
			ready(g)
			g.Expect(node.Status.NodeInfo.BootID).NotTo(Equal(first.Status.NodeInfo.BootID))
			g.Expect(node.UID).To(Equal(first.UID))
		}).Should(Succeed())
	}, SpecTimeout(8*time.Minute))
})
