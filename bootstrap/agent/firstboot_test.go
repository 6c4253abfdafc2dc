package agent

import (
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

var _ = Describe("A host whose operating system changes entries in each boot", func() {
	// changed is what systemd, NetworkManager and a program that cleans up make of the configuration.
	changed := func(w *world) {
		w.write("etc/machine-id", "4d5e\n")
		Expect(os.RemoveAll(filepath.Join(w.directory, "etc/resolv.conf"))).To(Succeed())
		Expect(os.Symlink("/run/resolv.conf", filepath.Join(w.directory, "etc/resolv.conf"))).To(Succeed())
		Expect(os.RemoveAll(filepath.Join(w.directory, "etc/zincati.toml"))).To(Succeed())
		Expect(os.Chmod(filepath.Join(w.directory, "etc/auth.json"), 0o600)).To(Succeed())
	}
	const drift = "/etc/auth.json: Mode\n/etc/machine-id: Content\n/etc/resolv.conf: Type\n/etc/zincati.toml: Missing"
	config := withFiles("/etc/machine-id", "", "/etc/resolv.conf", "nameserver", "/etc/zincati.toml", "enabled = false", "/etc/auth.json", "{}")
	begin := func(changes ...func(*assignment.Assignment)) (w *world, revision string) {
		w = newWorld()
		revision = w.install(w.assign("rendered-a", config, changes...))
		changed(w)
		Expect(w.run()).To(Succeed())
		return w, revision
	}

	It("is adopted as it is, reports paths and kinds, and is left alone", func() {
		w, revision := begin()
		Expect(w.state()).To(Equal("Degraded " + revision))
		Expect(w.node.Annotations[agentv1.CurrentAnnotation]).To(Equal(revision))
		Expect(w.node.Annotations[agentv1.DriftAnnotation]).To(Equal(drift))
		w.states = nil
		for range 3 { // another start of the agent, and reboots
			w.boot()
			Expect(w.run()).To(Succeed())
		}
		Expect(w.calls).To(BeEmpty())
		Expect(w.states).To(BeEmpty(), "it reports nothing new")
	})

	It("is not rebooted to be repaired, also if the pool repairs", func() {
		w, revision := begin(repairs)
		Expect(w.state()).To(Equal("Degraded " + revision))
		Expect(w.reason()).To(ContainSubstring("needs a drain"))
		Expect(w.calls).To(BeEmpty())
		Expect(w.boots).To(Equal(1))
	})

	It("reboots once for each time that it is forced, and reports what differs again", func() {
		w, _ := begin()
		w.rebooted = func() { changed(w) }
		revision := w.offer(w.assign("rendered-a", config, func(a *assignment.Assignment) { a.Force = "1" }))
		for range 3 {
			Expect(w.run()).To(Succeed())
		}
		Expect(w.boots).To(Equal(2))
		Expect(w.state()).To(Equal("Degraded " + revision))
		Expect(w.node.Annotations[agentv1.DriftAnnotation]).To(Equal(drift))
	})

	It("is done once the configuration has no such entries, without a reboot", func() {
		w, _ := begin()
		none := func(a *assignment.Assignment) {
			for _, name := range []string{"/etc/machine-id", "/etc/resolv.conf", "/etc/zincati.toml", "/etc/auth.json"} {
				a.Policy.Paths[name] = a.Policy.Paths["/etc/none"]
			}
		}
		revision := w.offer(w.assign("rendered-b", withFiles("/etc/none/f", "b"), none, func(a *assignment.Assignment) { a.Force = "1" }))
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Done " + revision))
		Expect(w.boots).To(Equal(1))
		Expect(w.node.Annotations).NotTo(HaveKey(agentv1.DriftAnnotation))
	})
})

var _ = Describe("A host with damaged files of Poolboot", func() {
	It("is adopted without the file that names the config with which it booted, or with a damaged one", func() {
		for _, damage := range []func(*world){
			func(w *world) { w.write(ignition.MachineConfigPath, "{") },
			func(w *world) {
				Expect(os.Remove(filepath.Join(w.directory, ignition.MachineConfigPath))).To(Succeed())
			},
		} {
			w := newWorld()
			revision := w.install(w.assign("rendered-a", withFiles("/etc/f", "a")))
			damage(w)
			Expect(w.run()).To(Succeed())
			Expect(w.state()).To(Equal("Degraded " + revision))
			Expect(w.node.Annotations[agentv1.DriftAnnotation]).To(HavePrefix(ignition.MachineConfigPath + ": "))
		}
	})

	DescribeTable("downloads its documents again, also if it should have another configuration", func(lost string, isOldServed bool) {
		w := installed(withFiles("/etc/f", "a"))
		forget := func() {
			names, err := filepath.Glob(filepath.Join(w.directory, "var/lib/poolboot/agent", lost))
			Expect(err).NotTo(HaveOccurred())
			Expect(names).NotTo(BeEmpty())
			for _, name := range names {
				Expect(os.WriteFile(name, []byte("damaged"), 0o600)).To(Succeed())
			}
		}
		forget()
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(HavePrefix("Done "))
		forget()
		if !isOldServed {
			delete(w.rendered, "rendered-a")
		}
		second := w.offer(w.assign("rendered-b", withFiles("/etc/f", "b")))
		if isOldServed && lost == "*.rendered" {
			Expect(w.run()).To(Succeed())
			Expect(w.state()).To(Equal("Done " + second))
			return
		}
		Expect(w.run()).To(MatchError(ContainSubstring("restart poolboot-agent.service")))
		Expect(w.reason()).To(ContainSubstring("restart poolboot-agent.service"))
		Expect(w.read("etc/f")).To(Equal("a"))
	},
		Entry("if the rendered config is lost", "*.rendered", true),
		Entry("and says what to do if the assignment is lost, which only the host has", "*.assignment", true),
		Entry("and says what to do if the config server does not have the rendered config any more", "*.rendered", false),
	)
})
