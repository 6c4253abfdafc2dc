package hosts_test

import (
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/cluster-api/util"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/baremetal"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/controlplane"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/kubeadm"
)

const joinToken = "abcdef.0123456789abcdef"

var _ = Describe("A host in namespaces", func() {
	It("joins a cluster completely with kubeadm, and the kubelet unit of the image starts", func(ctx SpecContext) {
		rack := newRack(ctx)
		cluster, err := controlplane.Start(ctx, controlplane.Options{Name: "kubeadm", Host: rack.Address(), ControllerManager: true})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(cluster.Stop)
		Expect(kubeadm.Init(ctx, cluster, joinToken)).To(Succeed())

		h := newHost(rack, "kubeadm-0", baremetal.KubeadmImage, map[string]any{
			"storage": files(file("/etc/kubernetes/join.yaml", 0o600, string(kubeadm.JoinConfiguration(cluster, joinToken)))),
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

	DescribeTable("joins again with the units of Poolboot after a power loss that left only the kubelet's client certificate", func(ctx SpecContext,
		image baremetal.Image, how bootstrapv1.Join, written ...string) {
		rack := newRack(ctx)
		cluster, err := controlplane.Start(ctx, controlplane.Options{Name: "kubeadm", Host: rack.Address(), ControllerManager: true})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(cluster.Stop)
		Expect(kubeadm.Init(ctx, cluster, joinToken)).To(Succeed())
		id, secret, _ := strings.Cut(joinToken, ".")
		overlay, err := join.Machine{
			Config:       &bootstrapv1.PoolbootConfig{Spec: bootstrapv1.PoolbootConfigSpec{BootSpec: bootstrapv1.BootSpec{Join: how}}},
			Registration: registration.Registration{Name: "host-0"},
			Cluster:      join.Cluster{Name: "edge", Server: "https://" + cluster.Endpoint, CA: cluster.Config.CAData},
		}.Overlay(join.Credential{ID: id, Secret: secret})
		Expect(err).NotTo(HaveOccurred())
		userData, err := ignition.Marshal(overlay)
		Expect(err).NotTo(HaveOccurred())
		h := newHostWithUserData(rack, "host-0", image, userData)
		client := kubernetes.NewForConfigOrDie(cluster.Config)
		boot := ""
		expectReady := func() {
			GinkgoHelper()
			Expect(h.PowerOn(ctx)).To(Succeed())
			Eventually(ctx, func(g Gomega) {
				node, err := client.CoreV1().Nodes().Get(ctx, "host-0", metav1.GetOptions{})
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(node).To(Satisfy(util.IsNodeReady))
				g.Expect(node.Status.NodeInfo.BootID).NotTo(Equal(boot))
				boot = node.Status.NodeInfo.BootID
			}).WithTimeout(4 * time.Minute).Should(Succeed()) // kubeadm refuses a Node until it is not Ready any more
		}
		expectReady()
		Expect(h.PowerCut()).To(Succeed())
		disk, err := h.Disk()
		Expect(err).NotTo(HaveOccurred())
		defer disk.Close()
		for _, path := range append(written, "etc/kubernetes/kubelet.conf", "var/lib/kubelet/pki/kubelet.crt", "var/lib/kubelet/pki/kubelet.key") {
			_, err := disk.Stat(path)
			Expect(err).NotTo(HaveOccurred())
			Expect(disk.WriteFile(path, nil, 0o600)).To(Succeed()) // the name is on the disk, the content is not
		}
		expectReady()
	},
		Entry("with kubeadm", SpecTimeout(8*time.Minute), baremetal.KubeadmImage,
			bootstrapv1.Join{Type: bootstrapv1.JoinTypeKubeadm, Kubeadm: bootstrapv1.KubeadmJoin{IgnorePreflightErrors: []string{"SystemVerification"}}},
			"etc/kubernetes/pki/ca.crt", "var/lib/kubelet/config.yaml", "var/lib/kubelet/kubeadm-flags.env"),
		Entry("by its kubelet", SpecTimeout(8*time.Minute), baremetal.KubeletImage, bootstrapv1.Join{Type: bootstrapv1.JoinTypeKubelet}),
	)
})
