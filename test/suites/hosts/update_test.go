package hosts_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/baremetal"
)

var _ = Describe("The agent on a host in namespaces", func() {
	It("updates the host with systemd and the kubelet, reboots and restarts it, and undoes what does not work", func(ctx SpecContext) {
		rack := newRack(ctx)
		p := newHostPool(ctx, rack)
		By("installing the host")
		web := func(text string) map[string]any {
			return unit("web.service", "[Service]", "ExecStart=/bin/sleep infinity", "Environment=TEXT="+text, "[Install]", "WantedBy=multi-user.target")
		}
		p.render("rendered-a", map[string]any{"storage": files(file("/etc/none/f", 0o644, "a"), file("/etc/reboots", 0o600, "a")), "systemd": units(web("a"))})
		h := newHostWithUserData(rack, "host-0", baremetal.KubeletImage, p.userData("rendered-a", p.nodeCertificate))
		Expect(h.PowerOn(ctx)).To(Succeed())
		boot := waitForBoot(ctx, h)
		revision := p.assign(ctx, "rendered-a")
		Eventually(ctx, p.state(ctx)).Should(Equal("Done " + revision))

		By("updating it without a reboot")
		p.render("rendered-b", map[string]any{"storage": files(file("/etc/none/f", 0o600, "b"), file("/etc/reboots", 0o600, "a")), "systemd": units(web("b"))})
		revision = p.assign(ctx, "rendered-b")
		Eventually(ctx, p.state(ctx)).Should(Equal("Done " + revision))
		Expect(h.Run(ctx, "stat", "-c", "%a %s", "/etc/none/f")).To(Equal("600 1\n"))
		Expect(h.Run(ctx, "systemctl", "show", "--property=Environment", "web.service")).To(Equal("Environment=TEXT=b\n"))
		Expect(waitForBoot(ctx, h)).To(Equal(boot))

		By("updating it with a reboot, a new user, and without its unit")
		p.render("rendered-c", map[string]any{
			"storage": files(file("/etc/none/f", 0o600, "b"), file("/etc/reboots", 0o600, "c")),
			"passwd":  map[string]any{"users": []map[string]any{{"name": "edgeadmin", "sshAuthorizedKeys": []string{"ssh-ed25519 AAAA b"}}}},
		})
		revision = p.assign(ctx, "rendered-c")
		Eventually(ctx, p.state(ctx)).WithTimeout(3 * time.Minute).Should(Equal("Done " + revision))
		another := waitForBoot(ctx, h)
		Expect(another).NotTo(Equal(boot))
		Expect(readFile(ctx, h, "/etc/reboots")).To(Equal("c"))
		Expect(h.Run(ctx, "sh", "-c", "id -u edgeadmin && cat ~edgeadmin/.ssh/authorized_keys.d/ignition || cat ~edgeadmin/.ssh/authorized_keys")).To(ContainSubstring("AAAA b"))
		_, err := h.Run(ctx, "systemctl", "cat", "web.service")
		Expect(err).To(HaveOccurred())

		By("restarting its kubelet, and then rebooting it, without a change")
		kubelet := func() string {
			GinkgoHelper()
			process, err := h.Run(ctx, "systemctl", "show", "--property=MainPID", "kubelet.service")
			Expect(err).NotTo(HaveOccurred())
			return process
		}
		running := kubelet()
		p.restart = &assignment.Restart{ID: "1", Kind: update.RestartKubelet}
		revision = p.assign(ctx, "rendered-c")
		Eventually(ctx, p.state(ctx)).Should(Equal("Done " + revision))
		Expect(kubelet()).NotTo(Equal(running))
		Expect(waitForBoot(ctx, h)).To(Equal(another))
		needsReboot := func() string {
			node, err := p.client.CoreV1().Nodes().Get(ctx, "host-0", metav1.GetOptions{})
			if err != nil {
				return err.Error()
			}
			return node.Annotations[agentv1.RebootRequiredAnnotation]
		}
		Expect(h.Run(ctx, "sh", "-c", "echo linux-base > /run/reboot-required.pkgs && touch /run/reboot-required")).To(BeEmpty())
		Eventually(ctx, needsReboot).Should(HaveSuffix("\nlinux-base"))
		p.restart = &assignment.Restart{ID: "2", Kind: update.RestartHost}
		revision = p.assign(ctx, "rendered-c")
		Eventually(ctx, p.state(ctx)).WithTimeout(3 * time.Minute).Should(Equal("Done " + revision))
		restarted := waitForBoot(ctx, h)
		Expect(restarted).NotTo(Equal(another))
		Eventually(ctx, needsReboot).Should(BeEmpty())
		Consistently(ctx, p.state(ctx)).WithTimeout(10 * time.Second).Should(Equal("Done " + revision))
		Expect(waitForBoot(ctx, h)).To(Equal(restarted))
		good := revision

		By("updating it so that its kubelet does not start")
		p.render("rendered-d", map[string]any{
			"storage": files(file("/etc/none/f", 0o600, "b"), file("/etc/reboots", 0o600, "d"), file("/etc/kubernetes/kubelet.conf.d/50-bad.conf", 0o644, "bad")),
			"passwd":  map[string]any{"users": []map[string]any{{"name": "edgeadmin", "sshAuthorizedKeys": []string{"ssh-ed25519 AAAA b"}}}},
		})
		revision = p.assign(ctx, "rendered-d")
		Eventually(ctx, p.state(ctx)).WithTimeout(4 * time.Minute).Should(Equal("Degraded " + revision))
		node, err := p.client.CoreV1().Nodes().Get(ctx, "host-0", metav1.GetOptions{})
		Expect(err).NotTo(HaveOccurred())
		Expect(node.Annotations).To(HaveKeyWithValue(agentv1.CurrentAnnotation, good))
		Expect(node.Annotations[agentv1.ReasonAnnotation]).To(ContainSubstring("kubelet"))
		Expect(readFile(ctx, h, "/etc/reboots")).To(Equal("c"))
		Eventually(ctx, func() corev1.ConditionStatus {
			node, err := p.client.CoreV1().Nodes().Get(ctx, "host-0", metav1.GetOptions{})
			if err != nil {
				return ""
			}
			for _, condition := range node.Status.Conditions {
				if condition.Type == corev1.NodeReady {
					return condition.Status
				}
			}
			return ""
		}).Should(Equal(corev1.ConditionTrue))
	}, SpecTimeout(12*time.Minute))
})
