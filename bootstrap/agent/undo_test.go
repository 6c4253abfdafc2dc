package agent

import (
	"errors"
	"slices"
	"time"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// lastIndex returns the last index of a step.
func lastIndex(steps []string, step string) int {
	for i, s := range slices.Backward(steps) {
		if s == step {
			return i
		}
	}
	return -1
}

var _ = Describe("An update that fails", func() {
	DescribeTable("is undone, with the reason, and not tried again", func(file string, calls []string, breaks func(*world), reason string) {
		w := installed(withFiles(file, "a"))
		first, before := w.node.Annotations[agentv1.DesiredAnnotation], w.snapshot()
		second := w.offer(w.assign("rendered-b", withFiles(file, "b")))
		breaks(w)
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Degraded " + second))
		Expect(w.reason()).To(ContainSubstring(reason))
		Expect(w.node.Annotations).To(HaveKeyWithValue(agentv1.CurrentAnnotation, first))
		Expect(w.states).To(ContainElement("Applying (undo)"), "an undo is reported")
		Expect(w.states[len(w.states)-1]).To(Equal("Degraded"), "its end, too")
		Expect(w.snapshot()).To(Equal(before))
		Expect(w.calls).To(Equal(calls))
		By("starting again")
		w.calls = nil
		Expect(w.run()).To(Succeed())
		Expect(w.calls).To(BeEmpty())
		Expect(w.state()).To(Equal("Degraded " + second))
		By("changing to a revision that works")
		w.isBroken, w.isCutOff, w.fails = func() bool { return false }, func() bool { return false }, map[string]error{}
		third := w.offer(w.assign("rendered-c", withFiles(file, "c")))
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Done " + third))
		Expect(w.read(file)).To(Equal("c"))
	},
		Entry("because the Node is not Ready after a reboot", "/etc/f", []string{"reboot", "reboot"},
			func(w *world) {
				w.isBroken = func() bool { return w.read("etc/f") == "b" }
			}, "the kubelet has not reported"),
		Entry("because the host has no network with new network data", "/etc/systemd/network/70-network-data-nic1.network", []string{"reboot", "reboot"},
			func(w *world) {
				w.isBroken = func() bool { return w.read("etc/systemd/network/70-network-data-nic1.network") == "b" }
			}, "the kubelet has not reported"),
		Entry("because the host can't reach the config server with new network data, from which the next would come",
			"/etc/systemd/network/70-network-data-nic1.network", []string{"reboot", "reboot"}, func(w *world) {
				w.isCutOff = func() bool { return w.read("etc/systemd/network/70-network-data-nic1.network") == "b" }
			}, "the config server can't be reached since the network was changed: no route to host"),
		Entry("because the Node is not Ready after a restart", "/etc/restart/f", []string{"restart kubelet.service", "daemon-reload", "restart kubelet.service"},
			func(w *world) { w.isBroken = func() bool { return w.read("etc/restart/f") == "b" } }, "the kubelet has not reported"),
		Entry("because a reload fails", "/etc/reload/f", []string{"daemon-reload"},
			func(w *world) { w.fails["reload web.service"] = errors.New("exit status 1") }, "Reload web.service: exit status 1"),
		Entry("because files can't be written", "/etc/reload/f", []string{"daemon-reload"},
			func(w *world) { w.fails["apply files"] = errors.New("no space left on device") }, "no space left"),
		Entry("without a reboot because files can't be written", "/etc/f", []string{"daemon-reload"},
			func(w *world) { w.fails["apply files"] = errors.New("no space left on device") }, "no space left"),
	)

	It("starts those units again that it removed and that were enabled", func() {
		config := withFiles("/etc/reload/f", "a")
		config.Ignition.Systemd.Units = []types.Unit{unit("enabled.service", "[Unit]", true), unit("disabled.service", "[Unit]", false)}
		quiet := func(a *assignment.Assignment) {
			for _, name := range []string{"enabled.service", "disabled.service"} {
				a.Policy.Units[name] = rule(update.Action{Type: update.DaemonReload})
			}
		}
		w := installed(config, quiet)
		w.fails["reload web.service"] = errors.New("exit status 1")
		w.offer(w.assign("rendered-b", withFiles("/etc/reload/f", "b"), quiet))
		Expect(w.run()).To(Succeed())
		Expect(w.calls).To(ContainElements("stop disabled.service enabled.service", "start enabled.service"))
		Expect(w.calls).NotTo(ContainElement(And(HavePrefix("start "), ContainSubstring("disabled.service"))))
	})

	It("starts the units again that it stopped, and the instances of templates", func() {
		config := withFiles("/etc/reload/f", "a")
		config.Ignition.Systemd.Units = []types.Unit{unit("t@.service", "[Service]", true), {Name: "t@1.service", Enabled: new(true)}, {Name: "t@2.service"}, unit("web.service", "[Service]", true)}
		none := func(a *assignment.Assignment) {
			for _, name := range []string{"t@.service", "t@1.service", "t@2.service"} {
				a.Policy.Units[name] = rule(update.Action{Type: update.None})
			}
		}
		w := newWorld()
		w.install(w.assign("rendered-a", config, none))
		Expect(w.run()).To(Succeed())
		w.fails["apply files"] = errors.New("no space left on device")
		second := w.offer(w.assign("rendered-b", withFiles("/etc/reload/f", "b"), none))
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Degraded " + second))
		Expect(w.calls).To(Equal([]string{"stop t@.service t@1.service web.service", "daemon-reload", "restart web.service", "start t@1.service"}))
	})

	Describe("after which units are others", func() {
		none := func(a *assignment.Assignment) {
			for _, name := range []string{"old.service", "new.service"} {
				a.Policy.Units[name] = rule(update.Action{Type: update.None})
			}
		}
		only := func(name string, file ...string) update.Config {
			config := withFiles(file...)
			config.Ignition.Systemd.Units = []types.Unit{unit(name, "[Service]", true)}
			return config
		}

		It("stops those that it started, before their files go, and starts those that it stopped", func() {
			w := newWorld()
			w.install(w.assign("rendered-a", only("old.service"), none))
			Expect(w.run()).To(Succeed())
			w.fails["start new.service old.service"] = errors.New("exit status 1")
			before := w.snapshot()
			second := w.offer(w.assign("rendered-b", only("new.service"), none))
			Expect(w.run()).To(Succeed())
			Expect(w.state()).To(Equal("Degraded " + second))
			Expect(w.reason()).To(ContainSubstring("start new.service old.service: exit status 1"))
			Expect(w.calls).To(Equal([]string{"stop old.service", "daemon-reload", "stop new.service", "daemon-reload"}))
			Expect(w.snapshot()).To(Equal(before))
			Expect(slices.Index(w.steps, "after stop new.service")).To(BeNumerically("<", slices.Index(w.steps, "before roll back files")))
		})

		It("goes on if they do not stop or start", func() {
			w := newWorld()
			w.install(w.assign("rendered-a", only("old.service", "/etc/reload/f", "a"), none))
			Expect(w.run()).To(Succeed())
			before := w.snapshot()
			w.fails["reload web.service"] = errors.New("exit status 1")
			w.fails["stop new.service"] = errors.New("it hangs")
			w.fails["start new.service old.service"] = errors.New("exit status 1")
			second := w.offer(w.assign("rendered-b", only("new.service", "/etc/reload/f", "b"), none))
			Expect(w.run()).To(Succeed())
			Expect(w.state()).To(Equal("Degraded " + second))
			Expect(w.snapshot()).To(Equal(before))
		})

		It("stops those that a reboot started, before a user is removed as whom they run, and reboots", func() {
			w := installed(withFiles())
			config := only("new.service")
			config.Ignition.Passwd.Users = []types.PasswdUser{{Name: "app"}}
			w.offer(w.assign("rendered-b", config))
			w.isBroken = func() bool { return w.accounts["app"] != "" }
			Expect(w.run()).To(Succeed())
			Expect(w.state()).To(HavePrefix("Degraded "))
			Expect(w.calls).To(Equal([]string{"reboot", "stop new.service", "reboot"}))
			Expect(slices.Index(w.steps, "after stop new.service")).To(BeNumerically("<", lastIndex(w.steps, "before accounts app")))
		})
	})

	DescribeTable("because the host does not boot what was configured is undone", func(change func(*update.Config), reason string) {
		before, config := withFiles("/etc/f", "a"), withFiles("/etc/f", "b")
		before.KernelArguments, config.KernelArguments = []string{"old"}, []string{"old"}
		w := installed(before)
		change(&config)
		w.losesArguments = true
		second := w.offer(w.assign("rendered-b", config))
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Degraded " + second))
		Expect(w.reason()).To(ContainSubstring(reason))
		Expect(w.read("etc/f")).To(Equal("a"))
	},
		Entry("kernel arguments", func(c *update.Config) { c.KernelArguments = []string{"old", "quiet"} }, "without the kernel arguments quiet"),
		Entry("kernel arguments that it removes", func(c *update.Config) { c.KernelArguments = nil }, "with the kernel arguments old, which the update removes"),
		Entry("an image", func(c *update.Config) { c.OS.Image = "image:2" }, "another operating system"),
	)

	It("because the API server is not reachable after it is undone, too", func() {
		w := installed(withFiles("/etc/f", "a"))
		w.offer(w.assign("rendered-b", withFiles("/etc/f", "b")))
		w.isBroken = func() bool {
			w.node.Known = w.read("etc/f") != "b"
			return !w.node.Known
		}
		Expect(w.run()).To(Succeed())
		Expect(w.reason()).To(ContainSubstring("API server"))
		Expect(w.read("etc/f")).To(Equal("a"))
	})

	DescribeTable("because it kills the agent is undone", func(step string) {
		w := installed(withFiles("/etc/reload/f", "a"))
		second := w.offer(w.assign("rendered-b", withFiles("/etc/reload/f", "b")))
		w.killedAt = step
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Degraded " + second))
		Expect(w.reason()).To(ContainSubstring("interrupted 4 times"))
		Expect(w.read("etc/reload/f")).To(Equal("a"))
	},
		Entry("while files are written", "before apply files"),
		Entry("while units are reloaded", "before reload web.service"),
	)

	It("because the host boots again and again is undone", func() {
		w := installed(withFiles("/etc/f", "a"))
		w.offer(w.assign("rendered-b", withFiles("/etc/f", "b")))
		w.isBroken = func() bool { return w.read("etc/f") == "b" }
		for range 6 {
			a, stop := w.begin()
			func() {
				defer func() { _ = recover() }() // a reboot
				for range 5 {
					_, err := a.Step(GinkgoT().Context(), w.node)
					Expect(err).NotTo(HaveOccurred())
					w.pass(time.Second)
				}
			}()
			stop()
			if w.read("etc/f") == "b" {
				w.boot()
			}
		}
		w.isBroken = func() bool { return false }
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(HavePrefix("Degraded "))
		Expect(w.reason()).To(ContainSubstring("booted 4 times"))
		Expect(w.read("etc/f")).To(Equal("a"))
	})
})
