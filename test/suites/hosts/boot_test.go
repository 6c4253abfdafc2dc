package hosts_test

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/baremetal"
)

// stateful is a unit that records on the disk how often it was started and stopped.
var stateful = unit("stateful.service",
	"[Unit]", "After=network-online.target", "Wants=network-online.target",
	"[Service]", "Type=oneshot", "RemainAfterExit=yes",
	"ExecStart=/bin/sh -c 'echo started >>/var/lib/stateful'",
	"ExecStop=/bin/sh -c 'echo stopped >>/var/lib/stateful'",
	"[Install]", "WantedBy=multi-user.target")

var _ = Describe("A host in namespaces", Ordered, func() {
	var rack *baremetal.Rack

	BeforeAll(func(ctx SpecContext) { rack = newRack(ctx) })

	It("boots what Ignition wrote, with the real systemd and nothing failed", func(ctx SpecContext) {
		h := newHost(rack, "host-0", baremetal.KubeletImage, map[string]any{
			"storage": files(file("/etc/hostname", 0o644, "edge-0\n"), file("/etc/sysctl.d/90-pool.conf", 0o644, "net.ipv4.ip_default_ttl = 65\n")),
			"systemd": units(stateful, unit("unwanted.service", "[Service]", "ExecStart=/bin/false")),
		})
		Expect(h.PowerOn(ctx)).To(Succeed())
		waitForBoot(ctx, h)

		Expect(h.Run(ctx, "hostname")).To(Equal("edge-0\n"))
		Expect(h.Run(ctx, "cat", "/proc/1/comm")).To(Equal("systemd\n"))
		Expect(h.Run(ctx, "cat", "/proc/sys/net/ipv4/ip_default_ttl")).To(Equal("65\n"))
		Expect(h.Run(ctx, "cat", "/var/lib/stateful")).To(Equal("started\n"))
		Expect(h.Run(ctx, "systemctl", "list-units", "--failed", "--plain", "--no-legend")).To(BeEmpty())
		Expect(h.Run(ctx, "systemctl", "is-active", "containerd.service")).To(Equal("active\n"))
		Eventually(h.Journal).WithArguments(ctx, "--unit=stateful.service").Should(ContainSubstring("Finished stateful.service"))
		Expect(h.Console()).To(And(ContainSubstring("Ignition finished successfully"), ContainSubstring("Multi-User System")))
		reportStages(h, "multi-user.target")
		reportCost(ctx, h, "multi-user.target")
	}, SpecTimeout(5*time.Minute))

	It("reboots when it wants to, without Ignition and with its disk", func(ctx SpecContext) {
		h := newHost(rack, "host-1", baremetal.KubeletImage, map[string]any{"systemd": units(stateful)})
		Expect(h.PowerOn(ctx)).To(Succeed())
		first := waitForBoot(ctx, h)
		machineID, err := h.Run(ctx, "cat", "/etc/machine-id")
		Expect(err).NotTo(HaveOccurred())
		Expect(h.Run(ctx, "touch", "/run/volatile")).To(BeEmpty())

		_, _ = h.Run(ctx, "systemctl", "reboot") // its connection can end first
		waitForAnotherBoot(ctx, h, first)
		Expect(h.Run(ctx, "cat", "/var/lib/stateful")).To(Equal("started\nstopped\nstarted\n"))
		Expect(h.Run(ctx, "cat", "/etc/machine-id")).To(Equal(machineID))
		Expect(h.Run(ctx, "ls", "/run")).NotTo(ContainSubstring("volatile"))
		Expect(count(h, baremetal.IgnitionStarted)).To(Equal(1))
		Expect(h.Journal(ctx, "--list-boots", "--quiet")).To(MatchRegexp(`(?s)-1 .*\n.* 0 `))
	}, SpecTimeout(5*time.Minute))

	It("stops its units on a graceful power-off, and does not on a power loss", func(ctx SpecContext) {
		h := newHost(rack, "host-2", baremetal.KubeletImage, map[string]any{"systemd": units(stateful)})
		Expect(h.PowerOn(ctx)).To(Succeed())
		waitForBoot(ctx, h)
		Expect(h.PowerOff(ctx)).To(Succeed())
		Expect(h.Off()).To(BeClosed())
		Expect(h.Err()).NotTo(HaveOccurred())
		_, err := h.Run(ctx, "true")
		Expect(err).To(MatchError(ContainSubstring("systemd has not started")))

		Expect(h.PowerOn(ctx)).To(Succeed())
		second := waitForBoot(ctx, h)
		By("freezing a process, which the kernel does not kill with control groups of v1")
		// Nothing that is frozen, maybe before it executes sleep, holds the output of this command.
		Expect(h.Run(ctx, "sh", "-ec", "exec >/dev/null 2>&1; group=/sys/fs/cgroup/freezer/frozen; [ -d ${group%/*} ] || exit 0; "+
			"mkdir $group; sleep infinity & echo $! >$group/cgroup.procs; echo FROZEN >$group/freezer.state")).To(BeEmpty())
		Expect(h.Reset(ctx)).To(Succeed())
		waitForAnotherBoot(ctx, h, second)
		Expect(h.Run(ctx, "cat", "/var/lib/stateful")).To(Equal("started\nstopped\nstarted\nstarted\n"))
		Expect(count(h, baremetal.IgnitionStarted)).To(Equal(1))
	}, SpecTimeout(5*time.Minute))

	It("retries until the config server answers, and starts over after a power loss in between", func(ctx SpecContext) {
		var requests atomic.Int32
		var ready atomic.Bool
		server := newServer(ctx, rack.Address(), func(w http.ResponseWriter, r *http.Request) {
			requests.Add(1)
			if !ready.Load() {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			_, _ = w.Write(document(map[string]any{"storage": files(file("/etc/served", 0o600, "to "+r.RemoteAddr))}))
		})
		server.Start()
		h := newHostWithUserData(rack, "host-3", baremetal.KubeletImage,
			[]byte(`{"ignition": {"version": "3.4.0", "config": {"merge": [{"source": "`+server.URL+`"}]}}}`))
		Expect(h.PowerOn(ctx)).To(Succeed())
		Eventually(requests.Load).Should(BeNumerically(">", 1))

		withoutReaction, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		Expect(h.PowerOff(withoutReaction)).To(MatchError(context.DeadlineExceeded), "Ignition does not react to the power button")
		Expect(h.Reset(ctx)).To(Succeed())
		ready.Store(true)
		waitForBoot(ctx, h)
		Expect(h.Run(ctx, "cat", "/etc/served")).To(HavePrefix("to " + h.Address() + ":"))
		Expect(count(h, baremetal.IgnitionStarted)).To(Equal(2))
	}, SpecTimeout(5*time.Minute))

	It("powers off with the error of an Ignition that fails", func(ctx SpecContext) {
		h := newHost(rack, "host-4", baremetal.KubeletImage, map[string]any{"storage": files(map[string]any{"path": "relative"})})
		Expect(h.PowerOn(ctx)).To(Succeed())
		Eventually(h.Off()).Should(BeClosed())
		Expect(h.Err()).To(MatchError(And(ContainSubstring("host host-4: ignition, stage fetch"), ContainSubstring("path not absolute"))))
	}, SpecTimeout(5*time.Minute))

	It("refuses to boot twice at the same time, without an image, and to write an image while it is on", func(ctx SpecContext) {
		h, err := rack.NewHost(baremetal.HostOptions{Name: "host-5", Dir: GinkgoT().TempDir(), Log: GinkgoWriter})
		Expect(err).NotTo(HaveOccurred())
		Expect(h.PowerOn(ctx)).To(MatchError(ContainSubstring("call Deploy first")))
		Expect(h.Deploy(baremetal.KubeletImage, document(map[string]any{}))).To(Succeed())
		Expect(h.PowerOn(ctx)).To(Succeed())
		Expect(h.PowerOn(ctx)).To(MatchError(ContainSubstring("it is on already")))
		Expect(h.Deploy(baremetal.KubeletImage, nil)).To(MatchError(ContainSubstring("while the host is on")))
		Expect(h.PowerCut()).To(Succeed())
	}, SpecTimeout(5*time.Minute))
})
