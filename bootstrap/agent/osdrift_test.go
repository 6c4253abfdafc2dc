package agent

import (
	"errors"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

var _ = Describe("A host that was installed with another operating system than that of its configuration", func() {
	config := func(image string) update.Config {
		config := withFiles("/etc/none/f", image)
		config.OS = update.OperatingSystem{Image: image, KernelType: "default"}
		return config
	}
	begin := func(changes ...func(*assignment.Assignment)) *world {
		w := newWorld()
		w.install(w.assign("rendered-a", config("image:1"), changes...))
		w.os.Image, w.runningOS = "", "" // Ignition installs no operating system
		Expect(w.run()).To(Succeed())
		return w
	}
	forced := func(a *assignment.Assignment) { a.Force = "1" }

	It("reports that, and is left alone", func() {
		w := begin(repairs)
		Expect(w.state()).To(HavePrefix("Degraded "))
		Expect(w.node.Annotations[agentv1.DriftAnnotation]).To(Equal("osImageURL: OperatingSystem"))
		Expect(w.reason()).To(Equal("A repair needs a drain: repair of rendered-a: osImageURL (Reboot: it always requires a reboot)"))
		Expect(w.calls).To(BeEmpty())
	})

	It("gets it if it is forced", func() {
		w := begin()
		revision := w.offer(w.assign("rendered-a", config("image:1"), forced))
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Done " + revision))
		Expect(w.runningOS).To(Equal("image:1"))
		Expect(w.calls).To(Equal([]string{"reboot"}))
		Expect(w.node.Annotations).NotTo(HaveKey(agentv1.DriftAnnotation))
	})

	DescribeTable("runs what it ran before if another one does not work", func(image string, changes ...func(*assignment.Assignment)) {
		w := begin()
		w.isBroken = func() bool { return w.runningOS != "" }
		revision := w.offer(w.assign("rendered-b", config(image), changes...))
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Degraded " + revision))
		Expect(w.os.Image + w.runningOS).To(BeEmpty())
		Expect(w.calls).To(Equal([]string{"reboot", "reboot"}))
	},
		Entry("if it is forced", "image:1", forced),
		Entry("in an update", "image:2"),
	)

	It("does not get it with an update for which that is not predicted", func() {
		w := begin()
		after := config("image:1")
		after.Ignition = withFiles("/etc/none/f", "b").Ignition
		revision := w.offer(w.assign("rendered-b", after))
		Expect(w.run()).To(Succeed())
		Expect(w.calls).To(BeEmpty())
		Expect(w.state()).To(Equal("Degraded " + revision))
		Expect(w.read("etc/none/f")).To(Equal("b"))
	})

	It("reports what it has no program for", func() {
		w := newWorld()
		w.can = update.CapabilitiesOf("grubby")
		wanted := config("image:1")
		wanted.OS.KernelType, wanted.OS.Extensions = "realtime", []string{"usbguard"}
		w.install(w.assign("rendered-a", wanted))
		w.fails["difference"] = errors.New("no program")
		Expect(w.run()).To(Succeed())
		Expect(w.node.Annotations[agentv1.DriftAnnotation]).To(Equal("osImageURL: OperatingSystem\nextensions: OperatingSystem\nkernelType: OperatingSystem"))
		Expect(w.node.Annotations).To(HaveKeyWithValue(agentv1.UnsupportedAnnotation, "OSImage Extensions"))
		forced := w.offer(w.assign("rendered-a", wanted, forced))
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Unreconcilable " + forced))
	})

	It("goes on if the program does not answer, and asks again", func() {
		w := begin()
		a, stop := w.begin()
		defer stop()
		w.fails["difference"] = errors.New("exit status 1")
		step := func() {
			a.checkSoon()
			_, err := a.Step(GinkgoT().Context(), w.node)
			Expect(err).NotTo(HaveOccurred())
		}
		step()
		Expect(w.state()).To(HavePrefix("Done "))
		delete(w.fails, "difference")
		step()
		Expect(w.state()).To(HavePrefix("Degraded "))
		w.fails["difference"] = errors.New("it is not asked again before the host boots")
		step()
		Expect(w.state()).To(HavePrefix("Degraded "))
	})
})
