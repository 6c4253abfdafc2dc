package machine

import (
	"os"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

// labeled is a MachineConfig with files whose labels are not those of their directories, and a unit that prints on the
// console in each boot what SELinux says: not of the kubelet's labels for containers, which this policy does not have.
const labeled = `
variant: fcos
version: 1.5.0
kernel_arguments:
  should_exist: [enforcing=1]
storage:
  files:
  - {path: /etc/hosts.allow, contents: {inline: ""}}
  - {path: /usr/local/bin/tool, mode: 0755, contents: {inline: ""}}
  - path: /etc/labels.sh
    contents:
      inline: |
        cd /var/lib/poolboot
        until grep -q managed files.journal; do sleep 1; done
        echo "selinux: mode $(getenforce)"
        echo "selinux: agent $(tr -d '\0' </proc/$(systemctl show -P MainPID poolboot-agent)/attr/current)"
        echo "selinux: kubelet $(tr -d '\0' </proc/$(systemctl show -P MainPID kubelet)/attr/current)"
        { tail -n +2 files.journal | jq -r '(.next // .managed) | to_entries[] | select(.value.type != "Unmasked") | .key'; find $PWD $PWD/bin /home -maxdepth 1; } |
          xargs matchpathcon -V | sed 's/^/selinux: path /'
        journalctl -b -o cat | grep 'avc: *denied.*initrc_' | grep -v 'mac_admin.*comm="kubelet"' | sed 's/^/selinux: refused /'
        echo "selinux: end"
systemd:
  units:
  - name: labels.service
    enabled: true
    contents: |
      [Unit]
      After=poolboot-agent.service kubelet.service
      [Service]
      Type=oneshot
      StandardOutput=journal+console
      StandardError=journal+console
      ExecStart=/bin/sh /etc/labels.sh
      [Install]
      WantedBy=multi-user.target
`

var _ = Describe("A machine with SELinux", func() {
	It("boots into its pool in enforcing mode, and all files have the labels of the policy", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 1)
		options := rack.Options()
		options.Image = os.Getenv(selinuxImageVariable)
		_, err := rack.Add(t.HostName(0), options)
		Expect(err).NotTo(HaveOccurred(), "make test-machine builds the image")
		t.Create(ctx, butane(t, "61-labeled", labeled))
		b := startBoot(ctx, t)
		node := b.waitForMember(ctx)
		Eventually(ctx, b.machine.Console).Should(ContainSubstring("selinux: end"))
		console, err := b.machine.Console()
		Expect(err).NotTo(HaveOccurred())
		_, seen, _ := strings.Cut(console, "selinux: mode ")
		AddReportEntry("what SELinux says", seen)
		Expect(seen).To(And(HavePrefix("Enforcing"), ContainSubstring("selinux: agent system_u:system_r:initrc_t:s0"),
			ContainSubstring("selinux: path /etc/hosts.allow verified."), Not(ContainSubstring("should be")), Not(ContainSubstring("selinux: refused"))))

		By("a Pod")
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: metav1.NamespaceDefault}, Spec: corev1.PodSpec{
			NodeName: node.Name, AutomountServiceAccountToken: ptr.To(false), TerminationGracePeriodSeconds: ptr.To[int64](0),
			Containers: []corev1.Container{{Name: "pause", Image: "localhost/pause:1", ImagePullPolicy: corev1.PullNever}}}}
		Expect(lab.WorkloadClient.Create(ctx, pod)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			Expect(client.IgnoreNotFound(lab.WorkloadClient.Delete(ctx, pod, client.GracePeriodSeconds(0)))).To(Succeed())
		})
		Eventually(ctx, func() (corev1.PodPhase, error) {
			err := lab.WorkloadClient.Get(ctx, client.ObjectKeyFromObject(pod), pod)
			return pod.Status.Phase, err
		}).Should(Equal(corev1.PodRunning))
	}, SpecTimeout(30*time.Minute))
})
