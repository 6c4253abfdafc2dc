package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/hostfiles"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

var _ = Describe("Whatever happens to an undo,", func() {
	failing := errors.New("exit status 1")
	quiet := func(a *assignment.Assignment) {
		for _, name := range []string{"bad.service", "good.service"} {
			a.Policy.Units[name] = rule(update.Action{Type: update.None})
		}
	}
	// begin returns a host whose update adds a user and a unit, and fails when a unit is reloaded.
	begin := func(onReload func(*world)) (w *world, second string) {
		b := withFiles("/etc/reload/f", "b")
		b.Ignition.Systemd.Units = []types.Unit{unit("bad.service", "[Install]", true)}
		b.Ignition.Passwd.Users = []types.PasswdUser{{Name: "app"}}
		w = installed(withFiles("/etc/reload/f", "a"), quiet)
		second = w.offer(w.assign("rendered-b", b, quiet))
		w.during = map[string]func(context.Context) error{"reload web.service": func(context.Context) error {
			onReload(w)
			return failing
		}}
		return w, second
	}
	reboots := func(w *world) int {
		return len(slices.DeleteFunc(slices.Clone(w.calls), func(call string) bool { return call != "reboot" }))
	}

	It("flags of the kubelet that can't be restored are left over, also among other files", func() {
		w := installed(withFiles("/etc/reload/f", "a"))
		second := w.offer(w.assign("rendered-b", withFiles("/etc/reload/f", "b", ignition.KubeadmJoinPath, "x")))
		w.isBroken = func() bool { return w.read("etc/reload/f") == "b" }
		w.rebooted = func() { w.fails["flags "+ignition.KubeadmJoinPath] = failing }
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Degraded " + second))
		Expect(w.flags).To(BeTrue())
		Expect(w.node.Annotations[agentv1.DriftAnnotation]).To(ContainSubstring(ignition.KubeadmJoinPath + ": NotRestored"))
		w.rebooted, w.fails = nil, map[string]error{}
		Expect(w.run()).To(Succeed())
		Expect(w.flags).To(BeFalse())
	})

	It("what the undo of a repair could not restart is not left over for ever", func() {
		w := installed(withFiles("/etc/restart/f", "a"), repairs)
		w.write("etc/restart/f", "by hand")
		w.fails["restart kubelet.service"] = failing
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(HavePrefix("Degraded "))
		w.fails = map[string]error{}
		w.write("etc/restart/f", "a")
		w.boot()
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(HavePrefix("Done "))
	})

	It("documents that are lost in the middle of it end in a reboot, as at its beginning", func() {
		w, second := begin(func(w *world) { w.killedAt = "before accounts app" })
		_, _ = w.runOne()
		w.killedAt = ""
		Expect(w.enablement).NotTo(HaveKey("bad.service"), "the undo has begun")
		Expect(os.Remove(filepath.Join(w.directory, "var/lib/poolboot/agent", second+renderedEnding))).To(Succeed())
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Degraded " + second))
		Expect(w.read("etc/reload/f")).To(Equal("a"))
		Expect(reboots(w)).To(Equal(1))
	})

	It("a host that can't reboot for an update accepts another revision", func() {
		w := installed(withFiles("/etc/f", "a"))
		first := w.node.Annotations[agentv1.DesiredAnnotation]
		w.offer(w.assign("rendered-b", withFiles("/etc/f", "b")))
		w.fails["reboot"] = failing
		Expect(w.run()).To(MatchError(failing))
		Expect(w.node.Annotations[agentv1.StateAnnotation]).To(Equal("Rebooting"))
		w.offered, w.node.Annotations[agentv1.DesiredAnnotation] = first, first
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Done " + first))
		Expect(w.read("etc/f")).To(Equal("a"))
	})

	It("a host that never reboots for an update has what it had before", func() {
		w := installed(withFiles("/etc/f", "a"))
		second := w.offer(w.assign("rendered-b", withFiles("/etc/f", "b")))
		w.fails["reboot"] = failing
		for range maxReboots {
			Expect(w.run()).To(MatchError(failing))
		}
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Degraded " + second))
		Expect(w.reason()).To(ContainSubstring("the host has not rebooted, although that was requested 8 times"))
		Expect(w.read("etc/f")).To(Equal("a"))
	})

	It("a host that never reboots after it accepts another revision", func() {
		w, second := begin(func(w *world) { w.fails["accounts app"], w.fails["reboot"] = failing, failing })
		for range maxReboots {
			Expect(w.run()).To(MatchError(failing))
		}
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Degraded " + second))
		Expect(w.reason()).To(And(ContainSubstring("requested 8 times: reboot it"), ContainSubstring("User app: exit status 1")))
		third := w.offer(w.assign("rendered-c", withFiles("/etc/reload/f", "a", "/etc/none/f", "c")))
		w.during = nil
		Expect(w.run()).To(Succeed())
		Expect(w.node.Annotations).To(HaveKeyWithValue(agentv1.CurrentAnnotation, third))
	})

	It("a file that is left over and ends the agent each time does not hold the host", func() {
		w, second := begin(func(w *world) {
			w.during = nil
			name := filepath.Join(w.directory, "etc/reload/f")
			Expect(os.Remove(name)).To(Succeed())
			Expect(os.MkdirAll(filepath.Join(name, "x"), 0o755)).To(Succeed())
		})
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Degraded " + second))
		Expect(w.node.Annotations[agentv1.DriftAnnotation]).To(ContainSubstring("/etc/reload/f: NotRestored"))
		w.during, w.killedAt = nil, "before restore what is left over"
		third := w.offer(w.assign("rendered-c", withFiles("/etc/reload/f", "a", "/etc/none/f", "c")))
		Expect(w.run()).To(Succeed())
		Expect(w.node.Annotations).To(HaveKeyWithValue(agentv1.CurrentAnnotation, third))
	})

	It("another update that is undone completely does not reboot the host because of what an earlier one left over", func() {
		w, _ := begin(func(w *world) { w.left = []hostfiles.LeftOver{{Path: "/mnt/f", Why: "something is mounted there"}} })
		Expect(w.run()).To(Succeed())
		Expect(reboots(w)).To(Equal(1))
		third := w.offer(w.assign("rendered-c", withFiles("/etc/reload/f", "c"), quiet))
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Degraded " + third))
		Expect(reboots(w)).To(Equal(1))
	})

	It("kernel arguments that two undos left over are both restored later", func() {
		w := installed(withFiles("/etc/f", "a"))
		w.isBroken = func() bool { return strings.HasPrefix(w.read("etc/f"), "b") }
		w.rebooted = func() { w.fails["arguments "] = failing }
		for _, argument := range []string{"one", "two"} {
			config := withFiles("/etc/f", "b"+argument)
			config.KernelArguments = []string{argument}
			w.offer(w.assign("rendered-"+argument, config))
			Expect(w.run()).To(Succeed())
			Expect(w.node.Annotations[agentv1.StateAnnotation]).To(Equal("Degraded"))
		}
		Expect(w.arguments).To(ConsistOf("one", "two"))
		w.rebooted, w.fails = nil, map[string]error{}
		Expect(w.run()).To(Succeed())
		Expect(w.arguments).To(BeEmpty())
	})

	It("what is left over is restored also if another update could not return to the one that left it over", func() {
		w, _ := begin(func(w *world) { w.fails["accounts app"] = failing })
		Expect(w.run()).To(Succeed())
		Expect(w.accounts).To(HaveKey("app"))
		w.during = nil
		config := withFiles("/etc/reload/f", "a")
		config.OS.Image = "image:2"
		third := w.offer(w.assign("rendered-c", config, quiet))
		Expect(w.run()).To(Succeed())
		Expect(w.node.Annotations).To(HaveKeyWithValue(agentv1.CurrentAnnotation, third))
		Expect(w.reason()).To(ContainSubstring("User app: exit status 1"))
		w.fails = map[string]error{}
		Expect(w.run()).To(Succeed())
		Expect(w.accounts).NotTo(HaveKey("app"))
	})

	It("what is left over is tried again although the agent was stopped often while it tried that", func() {
		w, _ := begin(func(w *world) { w.fails["accounts app"] = failing })
		Expect(w.run()).To(Succeed())
		Expect(w.accounts).To(HaveKey("app"))
		w.fails, w.during = map[string]error{}, nil
		for range maxRetries + 1 {
			a, stop := w.begin()
			ctx, cancel := context.WithCancel(GinkgoT().Context())
			w.fails["accounts app"] = failing
			a.store.before = func(string) { cancel() }
			_, err := a.Step(ctx, w.node)
			Expect(err).To(MatchError(context.Canceled))
			stop()
		}
		w.fails = map[string]error{}
		Expect(w.run()).To(Succeed())
		Expect(w.accounts).NotTo(HaveKey("app"))
	})
})
