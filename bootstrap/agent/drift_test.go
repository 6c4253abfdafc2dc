package agent

import (
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

func repairs(a *assignment.Assignment) { a.RepairsDrift = true }

var _ = Describe("A host that differs from its configuration", func() {
	install := func(changes ...func(*assignment.Assignment)) *world {
		w := newWorld()
		config := withFiles("/etc/reload/f", "a", "/etc/drain/f", "a", "/etc/none/f", "a")
		config.KernelArguments = []string{"quiet splash"}
		w.install(w.assign("rendered-a", config, changes...))
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(HavePrefix("Done "))
		w.states, w.calls = nil, nil
		return w
	}

	It("reports paths and kinds, never contents, until it is corrected by hand", func() {
		w := install()
		w.write("etc/reload/f", "top secret")
		Expect(os.Remove(filepath.Join(w.directory, "etc/none/f"))).To(Succeed())
		w.running = []string{"quiet"}
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(HavePrefix("Degraded "))
		Expect(w.node.Annotations[agentv1.DriftAnnotation]).To(Equal("/etc/none/f: Missing\n/etc/reload/f: Content\nsplash: MissingKernelArgument"))
		Expect(w.reason()).To(BeEmpty(), "the manager says what to do")
		Expect(w.calls).To(BeEmpty())
		w.write("etc/reload/f", "a")
		w.write("etc/none/f", "a")
		w.running = []string{"splash", "quiet"}
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(HavePrefix("Done "))
		Expect(w.node.Annotations).NotTo(HaveKey(agentv1.DriftAnnotation))
		Expect(w.node.Annotations).NotTo(HaveKey(agentv1.ReasonAnnotation))
	})

	It("is checked when a look at the host finds a change, and hourly without that, but not because the Node changes", func() {
		w := install()
		a, stop := w.begin()
		defer stop()
		step := func() time.Duration {
			wait, err := a.Step(GinkgoT().Context(), w.node)
			Expect(err).NotTo(HaveOccurred())
			return wait
		}
		a.Look(GinkgoT().Context())
		Expect(step()).To(Equal(checkInterval))
		Expect(a.Look(GinkgoT().Context())).To(BeFalse())
		w.write("etc/reload/f", "other")
		step()
		Expect(w.state()).To(HavePrefix("Done "))
		Expect(a.Look(GinkgoT().Context())).To(BeTrue())
		step()
		Expect(w.state()).To(HavePrefix("Degraded "))
		Expect(a.Look(GinkgoT().Context())).To(BeFalse())
		w.write("etc/reload/f", "a")
		w.pass(checkInterval)
		step()
		Expect(w.state()).To(HavePrefix("Done "))
	})

	It("is repaired if the pool says so, with the actions of its policy", func() {
		w := install(repairs)
		before := w.snapshot()
		w.write("etc/reload/f", "by hand")
		w.write("etc/none/f", "by hand")
		Expect(w.run()).To(Succeed())
		Expect(w.snapshot()).To(Equal(before))
		Expect(w.calls).To(Equal([]string{"reload web.service"}))
		Expect(w.state()).To(HavePrefix("Done "))
		Expect(w.states[len(w.states)-1]).To(Equal("Done"))
	})

	It("is repaired also while the cluster is not reachable", func() {
		w := install(repairs)
		w.node.Known = false
		w.write("etc/reload/f", "by hand")
		_ = w.run()
		Expect(w.read("etc/reload/f")).To(Equal("a"))
	})

	DescribeTable("is not repaired if that needs a drain or a reboot: it says so", func(change func(*world)) {
		w := install(repairs)
		change(w)
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(HavePrefix("Degraded "))
		Expect(w.reason()).To(ContainSubstring("needs a drain"))
		Expect(w.calls).To(BeEmpty())
	},
		Entry("a file whose policy drains", func(w *world) { w.write("etc/drain/f", "by hand") }),
		Entry("a kernel argument", func(w *world) { w.running = nil }),
	)

	It("is repaired as far as that needs neither a drain nor a reboot, and reports the rest", func() {
		config := withFiles("/etc/none/f", "a", "/etc/reload/f", "a", "/etc/drain/f", "a", "/etc/f", "a")
		config.KernelArguments = []string{"quiet"}
		config.Ignition.Systemd.Units = []types.Unit{unit("web.service", "[Install]", true), unit("reboots.service", "[Install]", true)}
		config.Ignition.Systemd.Units[1].Dropins = []types.Dropin{{Name: "a.conf", Contents: ptr.To("[Unit]")}}
		w := installed(config, repairs)
		w.write("etc/systemd/system/reboots.service.d/a.conf", "[Service]")
		for _, name := range []string{"none", "reload", "drain", ""} {
			w.write("etc/"+name+"/f", "by hand")
		}
		w.enablement["web.service"], w.enablement["reboots.service"] = update.Disabled, update.Disabled
		w.running, w.arguments = nil, nil
		Expect(w.run()).To(Succeed())
		Expect(w.read("etc/none/f") + w.read("etc/reload/f")).To(Equal("aa"))
		Expect(w.read("etc/drain/f") + w.read("etc/f")).To(Equal("by handby hand"))
		Expect(w.enablement).To(And(HaveKeyWithValue("web.service", update.Enabled), HaveKeyWithValue("reboots.service", update.Disabled)))
		Expect(w.arguments).To(BeEmpty())
		Expect(w.read("etc/systemd/system/reboots.service.d/a.conf")).To(Equal("[Service]"))
		Expect(w.calls).To(Equal([]string{"daemon-reload", "reload web.service", "restart web.service"}))
		Expect(w.state()).To(HavePrefix("Degraded "))
		Expect(w.node.Annotations[agentv1.DriftAnnotation]).To(Equal("/etc/drain/f: Content\n/etc/f: Content\n/etc/systemd/system/reboots.service.d/a.conf: Content\n/etc/systemd/system/reboots.service: Enablement\nquiet: MissingKernelArgument"))
		Expect(w.reason()).To(ContainSubstring("A repair needs a drain: "))
	})

	It("is not repaired again and again while another program changes it, and not in a row", func() {
		w := install(repairs)
		a, stop := w.begin()
		defer stop()
		var repaired []time.Duration
		for range 12 * 60 { // minutes
			w.write("etc/none/f", "by a program")
			a.checkSoon()
			_, err := a.Step(GinkgoT().Context(), w.node)
			Expect(err).NotTo(HaveOccurred())
			if w.read("etc/none/f") == "a" {
				repaired = append(repaired, w.uptime)
			}
			w.pass(time.Minute)
		}
		Expect(len(repaired)).To(BeNumerically("~", 12+6, 2), "first soon, then hourly")
		for i, at := range repaired[1:] {
			Expect(at - repaired[i]).To(BeNumerically(">=", min(checkInterval, time.Minute<<i)))
		}
		Expect(w.state()).To(HavePrefix("Degraded "))
		Expect(w.reason()).To(ContainSubstring("find the program that changes it"))
		a.checkSoon()
		w.pass(3 * checkInterval) // it stays repaired
		w.write("etc/none/f", "a")
		_, err := a.Step(GinkgoT().Context(), w.node)
		Expect(err).NotTo(HaveOccurred())
		w.write("etc/none/f", "by hand")
		a.checkSoon()
		_, err = a.Step(GinkgoT().Context(), w.node)
		Expect(err).NotTo(HaveOccurred())
		Expect(w.read("etc/none/f")).To(Equal("a"), "later changes are repaired at once")
	})

	It("stays as it is if the repair fails, and the repair is not tried again until the host changes", func() {
		w := install(repairs)
		w.write("etc/reload/f", "by hand")
		w.fails["reload web.service"] = errors.New("exit status 1")
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(HavePrefix("Degraded "))
		Expect(w.reason()).To(HavePrefix("A repair failed and was undone: Reload web.service: exit status 1"))
		Expect(w.read("etc/reload/f")).To(Equal("by hand"))
		w.fails = map[string]error{}
		w.write("etc/reload/f", "a")
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(HavePrefix("Done "))
	})

	It("is done with a link whose target does not exist, and reports another target", func() {
		config := withFiles()
		config.Ignition.Storage.Links = []types.Link{{Node: types.Node{Path: "/etc/none/link"}, LinkEmbedded1: types.LinkEmbedded1{Target: ptr.To("/nowhere/at/all")}}}
		w := installed(config)
		link := filepath.Join(w.directory, "etc/none/link")
		Expect(w.state()).To(HavePrefix("Done "))
		Expect(os.Remove(link)).To(Succeed())
		Expect(os.Symlink("/elsewhere", link)).To(Succeed())
		Expect(w.run()).To(Succeed())
		Expect(w.node.Annotations[agentv1.DriftAnnotation]).To(HavePrefix("/etc/none/link: "))
		w.offer(w.assign("rendered-a", config, repairs))
		Expect(w.run()).To(Succeed())
		Expect(os.Readlink(link)).To(Equal("/nowhere/at/all"))
		Expect(w.state()).To(HavePrefix("Done "))
	})

	It("keeps drop-ins that Poolboot did not write, and reports them", func() {
		w := install(repairs)
		config := withFiles()
		config.Ignition.Systemd.Units = append(config.Ignition.Systemd.Units, unit("web.service", "[Service]", true))
		w.offer(w.assign("rendered-b", config, repairs))
		Expect(w.run()).To(Succeed())
		w.write("etc/systemd/system/web.service.d/own.conf", "[Service]")
		Expect(w.run()).To(Succeed())
		Expect(w.node.Annotations[agentv1.DriftAnnotation]).To(Equal("/etc/systemd/system/web.service.d/own.conf: AdditionalDropIn"))
		Expect(w.reason()).To(ContainSubstring("remove it on the host"))
		Expect(w.read("etc/systemd/system/web.service.d/own.conf")).To(Equal("[Service]"))
	})
})

var _ = Describe("The program of the agent", func() {
	program := []byte("a program")
	sum := sha512.Sum512(program)
	want := hex.EncodeToString(sum[:])
	offer := func(version, oldest, sum string) func(*assignment.Assignment) {
		return func(a *assignment.Assignment) {
			a.Agent = &assignment.Agent{Version: version, SHA512: map[string]string{"amd64": sum}, Oldest: oldest}
		}
	}
	install := func(change func(*assignment.Assignment)) *world {
		w := newWorld()
		w.program = &fakeProgram{version: "v0.2.0", sum: "own"}
		w.programs[want] = program
		w.install(w.assign("rendered-a", withFiles("/etc/f", "a"), change))
		return w
	}

	It("is replaced by another one that the manager offers, once the host is done", func() {
		w := install(offer("v0.3.0", "v0.1.0", want))
		Expect(w.run()).To(MatchError(ErrReplaced))
		Expect(w.program.replaced).To(Equal(program))
		Expect(w.state()).To(HavePrefix("Done "))
		Expect(w.node.Annotations).To(HaveKeyWithValue(agentv1.AgentAnnotation, "v0.2.0"))
	})

	It("is replaced before an update, because the new one can know more", func() {
		w := install(func(*assignment.Assignment) {})
		Expect(w.run()).To(Succeed())
		a := w.assign("rendered-b", withFiles("/etc/f", "b"), offer("v0.3.0", "v0.1.0", want))
		w.offer(a)
		w.rendered["rendered-b"] = []byte(`{"ignition":{"version":"9.0.0"}}`)
		Expect(w.run()).To(MatchError(ErrReplaced))
		Expect(w.program.replaced).To(Equal(program))
	})

	DescribeTable("is not replaced", func(change func(*assignment.Assignment)) {
		w := install(change)
		Expect(w.run()).To(Succeed())
		Expect(w.program.replaced).To(BeNil())
		Expect(w.state()).To(HavePrefix("Done "))
	},
		Entry("by itself", offer("v0.3.0", "v0.1.0", "own")),
		Entry("by an older version", offer("v0.1.9", "v0.1.0", want)),
		Entry("by a prerelease of its own version", offer("v0.2.0-rc.1", "v0.1.0", want)),
		Entry("by a version below the oldest one that hosts may run", offer("v0.3.0", "v0.4.0", want)),
		Entry("by something without a version", offer("latest", "v0.1.0", want)),
		Entry("if there is none for its architecture", func(a *assignment.Assignment) {
			a.Agent = &assignment.Agent{Version: "v0.3.0", SHA512: map[string]string{"arm64": want}, Oldest: "v0.1.0"}
		}),
	)

	It("is not replaced by contents with another hash", func() {
		w := install(offer("v0.3.0", "v0.1.0", want))
		w.programs[want] = []byte("another program")
		Expect(w.run()).To(MatchError(ContainSubstring("another SHA-512")))
		Expect(w.program.replaced).To(BeNil())
	})

	It("is not downloaded again whenever the Node changes, after it was wrong", func() {
		w := install(offer("v0.3.0", "v0.1.0", want))
		w.programs[want] = []byte("another program")
		a, stop := w.begin()
		defer stop()
		for range 24 * 60 { // a day of changes
			_, err := a.Step(GinkgoT().Context(), w.node)
			Expect(err).To(MatchError(ContainSubstring("another SHA-512")))
			w.pass(time.Minute)
		}
		Expect(w.downloads).To(BeNumerically("~", 24+6, 2))
		w.programs[want] = program
		w.pass(lastProgramTry)
		_, err := a.Step(GinkgoT().Context(), w.node)
		Expect(err).To(MatchError(ErrReplaced))
	})

	It("is replaced by one that could not replace it for a day, because the disk was full", func() {
		w := install(offer("v0.3.0", "v0.1.0", want))
		w.program.err = errors.New("no space left on device")
		a, stop := w.begin()
		defer stop()
		for range 24 * 60 {
			_, err := a.Step(GinkgoT().Context(), w.node)
			Expect(err).NotTo(HaveOccurred())
			Expect(w.state()).To(HavePrefix("Done "))
			w.pass(time.Minute)
		}
		Expect(w.downloads).To(BeNumerically("~", 24+6, 2))
		w.program.err = nil
		w.pass(lastProgramTry)
		_, err := a.Step(GinkgoT().Context(), w.node)
		Expect(err).To(MatchError(ErrReplaced))
	})

	It("is replaced by one that did not work once, as without the API server", func() {
		w := install(offer("v0.3.0", "v0.1.0", want))
		w.program.err = ErrUnusable
		Expect(w.run()).To(Succeed())
		w.program.err = nil
		Expect(w.run()).To(MatchError(ErrReplaced))
	})

	It("stays if the other one does not work on this host, and the same one is not tried again and again", func() {
		w := install(offer("v0.3.0", "v0.1.0", want))
		w.program.err = ErrUnusable
		a, stop := w.begin()
		for range 24 * 60 {
			_, err := a.Step(GinkgoT().Context(), w.node)
			Expect(err).NotTo(HaveOccurred())
			Expect(w.state()).To(HavePrefix("Done "))
			w.pass(time.Minute)
		}
		stop()
		Expect(w.downloads).To(Equal(maxProgramTries))
		w.program.err = nil
		Expect(w.run()).To(Succeed())
		Expect(w.program.replaced).To(BeNil())
		w.offer(w.assign("rendered-a", withFiles("/etc/f", "a"), offer("v0.3.1", "v0.1.0", want)))
		Expect(w.run()).To(Succeed())
		Expect(w.program.replaced).To(BeNil(), "it is the same program")
	})
})
