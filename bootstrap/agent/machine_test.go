package agent

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// fresh returns what a new host has with an assignment.
func fresh(a func(*world) assignment.Assignment) map[string]string {
	GinkgoHelper()
	w := newWorld()
	w.install(a(w))
	return w.snapshot()
}

func unit(name, contents string, enabled bool) types.Unit {
	return types.Unit{Name: name, Contents: &contents, Enabled: &enabled}
}

var _ = Describe("A new host", func() {
	It("adopts what Ignition wrote, reports it as done, and changes nothing", func() {
		w := newWorld()
		first := w.install(w.assign("rendered-a", withFiles("/etc/none/a", "a")))
		before := w.snapshot()
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Done " + first))
		Expect(w.node.Annotations).To(And(HaveKeyWithValue(agentv1.CurrentAnnotation, first), HaveKeyWithValue(agentv1.ReportVersionAnnotation, "1")))
		Expect(w.snapshot()).To(Equal(before))
		Expect(w.calls).To(BeEmpty())
	})

	It("waits while the Node names no assignment", func() {
		w := newWorld()
		w.install(w.assign("rendered-a", withFiles("/etc/none/a", "a")))
		delete(w.node.Annotations, agentv1.DesiredAnnotation)
		Expect(w.run()).To(Succeed())
		Expect(w.node.Annotations).To(BeEmpty())
	})

	It("updates from the config that it booted with, if the pool changed before the agent started", func() {
		w := newWorld()
		w.install(w.assign("rendered-a", withFiles("/etc/reload/a", "a", "/etc/none/gone", "x")))
		second := w.offer(w.assign("rendered-b", withFiles("/etc/reload/a", "b")))
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Done " + second))
		Expect(w.calls).To(Equal([]string{"reload web.service"}))
		Expect(w.read("etc/reload/a")).To(Equal("b"))
		Expect(w.read("etc/none/gone")).To(BeEmpty())
	})

	It("reports how it differs from its assignment, if the config that it booted with is not available any more", func() {
		w := newWorld()
		w.install(w.assign("rendered-a", withFiles("/etc/reload/f", "a")))
		second := w.offer(w.assign("rendered-b", withFiles("/etc/reload/f", "b")))
		delete(w.rendered, "rendered-a")
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Degraded " + second))
		Expect(w.node.Annotations[agentv1.DriftAnnotation]).To(ContainSubstring("/etc/reload/f: Content"))
		Expect(w.read("etc/reload/f")).To(Equal("a"))
	})
})

var _ = Describe("An update without a drain", func() {
	var w *world
	var first string
	BeforeEach(func() {
		w = installed(withFiles("/etc/none/f", "a"))
		first = w.node.Annotations[agentv1.DesiredAnnotation]
		w.offer(w.assign("rendered-b", withFiles("/etc/none/f", "b")))
		w.states = nil
	})

	It("does not begin if it was taken back while the agent downloaded it: another host can have begun one", func() {
		w.onRendered = func() { w.node.Annotations[agentv1.DesiredAnnotation], w.offered = first, first }
		Expect(w.run()).To(MatchError(ContainSubstring("the update begins when its report is accepted: 422")))
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Done " + first))
		Expect(w.states).NotTo(ContainElement("Applying"))
		Expect(w.read("etc/none/f")).To(Equal("a"))
	})

	It("begins when the API server answers", func() {
		w.node.Known, w.node.Problem = false, "no route to host"
		Expect(w.run()).To(MatchError("the update begins when the API server answers: no route to host"))
		Expect(w.read("etc/none/f")).To(Equal("a"))
		w.node.Known = true
		Expect(w.run()).To(Succeed())
		Expect(w.read("etc/none/f")).To(Equal("b"))
	})
})

var _ = Describe("An update", func() {
	DescribeTable("does the actions of its policy, and only those", func(file string, calls, states []string, effect string) {
		w := installed(withFiles(file, "a", "/etc/none/other", "x"))
		second := w.offer(w.assign("rendered-b", withFiles(file, "b", "/etc/none/other", "x")))
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Done " + second))
		Expect(w.calls).To(Equal(calls))
		Expect(w.states).To(Equal(states))
		Expect(w.node.Annotations).To(HaveKeyWithValue(agentv1.EffectAnnotation, second+" "+effect))
		Expect(w.read(file)).To(Equal("b"))
	},
		Entry("nothing", "/etc/none/f", []string(nil), []string{"Applying", "Verifying", "Done"}, "None"),
		Entry("a reload", "/etc/reload/f", []string{"reload web.service"}, []string{"Applying", "Verifying", "Done"}, "Reload"),
		Entry("a restart of the kubelet", "/etc/restart/f", []string{"restart kubelet.service"}, []string{"Applying", "Verifying", "Done"}, "Restart"),
		Entry("a drain and a restart", "/etc/drain/f", []string{"restart web.service"}, []string{"Draining", "Applying", "Verifying", "Done"}, "Restart"),
		Entry("a reboot", "/etc/f", []string{"reboot"}, []string{"Draining", "Applying", "Rebooting", "Verifying", "Done"}, "Reboot"),
		Entry("nothing for a unit that the host does not have", "/etc/crio/policies/f", []string(nil), []string{"Applying", "Verifying", "Done"}, "Reload"),
	)

	It("restarts a unit once, after systemd has read its drop-in, if a file of it changes too", func() {
		const section = "/etc/kubernetes/kubelet.conf.d/98-poolboot-pool.conf"
		w := installed(withFiles(section, "a"))
		config := withFiles(section, "b")
		config.Ignition.Systemd.Units = []types.Unit{{Name: "kubelet.service", Dropins: []types.Dropin{{Name: "15-a.conf", Contents: ptr.To("[Service]")}}}}
		second := w.offer(w.assign("rendered-b", config))
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Done " + second))
		Expect(w.calls).To(Equal([]string{"daemon-reload", "restart kubelet.service"}))
	})

	It("leaves the host as a new one would be", func() {
		a := withFiles("/etc/image.conf", "a", "/etc/a", "a", "/etc/both", "a")
		a.KernelArguments = []string{"one two"}
		a.Ignition.Systemd.Units = []types.Unit{unit("a.service", "[Service]", true), unit("web.service", "[Unit]", true)}
		a.Ignition.Passwd.Users = []types.PasswdUser{{Name: "core", PasswordHash: ptr.To("x")}}
		b := withFiles("/etc/b", "b", "/etc/both", "b")
		b.KernelArguments = []string{"two three"}
		b.Ignition.Systemd.Units = []types.Unit{unit("web.service", "[Service]", false)}
		b.Ignition.Passwd.Users = []types.PasswdUser{{Name: "core", SSHAuthorizedKeys: []types.SSHAuthorizedKey{"key"}}}
		w := installed(a)
		w.offer(w.assign("rendered-b", b))
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(HavePrefix("Done "))
		want := fresh(func(w *world) assignment.Assignment { return w.assign("rendered-b", b) })
		Expect(w.snapshot()).To(Equal(want))
	})

	It("stops a unit whose file leaves the configuration, before the file goes", func() {
		config := withFiles()
		config.Ignition.Systemd.Units = []types.Unit{unit("web.service", "[Service]", true)}
		w := installed(config)
		w.offer(w.assign("rendered-b", withFiles()))
		Expect(w.run()).To(Succeed())
		Expect(w.calls[0]).To(Equal("stop web.service"))
		Expect(w.steps).To(ContainElement("after stop web.service"))
	})

	It("prepares all its operations before the first one", func() {
		w := installed(withFiles())
		config := withFiles("/etc/f", "b")
		config.KernelArguments = []string{"quiet"}
		config.Ignition.Systemd.Units = []types.Unit{unit("web.service", "[Service]", true)}
		w.steps = nil
		w.offer(w.assign("rendered-b", config))
		Expect(w.run()).To(Succeed())
		steps := strings.Join(w.steps, "\n")
		Expect(strings.LastIndex(steps, "after prepare")).To(BeNumerically("<", strings.Index(steps, "before apply files")))
		Expect(w.prepared).To(ContainElement("enablement web.service"))
	})

	It("changes the flags of the kubelet that follow from a file", func() {
		w := installed(withFiles())
		w.offer(w.assign("rendered-b", withFiles(ignition.KubeadmJoinPath, "x")))
		Expect(w.run()).To(Succeed())
		Expect(w.flags).To(BeTrue())
	})

	It("of the rules only changes nothing on the host, and needs no Node that is Ready", func() {
		w := installed(withFiles("/etc/f", "a"))
		before := w.snapshot()
		w.isBroken = func() bool { return true }
		second := w.offer(w.assign("rendered-a", withFiles("/etc/f", "a"), func(a *assignment.Assignment) { a.MinReadySeconds = 99 }))
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Done " + second))
		Expect(w.snapshot()).To(Equal(before))
		Expect(w.calls).To(BeEmpty())
	})

	It("touches nothing if a running host can't change to it", func() {
		w := installed(withFiles("/etc/none/f", "a"))
		before, config := w.snapshot(), withFiles("/etc/none/f", "b")
		config.FIPS = true
		second := w.offer(w.assign("rendered-b", config))
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Unreconcilable " + second))
		Expect(w.reason()).To(ContainSubstring("fips"))
		Expect(w.snapshot()).To(Equal(before))
		Expect(w.steps).NotTo(ContainElement(HavePrefix("before apply")))
	})

	It("touches nothing if a program of the host can't make a change", func() {
		w := installed(withFiles("/etc/f", "a"))
		w.refusals = map[string]string{"arguments": "it can't remove quiet", "os": "nobody asks"}
		config := withFiles("/etc/f", "b")
		config.KernelArguments = []string{"splash"}
		revision := w.offer(w.assign("rendered-b", config))
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Unreconcilable " + revision))
		Expect(w.reason()).To(Equal("the host can't change to rendered-b: it can't remove quiet"))
		Expect(w.states).To(Equal([]string{"Unreconcilable"}))
		Expect(w.read("etc/f")).To(Equal("a"))
	})

	It("waits for the drain of exactly its revision", func() {
		w := installed(withFiles("/etc/f", "a"))
		w.drains = false
		second := w.offer(w.assign("rendered-b", withFiles("/etc/f", "b")))
		w.node.Annotations[agentv1.DrainedAnnotation] = strings.Repeat("0", 64)
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Draining " + second))
		Expect(w.reason()).To(And(Equal("update to rendered-b: file /etc/f (Reboot: no policy covers it)"), ContainSubstring("file /etc/f")), "without the file that names the config")
		Expect(w.read("etc/f")).To(Equal("a"))
		w.drains = true
		w.pass(time.Second)
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Done " + second))
	})

	It("goes on waiting for the drain while the Node names no assignment", func() {
		w := installed(withFiles("/etc/f", "a"))
		w.drains = false
		second := w.offer(w.assign("rendered-b", withFiles("/etc/f", "b")))
		Expect(w.run()).To(Succeed())
		delete(w.node.Annotations, agentv1.DesiredAnnotation)
		Expect(w.run()).To(Succeed())
		Expect(w.states).To(Equal([]string{"Draining"}))
		w.node.Annotations[agentv1.DrainedAnnotation] = second
		Expect(w.run()).To(Succeed())
		Expect(w.read("etc/f")).To(Equal("b"))
	})

	It("requests a reboot once, and again if the host has not shut down after a long time", func() {
		w := installed(withFiles("/etc/f", "a"))
		w.offer(w.assign("rendered-b", withFiles("/etc/f", "b")))
		w.shutsDownSlowly = true
		a, stop := w.begin()
		defer stop()
		for passed := time.Duration(0); passed < rebootTimeout+3*time.Minute; passed += time.Minute {
			_, err := a.Step(GinkgoT().Context(), w.node)
			Expect(err).NotTo(HaveOccurred())
			if passed > time.Minute && passed < rebootTimeout {
				Expect(w.calls).To(Equal([]string{"reboot"}), "after %s", passed)
			}
			w.pass(time.Minute)
		}
		Expect(w.calls).To(Equal([]string{"reboot", "reboot"}))
	})

	It("is replaced at once by another one while it waits for the drain", func() {
		w := installed(withFiles("/etc/f", "a"))
		w.drains = false
		documents := func() []os.DirEntry {
			names, err := os.ReadDir(filepath.Join(w.directory, "var/lib/poolboot/agent"))
			Expect(err).NotTo(HaveOccurred())
			return names
		}
		for i := range 10 {
			w.offer(w.assign(fmt.Sprint("rendered-b", i), withFiles("/etc/f", fmt.Sprint("b", i))))
			Expect(w.run()).To(Succeed())
			Expect(documents()).To(HaveLen(6), "the journal, the documents of two revisions, and what was downloaded for the second")
		}
		last := w.offer(w.assign("rendered-c", withFiles("/etc/none/g", "c", "/etc/f", "a")))
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Done " + last))
		Expect(w.calls).To(BeEmpty())
		Expect(documents()).To(HaveLen(3), "the journal and the documents of the current revision")
	})

	It("ends before another one begins, once the host changes", func() {
		w := installed(withFiles("/etc/reload/f", "a"))
		second := w.offer(w.assign("rendered-b", withFiles("/etc/reload/f", "b")))
		third := w.assign("rendered-c", withFiles("/etc/reload/f", "c"))
		a, stop := w.begin()
		for a.journal.Phase != verifying {
			_, err := a.Step(GinkgoT().Context(), w.node)
			Expect(err).NotTo(HaveOccurred())
		}
		last := w.offer(third)
		_, err := a.Step(GinkgoT().Context(), w.node)
		Expect(err).NotTo(HaveOccurred())
		Expect(w.state()).To(Equal("Verifying " + second))
		stop()
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Done " + last))
		Expect(w.calls).To(Equal([]string{"reload web.service", "reload web.service"}))
	})

	It("returns to the current revision if that is desired again before the host changed", func() {
		w := installed(withFiles("/etc/f", "a"))
		first := w.node.Annotations[agentv1.DesiredAnnotation]
		w.drains = false
		w.offer(w.assign("rendered-b", withFiles("/etc/f", "b")))
		Expect(w.run()).To(Succeed())
		w.node.Annotations[agentv1.DesiredAnnotation] = first
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Done " + first))
	})

	Describe("that can't be downloaded", func() {
		It("changes nothing, says why, and is tried again", func() {
			w := installed(withFiles("/etc/none/f", "a"))
			second := w.offer(w.assign("rendered-b", withFiles("/etc/none/f", "b")))
			w.fails["download"] = fmt.Errorf("503: %w", errTemporary)
			a, stop := w.begin()
			_, err := a.Step(GinkgoT().Context(), w.node)
			Expect(err).To(MatchError(errTemporary))
			stop()
			Expect(w.reason()).To(ContainSubstring("download the assignment: 503"))
			Expect(w.state()).To(HavePrefix("Done "))
			w.fails = nil
			Expect(w.run()).To(Succeed())
			Expect(w.state()).To(Equal("Done " + second))
			Expect(w.reason()).To(BeEmpty())
		})

		DescribeTable("is refused if it is not what the Node's annotation says", func(change func(*world), reason string) {
			w := installed(withFiles("/etc/none/f", "a"))
			before := w.snapshot()
			w.offer(w.assign("rendered-b", withFiles("/etc/none/f", "b")))
			change(w)
			Expect(w.run()).NotTo(Succeed())
			Expect(w.snapshot()).To(Equal(before))
			Expect(w.reason()).To(ContainSubstring(reason))
		},
			Entry("another assignment", func(w *world) { w.offered = w.put(w.assign("rendered-c", withFiles())) }, "another revision"),
			Entry("another rendered config", func(w *world) { w.rendered["rendered-b"] = w.rendered["rendered-a"] }, "another SHA-512"),
			Entry("a damaged document", func(w *world) { w.documents[w.offered] = []byte("{}") }, "another revision"),
		)
	})

	It("gets contents from URLs, and refuses others than the hash says", func() {
		w := installed(withFiles("/etc/none/f", "a"))
		config := withFiles("/etc/none/f", "a")
		remote := newFile("/etc/none/remote", "")
		remote.Contents = types.Resource{Source: ptr.To("https://elsewhere/f"), Verification: types.Verification{Hash: ptr.To(fmt.Sprintf("sha256-%x", sha256.Sum256([]byte("far"))))}}
		config.Ignition.Storage.Files = append(config.Ignition.Storage.Files, remote)
		w.contents["https://elsewhere/f"] = []byte("near")
		second := w.offer(w.assign("rendered-b", config))
		Expect(w.run()).NotTo(Succeed())
		Expect(w.read("etc/none/remote")).To(BeEmpty())
		w.contents["https://elsewhere/f"] = []byte("far")
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Done " + second))
		Expect(w.read("etc/none/remote")).To(Equal("far"))
	})

	It("works while the API server is not reachable for reports", func() {
		w := installed(withFiles("/etc/f", "a"))
		second := w.offer(w.assign("rendered-b", withFiles("/etc/f", "b")))
		w.node.Annotations[agentv1.DrainedAnnotation] = second
		w.fails["annotate"] = fmt.Errorf("refused: %w", errTemporary)
		_ = w.run()
		Expect(w.read("etc/f")).To(Equal("b"))
		w.fails = map[string]error{}
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Done " + second))
	})

	It("overwrites what was changed by hand only if it is forced", func() {
		w := installed(withFiles("/etc/reload/f", "a", "/etc/none/g", "a"))
		w.write("etc/reload/f", "by hand")
		w.write("etc/none/g", "by hand")
		second := w.offer(w.assign("rendered-b", withFiles("/etc/reload/f", "b", "/etc/none/g", "a")))
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Degraded " + second))
		Expect(w.reason()).To(ContainSubstring("/etc/reload/f: it was changed"))
		Expect(w.calls).To(BeEmpty())
		forced := w.offer(w.assign("rendered-b", withFiles("/etc/reload/f", "b", "/etc/none/g", "a"), func(a *assignment.Assignment) { a.Force = "1" }))
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Done " + forced))
		Expect(w.calls).To(Equal([]string{"reload web.service"}))
		Expect(w.read("etc/reload/f") + w.read("etc/none/g")).To(Equal("ba"))
	})

	It("that is forced reboots for a kernel argument that the kernel lacks", func() {
		config := withFiles()
		config.KernelArguments = []string{"a=1 b=2"}
		w := installed(config)
		w.running, w.arguments = []string{"a=1"}, []string{"a=1"}
		forced := w.offer(w.assign("rendered-a", config, func(a *assignment.Assignment) { a.Force = "1" }))
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Done " + forced))
		Expect(w.running).To(ConsistOf("a=1", "b=2"))
		Expect(w.calls).To(Equal([]string{"reboot"}))
	})
})
