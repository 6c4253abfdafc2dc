package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/hostfiles"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

var _ = Describe("An update and its undo always end:", func() {
	// begin returns a host whose update fails, because units can't be restarted.
	begin := func() (w *world, first, second string) {
		a, b := withFiles("/etc/reload/f", "a"), withFiles("/etc/reload/f", "b")
		quiet := func(a *assignment.Assignment) {
			for _, name := range []string{"bad.service", "good.service"} {
				a.Policy.Units[name] = rule(update.Action{Type: update.None})
			}
		}
		for _, name := range []string{"bad.service", "good.service"} {
			b.Ignition.Systemd.Units = append(b.Ignition.Systemd.Units, unit(name, "[Install]", true))
		}
		b.Ignition.Passwd.Users = []types.PasswdUser{{Name: "app"}}
		w = installed(a, quiet)
		first = w.node.Annotations[agentv1.DesiredAnnotation]
		second = w.offer(w.assign("rendered-b", b, quiet))
		return w, first, second
	}

	DescribeTable("an entry that can't be restored is left over, and the rest is restored", func(call, entry string) {
		w, first, second := begin()
		w.during = map[string]func(context.Context) error{"reload web.service": func(context.Context) error {
			w.fails[call] = errors.New("exit status 6")
			return errors.New("exit status 1")
		}}
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Degraded " + second))
		Expect(w.node.Annotations).To(HaveKeyWithValue(agentv1.CurrentAnnotation, first))
		Expect(w.reason()).To(And(ContainSubstring("Reload web.service"), ContainSubstring("These entries could not be restored"), ContainSubstring(entry+": exit status 6")))
		Expect(w.node.Annotations[agentv1.DriftAnnotation]).To(ContainSubstring(entry + ": NotRestored"))
		Expect(w.read("etc/reload/f")).To(Equal("a"))
		Expect(w.enablement).NotTo(HaveKey("good.service"))
		Expect(w.calls).To(ContainElement("reboot"), "what is left over can still run")
		By("accepting a revert")
		w.offer(w.assign("rendered-a", withFiles("/etc/reload/f", "a")))
		Expect(w.run()).To(Succeed())
		Expect(w.reason()).To(ContainSubstring(entry + ": exit status 6"))
		By("restoring it later")
		w.fails, w.during = map[string]error{}, nil
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(HavePrefix("Done "))
		Expect(w.accounts).NotTo(HaveKey("app"))
		Expect(w.enablement).NotTo(HaveKey("bad.service"))
	},
		Entry("a unit", "enablement bad.service", "Enablement bad.service"),
		Entry("a user", "accounts app", "User app"),
	)

	It("a step of the undo that ends the agent each time is left over", func() {
		w, _, second := begin()
		w.killedAt = "before enablement bad.service"
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Degraded " + second))
		Expect(w.reason()).To(And(ContainSubstring("interrupted 4 times"), ContainSubstring("Enablement bad.service: it interrupted the agent 4 times")))
		Expect(w.read("etc/reload/f")).To(Equal("a"))
		Expect(w.accounts).NotTo(HaveKey("app"))
	})

	It("a path that is left over reboots the host once, and does not keep it from another update", func() {
		w, _, second := begin()
		w.during = map[string]func(context.Context) error{"reload web.service": func(context.Context) error {
			w.left = []hostfiles.LeftOver{{Path: "/mnt/f", Why: "something is mounted there"}}
			return errors.New("exit status 1")
		}}
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Degraded " + second))
		Expect(w.reason()).To(ContainSubstring("/mnt/f: something is mounted there"))
		Expect(strings.Count(strings.Join(w.calls, "\n"), "reboot")).To(Equal(1))
		w.during = nil
		third := w.offer(w.assign("rendered-c", withFiles("/etc/none/f", "c")))
		Expect(w.run()).To(Succeed())
		Expect(w.read("etc/none/f")).To(Equal("c"))
		Expect(w.node.Annotations).To(HaveKeyWithValue(agentv1.CurrentAnnotation, third))
	})

	It("without the documents of the update, the files return, and the host reboots", func() {
		w := installed(withFiles("/etc/reload/f", "a"))
		second := w.offer(w.assign("rendered-b", withFiles("/etc/reload/f", "b")))
		w.isBroken = func() bool { return w.read("etc/reload/f") == "b" }
		a, stop := w.begin()
		_, err := a.Step(GinkgoT().Context(), w.node)
		Expect(err).NotTo(HaveOccurred())
		Expect(a.journal.Phase).To(Equal(verifying))
		stop()
		Expect(os.Remove(filepath.Join(w.directory, "var/lib/poolboot/agent", second+renderedEnding))).To(Succeed())
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Degraded " + second))
		Expect(w.read("etc/reload/f")).To(Equal("a"))
		Expect(w.calls).To(ContainElement("reboot"))
		Expect(w.node.Annotations).NotTo(HaveKey(agentv1.DriftAnnotation))
	})

	DescribeTable("what the host booted is asked again until it is known, and is known before the update is committed", func(breaks func(*world, *update.Config), state string, limit time.Duration) {
		w := installed(withFiles("/etc/f", "a"))
		config := withFiles("/etc/f", "b")
		config.OS.Image = "image:2"
		breaks(w, &config)
		second := w.offer(w.assign("rendered-b", config))
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal(state + " " + second))
		Expect(w.read("etc/f")).To(Equal(map[string]string{"Done": "b", "Degraded": "a"}[state]))
		Expect(w.uptime).To(BeNumerically("<", limit))
	},
		Entry("after one error on a host that booted something else", func(w *world, _ *update.Config) {
			w.losesArguments = true
			w.failsOnce = map[string]error{"difference": errors.New("EMFILE")}
		}, "Degraded", 5*time.Minute),
		Entry("after one error on a host that booted it", func(w *world, _ *update.Config) {
			w.failsOnce = map[string]error{"difference": errors.New("EMFILE")}
		}, "Done", 5*time.Minute),
		Entry("also if that is never known", func(w *world, config *update.Config) {
			config.KernelArguments, w.fails["cmdline"] = []string{"quiet"}, errors.New("EMFILE")
		}, "Degraded", 2*checkInterval),
	)

	It("what can't be checked on the host does not hide the rest", func() {
		w := installed(withFiles("/etc/none/f", "a"))
		w.fails["cmdline"] = errors.New("EMFILE")
		w.write("etc/none/f", "by hand")
		Expect(w.run()).To(Succeed())
		Expect(w.node.Annotations[agentv1.DriftAnnotation]).To(Equal("/etc/none/f: Content"))
		w.removed, w.running = []string{"old"}, []string{"old"}
		delete(w.fails, "cmdline")
		Expect(w.run()).To(Succeed())
		Expect(w.node.Annotations[agentv1.DriftAnnotation]).To(Equal("/etc/none/f: Content\nold: AdditionalKernelArgument"))
	})
})

var _ = Describe("Another revision", func() {
	// broken returns a host that verifies an update which does not work.
	broken := func(file string) (w *world, first string) {
		w = installed(withFiles(file, "a"), func(a *assignment.Assignment) { a.ReadyDeadlineSeconds = 3600 })
		first = w.node.Annotations[agentv1.DesiredAnnotation]
		w.isBroken = func() bool { return w.read(file) == "b" }
		w.offer(w.assign("rendered-b", withFiles(file, "b"), func(a *assignment.Assignment) { a.ReadyDeadlineSeconds = 3600 }))
		for range 2 { // it reboots in the first one
			a, stop := w.begin()
			func() {
				defer func() { _ = recover() }()
				for range 5 {
					_, err := a.Step(GinkgoT().Context(), w.node)
					Expect(err).NotTo(HaveOccurred())
					w.pass(time.Second)
				}
			}()
			stop()
		}
		Expect(w.node.Annotations[agentv1.StateAnnotation]).To(Equal("Verifying"))
		return w, first
	}

	DescribeTable("is accepted at once if it is the one before the update that is verified", func(file string, calls ...string) {
		w, first := broken(file)
		w.calls = nil
		w.offered, w.node.Annotations[agentv1.DesiredAnnotation] = first, first
		began := w.uptime
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Done " + first))
		Expect(w.read(file)).To(Equal("a"))
		Expect(w.uptime - began).To(BeNumerically("<", 30*time.Second))
		Expect(w.calls).To(Equal(calls))
		By("trying the one that was undone again, which did not fail")
		w.isBroken = func() bool { return false }
		again := w.offer(w.assign("rendered-b", withFiles(file, "b"), func(a *assignment.Assignment) { a.ReadyDeadlineSeconds = 3600 }))
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Done " + again))
	},
		Entry("without a reboot", "/etc/restart/f", "daemon-reload", "restart kubelet.service"),
		Entry("after its reboot", "/etc/f", "reboot"),
	)

	It("that corrects an update which does not work does not wait for its deadline", func() {
		w, _ := broken("/etc/restart/f")
		third := w.offer(w.assign("rendered-c", withFiles("/etc/restart/f", "c")))
		began := w.uptime
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Done " + third))
		Expect(w.uptime - began).To(BeNumerically("<", supersedeAfter+time.Minute))
	})

	It("ends an action that hangs, if the host should return to what it had", func() {
		w := installed(withFiles("/etc/restart/f", "a"))
		first := w.node.Annotations[agentv1.DesiredAnnotation]
		second := w.offer(w.assign("rendered-b", withFiles("/etc/restart/f", "b")))
		a, stop := w.begin()
		defer stop()
		w.during = map[string]func(context.Context) error{"restart kubelet.service": func(ctx context.Context) error {
			told := w.node
			told.Annotations = map[string]string{agentv1.DesiredAnnotation: second}
			a.See(told)
			Expect(ctx.Err()).NotTo(HaveOccurred(), "nothing changes")
			told.Annotations = map[string]string{agentv1.DesiredAnnotation: first}
			a.See(told)
			w.during = nil
			select {
			case <-ctx.Done():
			case <-time.After(10 * time.Second):
				Fail("it goes on")
			}
			return ctx.Err()
		}}
		for range 10 {
			_, err := a.Step(GinkgoT().Context(), w.node)
			Expect(err).NotTo(HaveOccurred())
			w.offered, w.node.Annotations[agentv1.DesiredAnnotation] = first, first
			w.pass(time.Second)
			a.See(w.node)
		}
		Expect(w.state()).To(Equal("Done " + first))
		Expect(w.read("etc/restart/f")).To(Equal("a"))
		Expect(w.calls).To(Equal([]string{"restart kubelet.service", "daemon-reload", "restart kubelet.service"}))
	})
})
