package agent

import (
	"errors"
	"fmt"
	"time"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/command"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/unitstate"
)

// restarting is the state of a unit that ended, and that systemd starts again.
var restarting = unitstate.State{Active: "activating", Sub: "auto-restart", Result: "exit-code", ExitStatus: 1, Restarts: 4}

// restarted is the state of the same unit just after that.
var restarted = unitstate.State{Active: "active", Sub: "running", Result: "success", Restarts: 5, Age: 2 * time.Second}

var _ = Describe("A kubelet that ends again and again, while its Node is Ready because each start renews the lease,", func() {
	DescribeTable("has its update undone, which says so", func(state unitstate.State, why string) {
		w := installed(withFiles("/etc/restart/f", "a"))
		before := w.snapshot()
		w.units = func() map[string]unitstate.State {
			if w.read("etc/restart/f") == "b" {
				return map[string]unitstate.State{"kubelet.service": state}
			}
			return nil
		}
		second := w.offer(w.assign("rendered-b", withFiles("/etc/restart/f", "b")))
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Degraded " + second))
		Expect(w.reason()).To(MatchRegexp("^the update was not complete within 10m0s: kubelet.service: " + why +
			" [(]on the host, see journalctl -u kubelet.service [^)]*[)]; the update changed file /etc/restart/f$"))
		Expect(w.snapshot()).To(Equal(before))
	},
		Entry("while it waits for its next start", restarting, "it ended, and systemd starts it again: result exit-code, exit status 1"),
		Entry("just after a start", restarted, "it ended, and systemd starts it again"),
		Entry("once systemd has given up", unitstate.State{Active: "failed", Sub: "failed", Result: "start-limit-hit"}, "it failed: result start-limit-hit"),
	)

	It("is not reported any more when its update was undone and it works", func() {
		w := installed(withFiles("/etc/restart/f", "a"))
		w.units = func() map[string]unitstate.State {
			if w.read("etc/restart/f") == "b" {
				return map[string]unitstate.State{"kubelet.service": restarting}
			}
			return nil
		}
		second := w.offer(w.assign("rendered-b", withFiles("/etc/restart/f", "b")))
		a, stop := w.begin()
		defer stop()
		hasFailed := false
		for w.state() != "Degraded "+second {
			wait, err := a.Step(GinkgoT().Context(), w.node)
			Expect(err).NotTo(HaveOccurred())
			a.lookAtUnits(GinkgoT().Context())
			hasFailed = hasFailed || a.units.report != ""
			w.pass(min(wait, 10*time.Second))
		}
		Expect(hasFailed).To(BeTrue(), "it was seen during the update")
		Expect(w.node.Annotations).NotTo(HaveKey(agentv1.FailingUnitsAnnotation))
	})

	It("is seen although it runs when the Node has been Ready for long enough", func() {
		w := installed(withFiles("/etc/restart/f", "a"))
		verified := 0
		w.units = func() map[string]unitstate.State {
			if w.read("etc/restart/f") != "b" {
				return nil
			}
			if verified++; verified%2 == 0 {
				return map[string]unitstate.State{"kubelet.service": restarted}
			}
			return map[string]unitstate.State{"kubelet.service": {Active: "active", Sub: "running", Result: "success", Age: time.Second}}
		}
		second := w.offer(w.assign("rendered-b", withFiles("/etc/restart/f", "b")))
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Degraded " + second))
	})
})

var _ = Describe("The kubelet of an update", func() {
	It("that waits for another unit is named with it, instead of what the Node says since the last shutdown", func() {
		w := installed(withFiles("/etc/f", "a"))
		w.isBroken = func() bool { return w.read("etc/f") == "b" }
		w.units = func() map[string]unitstate.State {
			if w.isBroken() {
				return map[string]unitstate.State{"kubelet.service": {Active: "inactive", Sub: "dead", WaitsFor: []string{"clock-wait.service"}}}
			}
			return nil
		}
		w.node.ReadyMessage = "node is shutting down"
		second := w.offer(w.assign("rendered-b", withFiles("/etc/f", "b")))
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Degraded " + second))
		Expect(w.reason()).To(ContainSubstring("kubelet.service: it has not started: it waits for clock-wait.service"))
	})

	It("whose state is not known does not count as one that runs", func() {
		w := installed(withFiles("/etc/none/f", "a"))
		second := w.offer(w.assign("rendered-b", withFiles("/etc/none/f", "b")))
		w.fails["show"] = errors.New("systemd does not answer")
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Degraded " + second))
		Expect(w.reason()).To(ContainSubstring("the state of kubelet.service is not known: systemd does not answer"))
	})
})

var _ = Describe("A host that is in no update", func() {
	var (
		w     *world
		a     *Agent
		stop  func()
		units map[string]unitstate.State
	)
	ofHost := []types.Unit{unit("web.service", "[Install]", true), {Name: "crio.service"}, {Name: "of@.service"}, {Name: "masked.service", Mask: ptr.To(true)}}
	BeforeEach(func() {
		config := withFiles("/etc/none/f", "a")
		config.Ignition.Systemd.Units = ofHost
		w = installed(config)
		w.enablement["web.service"] = "Enabled"
		units = map[string]unitstate.State{}
		w.units = func() map[string]unitstate.State { return units }
		a, stop = w.begin()
		DeferCleanup(func() { stop() })
		_, err := a.Step(GinkgoT().Context(), w.node)
		Expect(err).NotTo(HaveOccurred())
	})
	// look lets time pass, and returns what the host reports after a look at its units.
	look := func(after time.Duration) string {
		GinkgoHelper()
		w.pass(after)
		if a.lookAtUnits(GinkgoT().Context()) {
			_, err := a.Step(GinkgoT().Context(), w.node)
			Expect(err).NotTo(HaveOccurred())
		}
		return w.node.Annotations[agentv1.FailingUnitsAnnotation]
	}

	It("reports a kubelet that ends again and again at once, and without a break until it stays up", func() {
		Expect(look(0)).To(BeEmpty())
		units["kubelet.service"] = restarting
		want := "kubelet.service: it ended, and systemd starts it again: result exit-code, exit status 1"
		Expect(look(time.Second)).To(Equal(want))
		for range 10 {
			units["kubelet.service"] = restarted
			Expect(look(10*time.Second)).To(Equal(want), "how it ended is known only until its next start")
			delete(units, "kubelet.service")
			Expect(look(40 * time.Second)).To(Equal(want))
			units["kubelet.service"] = restarting
			Expect(look(10 * time.Second)).To(Equal(want))
		}
		delete(units, "kubelet.service")
		Expect(look(unitHold)).To(BeEmpty())
		Expect(w.node.Annotations).NotTo(HaveKey(agentv1.FailingUnitsAnnotation))
	})

	It("reports units of its configuration that fail, and no others", func() {
		failed := unitstate.State{Active: "failed", Sub: "failed", Result: "exit-code", ExitStatus: 3}
		units["web.service"], units["crio.service"], units["other.service"], units["of@a.service"] = failed, failed, failed, failed
		units["masked.service"], units["poolboot-agent.service"] = failed, failed
		Expect(look(0)).To(Equal("crio.service: it failed: result exit-code, exit status 3\nof@a.service: it failed: result exit-code, exit status 3\nweb.service: it failed: result exit-code, exit status 3"))
	})

	It("reports a unit that its configuration enables and that does not exist, and no other that does not exist", func() {
		missing := unitstate.State{Load: "not-found", Active: "inactive", Sub: "dead"}
		units["web.service"], units["crio.service"], units["kubelet.service"] = missing, missing, missing
		Expect(look(0)).To(Equal("web.service: the configuration enables it, and it does not exist on the host: correct its name, set its contents in a MachineConfig, or use an image that has it"))
	})

	It("reports a unit that does not exist and for which its configuration has only drop-ins", func() {
		stop()
		dropin := func(name string) types.Unit {
			return types.Unit{Name: name, Dropins: []types.Dropin{{Name: "10-a.conf", Contents: ptr.To("[Service]")}}}
		}
		config := withFiles("/etc/none/f", "b")
		for _, name := range []string{"wbe.service", "of@.service", "session-.scope", "crio.service"} {
			config.Ignition.Systemd.Units = append(config.Ignition.Systemd.Units, dropin(name))
			units[name] = unitstate.State{Load: "not-found", Active: "inactive", Sub: "dead"}
		}
		units["crio.service"] = unitstate.State{Load: "loaded", Active: "inactive", Sub: "dead"}
		second := w.offer(w.assign("rendered-b", config))
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Done " + second))
		Expect(w.node.Annotations).To(HaveKeyWithValue(agentv1.FailingUnitsAnnotation,
			"wbe.service: the configuration has only drop-ins for it, and it does not exist on the host: correct its name, or remove them"))
		a, stop = w.begin()
	})

	It("reports a unit that an update adds and that fails with the end of the update, not after it", func() {
		stop()
		config := withFiles("/etc/none/f", "b")
		config.Ignition.Systemd.Units = []types.Unit{unit("web.service", "[Install]", true), unit("added.service", "[Install]", true)}
		units["added.service"] = unitstate.State{Active: "failed", Sub: "failed", Result: "exit-code", ExitStatus: 3}
		second := w.offer(w.assign("rendered-b", config))
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Done " + second))
		Expect(w.node.Annotations).To(HaveKeyWithValue(agentv1.FailingUnitsAnnotation, "added.service: it failed: result exit-code, exit status 3"))
		a, stop = w.begin()
	})

	It("does not report while an update is verified how a unit failed before it", func() {
		units["web.service"] = unitstate.State{Active: "failed", Sub: "failed", Result: "exit-code", ExitStatus: 3}
		Expect(look(0)).To(ContainSubstring("web.service: it failed"))
		config := withFiles("/etc/none/f", "b")
		config.Ignition.Systemd.Units = ofHost
		second := w.offer(w.assign("rendered-b", config))
		delete(units, "web.service") // it restarts
		Eventually(func() string {
			_, err := a.Step(GinkgoT().Context(), w.node)
			Expect(err).NotTo(HaveOccurred())
			return w.state()
		}).Should(Equal("Verifying " + second))
		Expect(w.node.Annotations).NotTo(HaveKey(agentv1.FailingUnitsAnnotation))
	})

	It("does not report a kubelet that somebody restarts, but one that stays stopped", func() {
		units["kubelet.service"] = unitstate.State{Active: "inactive", Sub: "dead", Result: "success"}
		Expect(look(0)).To(BeEmpty())
		delete(units, "kubelet.service")
		Expect(look(10 * time.Second)).To(BeEmpty())
		units["kubelet.service"] = unitstate.State{Active: "inactive", Sub: "dead", FailedDependencies: []string{"nfs.mount"}}
		Expect(look(10 * time.Second)).To(BeEmpty())
		Expect(look(unitGrace)).To(Equal("kubelet.service: it is not running: it needs nfs.mount, which failed"))
	})

	It("keeps what it reported while systemd does not answer, and after the agent started again", func() {
		units["kubelet.service"] = restarting
		Expect(look(0)).NotTo(BeEmpty())
		w.fails["show"] = errors.New("systemd does not answer")
		Expect(look(unitHold)).NotTo(BeEmpty())
		delete(w.fails, "show")
		stop()
		a, stop = w.begin()
		_, err := a.Step(GinkgoT().Context(), w.node)
		Expect(err).NotTo(HaveOccurred())
		Expect(w.node.Annotations).To(HaveKey(agentv1.FailingUnitsAnnotation))
	})

	It("reports a unit of its configuration that systemd starts again and again at once, and not one that it started again once", func() {
		state := restarted
		state.Restart = "on-failure"
		units["web.service"], units["other.service"] = state, state
		Expect(look(0)).To(BeEmpty())
		delete(units, "web.service")
		Expect(look(10 * time.Second)).To(BeEmpty())
		units["web.service"] = state
		Expect(look(10 * time.Second)).To(BeEmpty())
		Expect(look(unitGrace)).To(Equal("web.service: it ended, and systemd starts it again"))
		units["web.service"] = restarting
		Expect(look(10 * time.Second)).To(Equal("web.service: it ended, and systemd starts it again: result exit-code, exit status 1"))
	})

})

var _ = Describe("What leaves a host about an update that failed", func() {
	It("has nothing that a program wrote, and says where that is", func() {
		w := installed(withFiles("/etc/reload/f", "a"))
		_, err := command.Runner{}.Run(GinkgoT().Context(), "sh", "-c", "set CANARY; echo $1; echo https://user:$1@example.com >&2; exit 3")
		w.fails["reload web.service"] = fmt.Errorf("more: %w", err)
		second := w.offer(w.assign("rendered-b", withFiles("/etc/reload/f", "b")))
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Degraded " + second))
		Expect(w.reason()).To(And(ContainSubstring("exit status 3"), ContainSubstring("journalctl -u poolboot-agent.service"), Not(ContainSubstring("CANARY@"))))
		Expect(w.node.Annotations).NotTo(ContainElement(ContainSubstring("CANARY@")))
	})

	It("names each unit that failed, what systemd says about it, and where its log is", func() {
		w := installed(withFiles("/etc/reload/f", "a"))
		w.units = func() map[string]unitstate.State {
			return map[string]unitstate.State{"app.service": {Active: "failed", Sub: "failed", Result: "exit-code", ExitStatus: 3}, "loop.service": restarting}
		}
		w.fails["reload web.service"] = errors.New("systemctl reload -- web.service: exit status 1")
		second := w.offer(w.assign("rendered-b", withFiles("/etc/reload/f", "b")))
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Degraded " + second))
		Expect(w.reason()).To(HavePrefix("Reload web.service: systemctl reload -- web.service: exit status 1; " +
			"app.service: it failed: result exit-code, exit status 3; " +
			"loop.service: it ended, and systemd starts it again: result exit-code, exit status 1 (restarts: 4); " +
			"on the host, see journalctl -u app.service -u loop.service"))
	})

	DescribeTable("has the command that shows what units logged during the update", func(jump time.Duration, options string) {
		w := installed(withFiles("/etc/restart/f", "a"))
		w.wallclock = time.Date(2026, 11, 30, 9, 59, 59, 400_000_000, time.FixedZone("", 3600))
		w.units = func() map[string]unitstate.State {
			if w.read("etc/restart/f") == "b" && jump != 0 {
				w.wallclock, jump = w.wallclock.Add(jump), 0
			}
			if w.read("etc/restart/f") == "b" {
				return map[string]unitstate.State{"kubelet.service": restarting}
			}
			return nil
		}
		second := w.offer(w.assign("rendered-b", withFiles("/etc/restart/f", "b")))
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Degraded " + second))
		Expect(w.reason()).To(ContainSubstring("(on the host, see journalctl -u kubelet.service" + options + "); the update changed"))
	},
		Entry("from its beginning to its failure, in the zone that it names", time.Duration(0), ` --since "2026-11-30 08:59:59 UTC" --until "2026-11-30 09:10:00 UTC"`),
		Entry("or everything, if the clock was set back meanwhile", -24*time.Hour, ""),
	)
})
