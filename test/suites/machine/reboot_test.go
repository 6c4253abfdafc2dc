package machine

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/machine"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

// Changes of the configuration that need a reboot. The last one makes the host start a kernel by kexec that finds no
// root file system.
const (
	changedFile = "variant: fcos\nversion: 1.5.0\nstorage: {files: [{path: /etc/changed, contents: {inline: %s}}]}\n"
	brokenKexec = `
variant: fcos
version: 1.5.0
storage:
  files:
  - path: /usr/libexec/poolboot/boot-entry
    overwrite: true
    mode: 0755
    contents: {inline: "#!/bin/sh\nprintf 'linux /boot/vmlinuz\ninitrd /boot/initramfs\noptions root=LABEL=missing console=ttyS0,115200\n'"}
`
)

var systemdVersion = regexp.MustCompile(`systemd\[1\]: systemd (\d+)`)

var _ = Describe("A running machine", func() {
	It("reboots for updates by the method of its pool, and fully if it can't", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 1)
		options := rack.Options()
		options.POST = 30 * time.Second
		_, err := rack.Add(t.HostName(0), options)
		Expect(err).NotTo(HaveOccurred())
		change := butane(t, "70-change", fmt.Sprintf(changedFile, "installed"))
		t.Create(ctx, change)
		b := startBoot(ctx, t)
		node := b.waitForMember(ctx)

		// begin changes the configuration, and returns when the host is about to reboot.
		begin := func(method poolv1.RebootMethod, text string, arguments ...string) time.Time {
			GinkgoHelper()
			By(string(method))
			pool := t.Pool("infra")
			Expect(lab.ManagementClient.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: pool.Name}, pool)).To(Succeed())
			before := pool.DeepCopy()
			pool.Spec.Updates.RebootMethod, pool.Spec.Updates.MinReadySeconds = method, ptr.To[int32](0)
			Expect(lab.ManagementClient.Patch(ctx, pool, client.MergeFrom(before))).To(Succeed())
			was := change.DeepCopy()
			change.Spec.Butane, change.Spec.KernelArguments = text, arguments
			Expect(lab.ManagementClient.Patch(ctx, change, client.MergeFrom(was))).To(Succeed())
			Eventually(ctx, stateOf(t, b)).WithPolling(200 * time.Millisecond).Should(Equal(agentv1.Rebooting))
			return time.Now()
		}
		// end waits until the host is updated, and returns its Node and the update in its history.
		end := func(what string, since time.Time) (*corev1.Node, bootstrapv1.HostUpdate) {
			GinkgoHelper()
			Eventually(ctx, stateOf(t, b)).WithPolling(200 * time.Millisecond).Should(Equal(agentv1.Done))
			AddReportEntry("seconds from the request to an updated host with a Ready Node: "+what, time.Since(since).Seconds())
			last := func() bootstrapv1.HostUpdate {
				Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(b.config), b.config)).To(Succeed())
				return b.config.Status.Update.History[len(b.config.Status.Update.History)-1]
			}
			Eventually(ctx, last).Should(HaveField("Result", bootstrapv1.UpdateResultDone))
			return t.Node(ctx, b.config), last()
		}
		kexecs := func() int {
			console, err := b.machine.Console()
			Expect(err).NotTo(HaveOccurred())
			return strings.Count(console, "Starting new kernel")
		}
		Eventually(ctx, stateOf(t, b)).Should(Equal(agentv1.Done))

		full, update := end("Full", begin(poolv1.RebootFull, fmt.Sprintf(changedFile, "full")))
		Expect(full.Status.NodeInfo.BootID).NotTo(Equal(node.Status.NodeInfo.BootID))
		Expect(update.Message).To(BeEmpty())

		kexec, update := end("Kexec", begin(poolv1.RebootKexec, fmt.Sprintf(changedFile, "full"), "poolboot.changed"))
		Expect(kexec.Status.NodeInfo.BootID).NotTo(Equal(full.Status.NodeInfo.BootID))
		Expect(update.Message).To(BeEmpty())
		Expect(kexecs()).To(Equal(1))
		Expect(lastOf(seen(b.machine)())).To(And(ContainSubstring(" poolboot.changed"), Not(ContainSubstring("ignition.firstboot"))))

		soft, update := end("SoftReboot", begin(poolv1.RebootSoft, fmt.Sprintf(changedFile, "soft"), "poolboot.changed"))
		if versionOfSystemd(b.machine) >= 254 {
			Expect(soft.Status.NodeInfo.BootID).To(Equal(kexec.Status.NodeInfo.BootID))
			Expect(update.Message).To(BeEmpty())
		} else {
			Expect(soft.Status.NodeInfo.BootID).NotTo(Equal(kexec.Status.NodeInfo.BootID))
			Expect(update.Message).To(HavePrefix(agentv1.FullRebootInsteadOf + "SoftReboot: "))
		}

		begun := begin(poolv1.RebootKexec, brokenKexec, "poolboot.changed")
		Eventually(ctx, b.machine.Console).Should(ContainSubstring("Command line: root=LABEL=missing"))
		By("a power cycle, because its kernel did not come up")
		Expect(b.machine.Reset(ctx)).To(Succeed())
		end("Kexec, with a kernel that does not come up, and a power cycle", begun)
		Expect(kexecs()).To(Equal(2))
		Expect(lastOf(seen(b.machine)())).To(And(ContainSubstring("root=LABEL=root"), ContainSubstring(" poolboot.changed")))
	}, SpecTimeout(60*time.Minute))
})

// stateOf returns a function that returns what the agent of a machine reports.
func stateOf(t *tenant.Tenant, b *firstBoot) func(context.Context) agentv1.State {
	return func(ctx context.Context) agentv1.State {
		return agentv1.State(t.Node(ctx, b.config).Annotations[agentv1.StateAnnotation])
	}
}

// versionOfSystemd returns the version that systemd prints on the console.
func versionOfSystemd(m *machine.Machine) int {
	console, _ := m.Console()
	found := systemdVersion.FindStringSubmatch(console)
	Expect(found).NotTo(BeEmpty())
	version, err := strconv.Atoi(found[1])
	Expect(err).NotTo(HaveOccurred())
	return version
}

func lastOf(lines []string) string { return lines[len(lines)-1] }
