package machine

import (
	"fmt"
	"os"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

// labeled is a MachineConfig with files whose labels are not those of their directories, and a unit that prints on the
// console in each boot what SELinux says: not of the kubelet's labels for containers, which this policy does not have.
const labeled = `
variant: fcos
version: 1.5.0
storage:
  files:
  - {path: /etc/hosts.allow, contents: {inline: "# %[1]d"}}
  - {path: /usr/local/bin/tool, mode: 0755, contents: {inline: "# %[1]d"}}
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
        echo "selinux: end %[1]d"
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

// more are entries that an update adds to labeled.
const more = `
  - {path: /etc/ethers, contents: {inline: ""}}
  - {path: /etc/cron.d/job, contents: {inline: ""}}
  - {path: /root/.ssh/known_hosts, contents: {inline: ""}}
  links:
  - {path: /usr/local/bin/alias, target: tool}
passwd:
  users:
  - {name: ops, ssh_authorized_keys: [ssh-ed25519 AAAA ops]}
`

var _ = Describe("A machine with SELinux", func() {
	It("boots and is updated in enforcing mode, and all files have the labels of the policy", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 1, func(pool *poolv1.MachineConfigPool) { pool.Spec.Updates.ReadyDeadlineSeconds = 900 })
		options := rack.Options()
		options.Image = os.Getenv(selinuxImageVariable)
		_, err := rack.Add(t.HostName(0), options)
		Expect(err).NotTo(HaveOccurred(), "make test-machine builds the image")
		change := butane(t, "61-labeled", fmt.Sprintf(labeled, 1))
		change.Spec.KernelArguments = []string{"enforcing=1", "poolboot.version=1"}
		t.Create(ctx, change)
		b := startBoot(ctx, t)
		expectLabels := func(version int) {
			GinkgoHelper()
			end := fmt.Sprintf("selinux: end %d", version)
			Eventually(ctx, b.machine.Console).Should(ContainSubstring(end))
			console, err := b.machine.Console()
			Expect(err).NotTo(HaveOccurred())
			console, _, _ = strings.Cut(console, end)
			if before := strings.LastIndex(console, "selinux: mode"); before >= 0 {
				console = console[before:]
			}
			AddReportEntry(end, console)
			Expect(console).To(And(ContainSubstring("selinux: mode Enforcing"), ContainSubstring("selinux: agent system_u:system_r:initrc_t:s0"),
				ContainSubstring("selinux: path /etc/hosts.allow verified."), Not(ContainSubstring("should be")), Not(ContainSubstring("selinux: refused"))))
		}
		node := b.waitForMember(ctx)
		expectLabels(1)

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

		By("an update with a reboot")
		Eventually(ctx, t.Condition(b.config, bootstrapv1.UpdatedCondition)).Should(HavePrefix("True"))
		before := change.DeepCopy()
		change.Spec.KernelArguments = []string{"enforcing=1", "poolboot.version=2"}
		change.Spec.Butane = strings.Replace(fmt.Sprintf(labeled, 2), "\nsystemd:", more+"systemd:", 1)
		Expect(lab.ManagementClient.Patch(ctx, change, client.MergeFrom(before))).To(Succeed())
		expectLabels(2)
		Eventually(ctx, t.Condition(b.config, bootstrapv1.UpdatedCondition)).Should(HavePrefix("True"))
		Expect(t.Node(ctx, b.config)).To(Satisfy(util.IsNodeReady))
	}, SpecTimeout(45*time.Minute))
})
