package machine

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/kubeadm"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/machine"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

// disks is a MachineConfig of the pool infra: a partition with a file system, a kernel argument, a network for Pods,
// and a unit that prints on the console which of them the machine has.
const disks = `
variant: fcos
version: 1.5.0
kernel_arguments:
  should_exist: [poolboot.test=infra]
  should_not_exist: [console=tty0]
storage:
  disks:
  - device: /dev/vda
    partitions: [{number: 5, label: data, size_mib: 256}]
  filesystems:
  - {device: /dev/disk/by-partlabel/data, format: ext4, label: data, path: /var/lib/data, with_mount_unit: true}
  files:
  - path: /etc/cni/net.d/10-pods.conflist
    contents:
      inline: '{"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "bridge", "bridge": "cni0", "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.0.0/24"}]]}}]}'
systemd:
  units:
  - name: seen.service
    enabled: true
    contents: |
      [Unit]
      RequiresMountsFor=/var/lib/data
      [Service]
      Type=oneshot
      StandardOutput=journal+console
      ExecStart=/usr/bin/touch /var/lib/data/%b
      ExecStart=/bin/sh -c 'echo "seen: $(findmnt -no SOURCE,FSTYPE /var/lib/data), boots: $(ls /var/lib/data | grep -vc lost), $(cat /proc/cmdline)"'
      [Install]
      WantedBy=multi-user.target
`

// steps are lines on the console, in their order, and what they are the start or end of.
var steps = []struct{ line, step string }{
	{"Linux version", "firmware and GRUB"},
	{"Finished ignition-fetch.service", "fetch"},
	{"reboot: machine restart", "reboot with the kernel arguments"},
	{"Finished ignition-disks.service", "disks"},
	{"Finished ignition-files.service", "files"},
	{"seen: ", "partition mounted, units"},
}

// kubelet6 is the IPv6 address of a machine with network data of both families.
const kubelet6 = "2001:db8:fe::10"

var _ = Describe("A machine", func() {
	It("boots from its firmware into its pool, and keeps its Node over a reset and a power-off", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 1)
		b := startBoot(ctx, t)
		m := b.machine
		node := b.waitForMember(ctx)
		Expect(seen(m)()).To(HaveExactElements(ContainSubstring("boots: 1, ")))

		By("a reset")
		start := time.Now()
		Expect(m.Reset(ctx)).To(Succeed())
		reset := waitForNode(ctx, t, b.config, node.Status.NodeInfo.BootID)
		AddReportEntry("seconds from a reset to a Ready Node", time.Since(start).Seconds())
		Expect(reset.UID).To(Equal(node.UID))
		Eventually(ctx, seen(m)).Should(HaveLen(2))
		Expect(seen(m)()[1]).To(ContainSubstring("boots: 2, "))

		By("a graceful power-off")
		off := m.Off()
		Expect(m.PressPowerButton(ctx)).To(Succeed())
		Eventually(ctx, off).Should(BeClosed())
		Expect(m.PowerOn(context.WithoutCancel(ctx))).To(Succeed())
		again := waitForNode(ctx, t, b.config, reset.Status.NodeInfo.BootID)
		Expect(again.UID).To(Equal(node.UID))
		console, err := m.Console()
		Expect(err).NotTo(HaveOccurred())
		Expect(strings.Count(console, "Finished ignition-files.service")).To(Equal(1))
	}, SpecTimeout(30*time.Minute))

	DescribeTable("boots into its pool", func(ctx SpecContext, firmware machine.Firmware, logged string) {
		t := tenant.New(ctx, lab, 1)
		options := rack.Options()
		options.Firmware = firmware
		_, err := rack.Add(t.HostName(0), options)
		Expect(err).NotTo(HaveOccurred())
		b := startBoot(ctx, t)
		b.waitForMember(ctx)
		Expect(b.machine.Console()).To(ContainSubstring(logged))
	},
		Entry("by UEFI", machine.UEFI, "secureboot: Secure boot disabled", SpecTimeout(30*time.Minute)),
		Entry("by UEFI with secure boot", machine.SecureBoot, "secureboot: Secure boot enabled", SpecTimeout(30*time.Minute)),
	)

	DescribeTable("boots into its pool without DHCP, from the network data on its config drive", func(ctx SpecContext, source bootstrapv1.ConfigSourceType, network *machine.Network, networkData string) {
		t := tenant.New(ctx, lab, 1)
		options := rack.Options()
		options.Network, options.NetworkData = network, networkData
		_, err := rack.Add(t.HostName(0), options)
		Expect(err).NotTo(HaveOccurred())
		b := startBoot(ctx, t, func(spec *bootstrapv1.BootSpec) { spec.ConfigSource.Type = source })
		node := b.waitForMember(ctx)
		Expect(node.Status.Addresses).To(ContainElement(corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "198.19.254.10"}))
		Expect(network.MetadataFrames()).To(BeZero(), "only the config drive counts")
		if strings.Contains(networkData, kubelet6) {
			connection, err := (&net.Dialer{Timeout: time.Minute}).DialContext(ctx, "tcp", net.JoinHostPort(kubelet6, "10250"))
			Expect(err).NotTo(HaveOccurred(), "it has an address of each family")
			Expect(connection.Close()).To(Succeed())
		}
		Eventually(ctx, t.Condition(b.config, bootstrapv1.UpdatedCondition)).Should(HavePrefix("True"), "it has an agent")
	},
		Entry("with a static address, and the configuration on it too", bootstrapv1.ConfigSourceTypeInline, &machine.Network{MACs: []string{"52:54:00:00:00:01"}}, `{
			"links": [{"id": "nic1", "type": "phy", "ethernet_mac_address": "52:54:00:00:00:01"}],
			"networks": [{"id": "v4", "type": "ipv4", "link": "nic1", "ip_address": "198.19.254.10", "netmask": "255.255.255.0",
				"routes": [{"network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": "`+machine.Gateway+`"}]}],
			"services": []}`, SpecTimeout(30*time.Minute)),
		Entry("with static addresses of both families, of a VLAN on a bond", bootstrapv1.ConfigSourceTypeServer, &machine.Network{MACs: []string{"52:54:00:00:00:01", "52:54:00:00:00:02"}, VLAN: 10}, `{
			"links": [
				{"id": "nic1", "type": "phy", "ethernet_mac_address": "52:54:00:00:00:01"},
				{"id": "nic2", "type": "phy", "ethernet_mac_address": "52:54:00:00:00:02"},
				{"id": "bond0", "type": "bond", "bond_mode": "active-backup", "bond_miimon": 100, "bond_links": ["nic1", "nic2"]},
				{"id": "vlan10", "type": "vlan", "vlan_id": 10, "vlan_link": "bond0"}],
			"networks": [{"id": "v4", "type": "ipv4", "link": "vlan10", "ip_address": "198.19.254.10/24",
				"routes": [{"network": "0.0.0.0", "netmask": "0.0.0.0", "gateway": "`+machine.Gateway+`"}]},
				{"id": "v6", "type": "ipv6", "link": "vlan10", "ip_address": "`+kubelet6+`/64",
				"routes": [{"network": "::", "netmask": "::", "gateway": "`+machine.Gateway6+`"}]}],
			"services": []}`, SpecTimeout(30*time.Minute)),
	)

	It("joins with kubeadm by the unit of the image", func(ctx SpecContext) {
		Expect(kubeadm.Init(ctx, lab.Workload, "abcdef.0123456789abcdef")).To(Succeed()) // no machine gets this token
		b := startBoot(ctx, tenant.New(ctx, lab, 1), func(spec *bootstrapv1.BootSpec) { spec.Join.Type = bootstrapv1.JoinTypeKubeadm })
		node := b.waitForMember(ctx)

		By("a reset")
		Expect(b.machine.Reset(ctx)).To(Succeed())
		Expect(waitForNode(ctx, b.tenant, b.config, node.Status.NodeInfo.BootID).UID).To(Equal(node.UID))
	}, SpecTimeout(30*time.Minute))

	It("boots into its pool with an Ignition that reads spec 3.3 only", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 1)
		options := rack.Options()
		options.Image = os.Getenv(olderImageVariable)
		_, err := rack.Add(t.HostName(0), options)
		Expect(err).NotTo(HaveOccurred(), "make test-machine builds the image")
		b := startBoot(ctx, t)
		b.waitForMember(ctx)
		Expect(b.machine.Console()).To(ContainSubstring("Ignition v2.14.0"))
	}, SpecTimeout(30*time.Minute))

	It("boots into its pool by UEFI on arm64, with the agent for arm64", func(ctx SpecContext) {
		if os.Getenv(arm64ImageVariable) == "" {
			Skip("make test-machine-arm64 runs this spec")
		}
		t := tenant.New(ctx, lab, 1)
		t.SetArchitecture(ctx, t.HostName(0), "aarch64")
		options := rack.Options()
		options.Image, options.ARM64 = os.Getenv(arm64ImageVariable), true
		_, err := rack.Add(t.HostName(0), options)
		Expect(err).NotTo(HaveOccurred())
		b := startBoot(ctx, t)
		node := b.waitForMember(ctx)
		Expect(node.Status.NodeInfo.Architecture).To(Equal("arm64"))
		Expect(b.history.Of(node.Name)[0].Node.Labels).To(HaveKeyWithValue(corev1.LabelArchStable, "arm64"))
		Eventually(ctx, stateOf(t, b)).Should(Equal(agentv1.Done))
	}, SpecTimeout(30*time.Minute))

	It("boots into its pool after a reset in each stage of its first boot", func(ctx SpecContext) {
		b := startBoot(ctx, tenant.New(ctx, lab, 1))
		start := 0
		// The console has the beginnings of long names.
		for _, line := range []string{
			"Linux version", "Starting ignition-fetch.service", "Starting ignition-kargs.service",
			"Starting ignition-disks.service", "Finished ignition-disks.service", "Starting ignition-files.service",
			"Starting initrd-switch-root.service", "Finished ignition-firstboo", "seen: ",
		} {
			By("a reset at " + line)
			Eventually(ctx, b.machine.Console).WithPolling(100 * time.Millisecond).Should(WithTransform(from(start), ContainSubstring(line)))
			Expect(b.machine.Reset(ctx)).To(Succeed())
			console, err := b.machine.Console()
			Expect(err).NotTo(HaveOccurred())
			start = len(console)
		}
		b.waitForMember(ctx)
	}, SpecTimeout(45*time.Minute))

	It("waits with the reason on its console while its clock is two years off, and boots into its pool when NTP has set it", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 1)
		options := rack.Options()
		options.NTPServer = machine.Address // serves the time from the middle of the spec on
		m, err := rack.Add(t.HostName(0), options)
		Expect(err).NotTo(HaveOccurred())
		m.SetClock(-2 * 365 * 24 * time.Hour)
		b := startBoot(ctx, t)
		const expired = "GET error: .* certificate has expired or is not yet valid: current time .* is "
		Eventually(ctx, m.Console).Should(MatchRegexp(expired + "before"))

		By("a clock that is two years ahead")
		Expect(m.PowerCut()).To(Succeed())
		m.SetClock(2 * 365 * 24 * time.Hour)
		Expect(m.PowerOn(context.WithoutCancel(ctx))).To(Succeed())
		Eventually(ctx, m.Console).Should(MatchRegexp(expired + "after"))
		Expect(t.Condition(b.config, bootstrapv1.BootPreparedCondition)(ctx)).To(HavePrefix("Unknown WaitingForRequest: "))

		By("an NTP server that answers")
		stop, err := machine.ServeNTP()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(stop)
		b.waitForMember(ctx)
	}, SpecTimeout(30*time.Minute))
})

// firstBoot is the first boot of a machine of the pool infra with the MachineConfig disks.
type firstBoot struct {
	tenant  *tenant.Tenant
	config  *bootstrapv1.PoolbootConfig
	machine *machine.Machine
	history *site.NodeHistory
	start   time.Time
}

// startBoot deploys a machine and waits until it is on.
func startBoot(ctx context.Context, t *tenant.Tenant, options ...func(*bootstrapv1.BootSpec)) *firstBoot {
	GinkgoHelper()
	t.Create(ctx, butane(t, "60-disks", disks))
	Eventually(ctx, t.Pools).Should(ContainElement(And(HaveField("Spec.PoolRole", "infra"),
		HaveField("Status.Configuration.Source", ContainElement(poolv1.MachineConfigSource{Name: "60-disks"})))), "inline data is made once")
	history, err := site.RecordNodes(ctx, lab.WorkloadClient)
	Expect(err).NotTo(HaveOccurred())
	b := &firstBoot{tenant: t, history: history, start: time.Now()}
	t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: map[string]string{"node-role.kubernetes.io/infra": ""},
		Config: func(spec *bootstrapv1.BootSpec) {
			for _, option := range options {
				option(spec)
			}
		}})
	b.config = t.Config(ctx, "infra")
	b.machine = waitForMachine(ctx, t)
	DeferCleanup(b.machine.PowerCut)
	watchSteps(ctx, b.machine, b.start)
	return b
}

// waitForMember waits until the machine's Node is Ready in its pool, and expects that it has been in the pool from its
// first version on and that the machine has what the MachineConfig asks for.
func (b *firstBoot) waitForMember(ctx context.Context) *corev1.Node {
	GinkgoHelper()
	Eventually(ctx, b.tenant.Condition(b.config, bootstrapv1.NodeInPoolCondition)).Should(HavePrefix("True"))
	node := waitForNode(ctx, b.tenant, b.config, "")
	AddReportEntry("seconds to a Ready Node", time.Since(b.start).Seconds())
	verdict := site.Judge(b.history.Of(node.Name), "infra", b.tenant.Pools(ctx))
	Expect(verdict).To(Equal(site.Verdict{Versions: verdict.Versions, BornInPool: true}))
	Eventually(ctx, seen(b.machine)).ShouldNot(BeEmpty())
	Expect(seen(b.machine)()).To(HaveEach(And(MatchRegexp(`seen: /dev/vda5 ext4, boots: \d, `), ContainSubstring(" poolboot.test=infra"), Not(ContainSubstring("console=tty0")))))
	return node
}

// from returns a function that returns the end of a text.
func from(start int) func(string) string {
	return func(text string) string { return text[min(start, len(text)):] }
}

// butane returns a MachineConfig of the pool infra.
func butane(t *tenant.Tenant, name, text string) *poolv1.MachineConfig {
	return &poolv1.MachineConfig{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: t.Namespace, Labels: map[string]string{"role": "infra"}},
		Spec:       poolv1.MachineConfigSpec{Butane: text},
	}
}

// waitForMachine waits until the tenant's machine is on.
func waitForMachine(ctx context.Context, t *tenant.Tenant) (m *machine.Machine) {
	GinkgoHelper()
	Eventually(ctx, func() bool {
		m = rack.Machine(t.HostName(0))
		return m != nil && m.IsOn()
	}).Should(BeTrue())
	return m
}

// waitForNode waits until the Node of a config is Ready after another boot than the given one.
func waitForNode(ctx context.Context, t *tenant.Tenant, config *bootstrapv1.PoolbootConfig, boot string) (node *corev1.Node) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		node = t.Node(ctx, config)
		g.Expect(node.Status.NodeInfo.BootID).NotTo(Or(BeEmpty(), Equal(boot)))
		g.Expect(node.Status.Conditions).To(ContainElement(And(HaveField("Type", corev1.NodeReady), HaveField("Status", corev1.ConditionTrue))))
	}).Should(Succeed())
	return node
}

// seen returns a function that returns what seen.service printed, a line for each boot.
func seen(m *machine.Machine) func() []string {
	return func() (lines []string) {
		console, _ := m.Console()
		for line := range strings.Lines(console) {
			if strings.Contains(line, "seen: ") {
				lines = append(lines, strings.TrimSpace(line))
			}
		}
		return lines
	}
}

// watchSteps adds the time of each step of the first boot to the report of the spec.
func watchSteps(ctx context.Context, m *machine.Machine, start time.Time) {
	var text strings.Builder
	done := make(chan struct{})
	go func() {
		defer close(done)
		next := 0
		for next < len(steps) && ctx.Err() == nil {
			console, _ := m.Console()
			if strings.Contains(console, steps[next].line) {
				fmt.Fprintf(&text, "%6.1f s  %s\n", time.Since(start).Seconds(), steps[next].step)
				next++
				continue
			}
			select {
			case <-ctx.Done():
			case <-time.After(200 * time.Millisecond):
			}
		}
	}()
	DeferCleanup(func() {
		<-done
		AddReportEntry("steps of the first boot", text.String())
	})
}
