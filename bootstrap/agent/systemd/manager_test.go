package systemd_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/command"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/systemd"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/unitstate"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/baremetal"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/process"
)

// units are those of the host, by name.
var units = map[string]string{
	"counter.service":   "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/sh -c 'echo start >> /run/counter'\nExecReload=/bin/sh -c 'echo reload >> /run/counter'\nExecStop=/bin/sh -c 'echo stop >> /run/counter'\n",
	"sleeper@.service":  "[Service]\nExecStart=/bin/sleep 1000\n",
	"hanging.service":   "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/true\nExecReload=/bin/sleep 1000\n",
	"failing.service":   "[Service]\nType=oneshot\nEnvironment=TOKEN=CANARY\nExecStart=/bin/sh -c 'echo $TOKEN; echo $TOKEN >&2; exit 3'\n",
	"killed.service":    "[Service]\nType=oneshot\nExecStart=/bin/sh -c 'kill -KILL $$$$'\n",
	"corrected.service": "[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/bin/test -e /run/corrected\nExecReload=/bin/true\n",
	"restarted.service": "[Service]\nExecStart=/bin/sh -c 'test -e /run/corrected && exec sleep 1000; exit 3'\nRestart=always\nRestartSec=1000\n",
	"wrong.service":     "[Service]\nType=oneshot\n",
	"needs.service":     "[Unit]\nRequires=failing.service\nAfter=failing.service\n[Service]\nExecStart=/bin/sleep 1000\n",
	"slow.service":      "[Unit]\nBefore=middle.service\n[Service]\nType=oneshot\nExecStart=/bin/sleep 1000\nTimeoutStartSec=infinity\n",
	"middle.service":    "[Unit]\nRequires=slow.service\n[Service]\nExecStart=/bin/sleep 1000\n",
	"waiting.service":   "[Unit]\nRequires=middle.service\nAfter=middle.service\n[Service]\nExecStart=/bin/sleep 1000\n",
	"required.service":  "[Service]\nExecStart=/bin/sleep 1000\n",
	"requiring.service": "[Unit]\nRequires=required.service\nAfter=required.service\n[Service]\nExecStart=/bin/sleep 1000\n",
	"wanted.service":    "[Service]\nExecStart=/bin/sleep 1000\n[Install]\nWantedBy=multi-user.target\n",
	"unwanted.service":  "[Service]\nExecStart=/bin/sleep 1000\n[Install]\nWantedBy=shutdown.target\n",
	"forgotten.service": "[Service]\nExecStart=/bin/sleep 1000\n",
}

// bootHost boots a host with the units.
func bootHost(ctx context.Context) *baremetal.Host {
	GinkgoHelper()
	bin, err := process.BinDir()
	Expect(err).NotTo(HaveOccurred())
	if _, err := os.Stat(filepath.Join(bin, "rootfs", "root")); err != nil || os.Geteuid() != 0 {
		Skip("booting a host needs root, and its root file system: run make binaries")
	}
	rack, err := baremetal.NewRack(ctx)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(rack.Close)
	host, err := rack.NewHost(baremetal.HostOptions{Name: "units", Dir: GinkgoT().TempDir(), Log: GinkgoWriter})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(host.PowerCut)
	var list []object
	for name, contents := range units {
		unit := object{"name": name, "contents": contents}
		if strings.Contains(contents, "[Install]") {
			unit["enabled"] = true
		}
		list = append(list, unit)
	}
	list = append(list, object{"name": "masked.service", "mask": true})
	Expect(host.Deploy(baremetal.KubeletImage, encode(object{"ignition": object{"version": "3.4.0"}, "systemd": object{"units": list}}))).To(Succeed())
	Expect(host.PowerOn(ctx)).To(Succeed())
	waitForBoot(ctx, host)
	return host
}

func waitForBoot(ctx context.Context, host *baremetal.Host) {
	GinkgoHelper()
	Eventually(ctx, func() (string, error) {
		if err := host.Err(); err != nil {
			return "", StopTrying(err.Error())
		}
		return host.Run(ctx, "systemctl", "is-active", "multi-user.target")
	}).WithTimeout(3 * time.Minute).WithPolling(200 * time.Millisecond).Should(Equal("active\n"))
}

const (
	// callArgument is the first argument of the program of this suite when it runs on the host.
	callArgument = "call-manager"
	// program is the path of that program.
	program = "/opt/systemd.test"
)

// result is what a method of the manager returned.
type result struct {
	Error     string
	IsTimeout bool
	Exists    bool
	Reads     bool
	Failing   []string
	State     unitstate.State
	DropIns   []string
	Files     []string
	Masked    []string
}

// call calls a method of the manager, with a unit and a time limit, and prints the result.
func call(arguments []string) {
	limit, err := time.ParseDuration(arguments[2])
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	manager, r := systemd.Manager{}, result{}
	switch method, unit := arguments[0], arguments[1]; method {
	case "daemon-reload":
		err = manager.DaemonReload(ctx)
	case "reload":
		r.Reads, err = manager.Reload(ctx, unit)
	case "restart":
		err = manager.Restart(ctx, unit)
	case "stop":
		err = manager.Stop(ctx, strings.Fields(unit)...)
	case "start":
		err = manager.Start(ctx, strings.Fields(unit)...)
	case "overrides":
		configured := map[string]bool{}
		for name := range units {
			configured["/etc/systemd/system/"+name] = true
		}
		r.DropIns, r.Files, r.Masked, err = manager.Overrides(ctx, strings.Fields(unit), configured)
	case "exists":
		r.Exists, err = manager.Exists(ctx, unit)
	case "failing":
		r.Failing, err = manager.Failing(ctx)
	case "state":
		r.State, err = manager.State(ctx, unit)
	case "reboot":
		err = manager.Reboot(ctx, update.RebootMethod(unit))
	case "started":
		_, err = manager.Started(ctx)
	default:
		panic(method)
	}
	if err != nil {
		r.Error, r.IsTimeout = command.Detail(err), errors.Is(err, context.DeadlineExceeded)
	}
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		panic(err)
	}
}

var _ = Describe("The systemd of a host", Ordered, func() {
	var host *baremetal.Host

	BeforeAll(func(ctx SpecContext) {
		host = bootHost(context.WithoutCancel(ctx))
		self, err := os.ReadFile("/proc/self/exe")
		Expect(err).NotTo(HaveOccurred())
		Expect(host.WriteFile(program, self, 0o755)).To(Succeed())
	})

	callWithin := func(ctx context.Context, limit time.Duration, method, unit string) (r result) {
		GinkgoHelper()
		output, err := host.Run(ctx, program, callArgument, method, unit, limit.String())
		Expect(err).NotTo(HaveOccurred())
		Expect(json.Unmarshal([]byte(output), &r)).To(Succeed(), output)
		return r
	}
	try := func(ctx context.Context, method, unit string) result {
		GinkgoHelper()
		return callWithin(ctx, time.Minute, method, unit)
	}
	succeed := func(ctx context.Context, method, unit string) {
		GinkgoHelper()
		Expect(try(ctx, method, unit).Error).To(BeEmpty())
	}

	state := func(ctx context.Context, unit string) string {
		output, _ := host.Run(ctx, "systemctl", "is-active", unit) // fails if it is not active
		return strings.TrimSpace(output)
	}

	It("restarts, reloads and stops a unit", func(ctx SpecContext) {
		succeed(ctx, "restart", "counter.service")
		succeed(ctx, "reload", "counter.service")
		succeed(ctx, "restart", "counter.service")
		succeed(ctx, "stop", "counter.service")
		Expect(host.Run(ctx, "cat", "/run/counter")).To(Equal("start\nreload\nstop\nstart\nstop\n"))
	})

	DescribeTable("does not fail to reload a unit only because it is down:", func(ctx SpecContext, prepare, unit string, want result, wantState string) {
		DeferCleanup(host.Run, "sh", "-c", "rm -f /run/corrected; systemctl stop restarted.service corrected.service; systemctl reset-failed")
		_, err := host.Run(ctx, "sh", "-c", prepare)
		Expect(err).NotTo(HaveOccurred())
		Expect(try(ctx, "reload", unit)).To(Equal(want))
		Expect(state(ctx, unit)).To(Equal(wantState))
	},
		Entry("one that failed starts", "systemctl start corrected.service || touch /run/corrected", "corrected.service", result{Reads: true}, "active"),
		Entry("one that systemd is about to start again starts", "systemctl start restarted.service; until systemctl show restarted.service | grep -q =auto-restart; do sleep .1; done; touch /run/corrected",
			"restarted.service", result{Reads: true}, "active"),
		Entry("one that somebody stopped stays so", "systemctl restart counter.service; systemctl stop counter.service", "counter.service", result{}, "inactive"),
		Entry("one that nothing has started stays so", "true", "unwanted.service", result{}, "inactive"),
		Entry("one that is masked stays so", "true", "masked.service", result{}, "inactive"),
	)

	It("says why a unit does not reload", func(ctx SpecContext) {
		Expect(try(ctx, "restart", "failing.service").Error).NotTo(BeEmpty())
		Expect(try(ctx, "reload", "failing.service").Error).To(ContainSubstring("Job for failing.service failed"))
		Expect(try(ctx, "reload", "none.service").Error).To(ContainSubstring("none.service not found"))
	})

	It("reads unit files again when it is told to", func(ctx SpecContext) {
		succeed(ctx, "restart", "counter.service")
		Expect(host.WriteFile("/etc/systemd/system/counter.service", []byte(units["counter.service"]+"ExecReload=/bin/touch /run/second\n"), 0o644)).To(Succeed())
		succeed(ctx, "daemon-reload", "")
		succeed(ctx, "reload", "counter.service")
		_, err := host.ReadFile("/run/second")
		Expect(err).NotTo(HaveOccurred())
	})

	It("stops several units at once, of which some do not exist or failed, and all instances of a template", func(ctx SpecContext) {
		succeed(ctx, "stop", "none.service none@.service")
		for _, unit := range []string{"sleeper@a.service", "sleeper@b.service", "counter.service"} {
			succeed(ctx, "restart", unit)
		}
		Expect(try(ctx, "restart", "failing.service").Error).NotTo(BeEmpty())
		succeed(ctx, "stop", "none.service sleeper@.service failing.service counter.service")
		for _, unit := range []string{"sleeper@a.service", "sleeper@b.service", "counter.service", "failing.service"} {
			Expect(state(ctx, unit)).To(Equal("inactive"), unit)
		}
	})

	It("does not stop a unit that requires another one which stops", func(ctx SpecContext) {
		succeed(ctx, "restart", "requiring.service")
		Expect(state(ctx, "required.service")).To(Equal("active"))
		succeed(ctx, "stop", "required.service")
		Expect(state(ctx, "required.service")).To(Equal("inactive"))
		Expect(state(ctx, "requiring.service")).To(Equal("active"))
	})

	It("starts units that something active wants, and leaves out others", func(ctx SpecContext) {
		succeed(ctx, "start", "none.service none@.service masked.service unwanted.service wanted.service")
		Expect(state(ctx, "wanted.service")).To(Equal("active"))
		Expect(state(ctx, "unwanted.service")).To(Equal("inactive"), "only the shutdown wants it")
		_, err := host.Run(ctx, "ln", "-s", "../failing.service", "/etc/systemd/system/multi-user.target.wants/failing.service")
		Expect(err).NotTo(HaveOccurred())
		succeed(ctx, "daemon-reload", "")
		Expect(try(ctx, "start", "failing.service").Error).To(ContainSubstring("Job for failing.service failed"))
		Expect(host.Remove("/etc/systemd/system/multi-user.target.wants/failing.service")).To(Succeed())
		succeed(ctx, "stop", "failing.service")
		succeed(ctx, "daemon-reload", "")
	})

	It("finds what overrides a unit, wherever systemd reads units", func(ctx SpecContext) {
		Expect(try(ctx, "overrides", "counter.service sleeper@.service systemd-journald.service masked.service none.service")).
			To(Equal(result{Masked: []string{"masked.service"}}))
		writeFile := func(name, contents string) {
			GinkgoHelper()
			_, err := host.Run(ctx, "mkdir", "-p", path.Dir(name))
			Expect(err).NotTo(HaveOccurred())
			Expect(host.WriteFile(name, []byte(contents), 0o644)).To(Succeed())
		}
		var want []string
		for _, directory := range []string{"/etc/systemd/system.control", "/run/systemd/system.control", "/run/systemd/transient", "/run/systemd/system"} {
			want = append(want, directory+"/counter.service.d/by hand.conf")
		}
		want = append(want, "/etc/systemd/system/service.d/all.conf", "/run/systemd/system/service.d/all2.conf")
		for i, name := range want { // of drop-ins with one name, systemd reads only the first
			if i < 4 {
				want[i] = strings.Replace(name, "by hand", fmt.Sprintf("by hand %d", i), 1)
			}
			writeFile(want[i], "[Unit]\n")
		}
		writeFile("/run/systemd/transient/wanted.service", units["wanted.service"])
		succeed(ctx, "daemon-reload", "")
		found := try(ctx, "overrides", "counter.service wanted.service")
		Expect(found.DropIns).To(ConsistOf(want))
		Expect(found.Files).To(ConsistOf("/run/systemd/transient/wanted.service"))
		for _, name := range append(want, "/run/systemd/transient/wanted.service") {
			Expect(host.Remove(name)).To(Succeed())
		}
		succeed(ctx, "daemon-reload", "")
		Expect(try(ctx, "overrides", "counter.service wanted.service")).To(Equal(result{}))
	})

	It("would not stop a unit any more whose file was removed, unless it is stopped before", func(ctx SpecContext) {
		succeed(ctx, "restart", "forgotten.service")
		succeed(ctx, "stop", "forgotten.service")
		Expect(host.Remove("/etc/systemd/system/forgotten.service")).To(Succeed())
		succeed(ctx, "daemon-reload", "")
		Expect(state(ctx, "forgotten.service")).To(Equal("inactive"))
		Expect(try(ctx, "exists", "forgotten.service")).To(Equal(result{}))
	})

	DescribeTable("knows whether a unit exists:",
		func(ctx SpecContext, unit string, want bool) {
			Expect(try(ctx, "exists", unit)).To(Equal(result{Exists: want}))
		},
		Entry("a unit", "counter.service", true),
		Entry("a unit of the image", "systemd-journald.service", true),
		Entry("an instance of a template", "sleeper@other.service", true),
		Entry("no unit", "none.service", false),
		Entry("a masked unit", "masked.service", false),
	)

	It("ends a reload that hangs when the time is over, and cancels its job", func(ctx SpecContext) {
		succeed(ctx, "restart", "hanging.service")
		Expect(callWithin(ctx, time.Second, "reload", "hanging.service").IsTimeout).To(BeTrue())
		Eventually(ctx, func() (string, error) { return host.Run(ctx, "systemctl", "list-jobs", "--no-legend") }).WithTimeout(20 * time.Second).Should(BeEmpty())
	})

	Context("that asks why units do not do their work", func() {
		AfterEach(func(ctx SpecContext) {
			_, err := host.Run(ctx, "systemctl", "stop", "restarted.service", "waiting.service", "middle.service", "slow.service")
			Expect(err).NotTo(HaveOccurred())
			_, err = host.Run(ctx, "systemctl", "reset-failed")
			Expect(err).NotTo(HaveOccurred())
		})
		problem := func(ctx context.Context, unit string, mustRun bool) string {
			GinkgoHelper()
			r := try(ctx, "state", unit)
			Expect(r.Error).To(BeEmpty())
			if problem := r.State.Problem(mustRun); problem != nil {
				return problem.What
			}
			return ""
		}

		It("gets their results, and no line of their logs", func(ctx SpecContext) {
			Expect(try(ctx, "failing", "")).To(Equal(result{}))
			for _, unit := range []string{"failing.service", "killed.service", "wrong.service", "needs.service"} {
				Expect(try(ctx, "restart", unit).Error).To(And(HavePrefix("systemctl restart -- "+unit+": exit status 1"), Not(ContainSubstring("CANARY"))))
			}
			Expect(try(ctx, "failing", "").Failing).To(ContainElements("failing.service", "killed.service"))
			Expect(problem(ctx, "failing.service", false)).To(Equal("it failed: result exit-code, exit status 3"))
			Expect(problem(ctx, "killed.service", false)).To(Equal("it failed: result signal, signal 9"))
			Expect(problem(ctx, "wrong.service", false)).To(HavePrefix("systemd can't start it: its unit file is bad-setting"))
			Expect(problem(ctx, "needs.service", true)).To(Equal("it is not running: it needs failing.service, which failed"))
			Expect(problem(ctx, "none.service", true)).To(BeEmpty())
			Expect(problem(ctx, "systemd-journald.service", true)).To(BeEmpty())
		})

		It("sees one that systemd starts again", func(ctx SpecContext) {
			_, err := host.Run(ctx, "systemctl", "start", "restarted.service")
			Expect(err).NotTo(HaveOccurred())
			Eventually(ctx, func() []string { return try(ctx, "failing", "").Failing }).Should(ContainElement("restarted.service"))
			Expect(problem(ctx, "restarted.service", false)).To(Equal("it ended, and systemd starts it again: result exit-code, exit status 3"))
		})

		It("gets the unit for which another one waits, also through a third one", func(ctx SpecContext) {
			_, err := host.Run(ctx, "systemctl", "--no-block", "start", "waiting.service")
			Expect(err).NotTo(HaveOccurred())
			Expect(problem(ctx, "waiting.service", true)).To(Equal("it has not started: it waits for slow.service"))
			Expect(callWithin(ctx, time.Second, "restart", "waiting.service").Error).To(HaveSuffix(": it waits for slow.service"))
		})
	})

	DescribeTable("does not reboot by a method that the host refuses, and goes on", func(ctx SpecContext, method, entry, why string) {
		if entry != "" {
			Expect(host.Run(ctx, "mkdir", "-p", path.Dir(systemd.BootEntryProgram))).To(BeEmpty())
			Expect(host.WriteFile(systemd.BootEntryProgram, []byte("#!/bin/sh\nprintf '"+entry+"'\n"), 0o755)).To(Succeed())
		}
		Expect(try(ctx, "reboot", method).Error).To(ContainSubstring(why))
		Expect(try(ctx, "started", "").Error).To(BeEmpty())
		Expect(host.Run(ctx, "systemctl", "list-jobs", "--no-legend")).To(BeEmpty())
	},
		Entry("kexec without a program that knows the kernel", "Kexec", "", "the kernel that boots next is not known: the host has no program "+systemd.BootEntryProgram),
		Entry("kexec of nothing", "Kexec", `linux /boot/none\noptions ro\n`, "it has not all of the lines linux, initrd and options"),
		Entry("kexec of two kernels", "Kexec", `linux /a\nlinux /b\n`, "it has two lines linux"),
		Entry("kexec of a kernel that does not exist", "Kexec", `linux /boot/none\ninitrd /boot/none\noptions ro\n`, "open /boot/none: no such file or directory"),
		Entry("kexec of what the running kernel refuses", "Kexec", `linux /etc/passwd\ninitrd /etc/passwd\noptions ro\n`, "the running kernel refuses to load /etc/passwd: "),
		Entry("a soft reboot with systemd 252", "SoftReboot", "", "a soft reboot needs systemd 254, and the host has systemd 252"),
		Entry("a method that this version does not know", "Warm", "", "this agent knows no reboot method Warm"),
	)

	It("reboots", func(ctx SpecContext) {
		boot, err := host.Run(ctx, "cat", "/proc/sys/kernel/random/boot_id")
		Expect(err).NotTo(HaveOccurred())
		// The reboot can end the process before it has answered.
		if _, err := host.Run(ctx, program, callArgument, "reboot", "", time.Minute.String()); err != nil {
			Expect(err).To(MatchError(ContainSubstring("exit status 143")))
		}
		Eventually(ctx, func() string {
			now, _ := host.Run(ctx, "cat", "/proc/sys/kernel/random/boot_id") // an error between the boots
			return now
		}).WithTimeout(time.Minute).ShouldNot(Or(BeEmpty(), Equal(boot)))
		waitForBoot(ctx, host)
	})
})
