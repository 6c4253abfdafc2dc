package agent

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

var _ = Describe("An update whose host Metal3 reboots", func() {
	// awaiting returns a world with a host that waits for that.
	awaiting := func() (*world, string) {
		GinkgoHelper()
		w := installed(withFiles("/etc/f", "a"))
		second := w.offer(w.assign("rendered-b", withFiles("/etc/f", "b")))
		w.node.Annotations[agentv1.DrainedAnnotation], w.node.Annotations[agentv1.Metal3RebootsAnnotation] = second, second
		w.wait()
		Expect(w.state()).To(Equal("Rebooting " + second))
		Expect(w.read("etc/f")).To(Equal("b"))
		Expect(w.calls).To(BeEmpty())
		return w, second
	}

	It("reports that it is ready, and is complete after that boot", func() {
		w, second := awaiting()
		w.boot()
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Done " + second))
		Expect(w.calls).To(BeEmpty())
	})

	It("reboots by itself if the manager says so", func() {
		w, second := awaiting()
		delete(w.node.Annotations, agentv1.Metal3RebootsAnnotation)
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Done " + second))
		Expect(w.calls).To(Equal([]string{"reboot"}))
	})

	It("reboots by itself if nothing happens for 15 minutes, also after the agent was started again", func() {
		w, second := awaiting()
		w.pass(rebootTimeout - time.Minute)
		w.wait()
		Expect(w.calls).To(BeEmpty())
		w.pass(time.Minute)
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Done " + second))
		Expect(w.calls).To(Equal([]string{"reboot"}))
	})

	It("waits for Metal3 only once, also if the host then boots the wrong kernel by itself", func() {
		w := installed(withFiles("/etc/f", "a"), rebootsBy(update.Kexec))
		config := withFiles("/etc/f", "b")
		config.KernelArguments = []string{"hugepages=8"}
		second := w.offer(w.assign("rendered-b", config, rebootsBy(update.Kexec)))
		w.node.Annotations[agentv1.DrainedAnnotation], w.node.Annotations[agentv1.Metal3RebootsAnnotation] = second, second
		w.startsOtherKernel = true
		began := w.wallclock
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Done " + second))
		Expect(w.calls).To(Equal([]string{"kexec", "reboot"}))
		Expect(w.wallclock.Sub(began)).To(BeNumerically("<", 2*rebootTimeout))
	})

	It("returns to what it had if it should run that again, and waits for nobody", func() {
		w, second := awaiting()
		first := w.node.Annotations[agentv1.CurrentAnnotation]
		w.offered, w.node.Annotations[agentv1.DesiredAnnotation] = first, first
		Expect(w.run()).To(Succeed())
		Expect(second).NotTo(Equal(first))
		Expect(w.state()).To(Equal("Done " + first))
		Expect(w.read("etc/f")).To(Equal("a"))
	})
})

// wait runs an agent until it waits.
func (w *world) wait() {
	GinkgoHelper()
	a, stop := w.begin()
	defer stop()
	for range 10 {
		_, err := a.Step(GinkgoT().Context(), w.node)
		Expect(err).NotTo(HaveOccurred())
	}
}
