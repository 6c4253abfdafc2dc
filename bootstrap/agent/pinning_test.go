package agent

import (
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

var _ = Describe("A change of what the kubelet pins to CPUs and memory", func() {
	const section = ignition.PoolKubeletPath
	// checkpoints is how the kubelet starts without its checkpoints.
	checkpoints := []string{"stop kubelet.service poolboot-checkpoints.service", "restart kubelet.service"}

	It("drains the Node, and stops the kubelet until its checkpoints are removed, also if it is undone", func() {
		w := installed(withFiles(section, "maxPods: 9"))
		second := w.offer(w.assign("rendered-b", withFiles(section, "cpuManagerPolicy: static")))
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Done " + second))
		Expect(w.states).To(Equal([]string{"Draining", "Applying", "Verifying", "Done"}))
		Expect(w.calls).To(Equal(checkpoints))

		By("undoing the way back")
		w.calls = nil
		w.isBroken = func() bool { return w.read(section) == "maxPods: 9" }
		third := w.offer(w.assign("rendered-c", withFiles(section, "maxPods: 9")))
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Degraded " + third))
		Expect(w.calls).To(Equal(slices.Concat(checkpoints, []string{"daemon-reload"}, checkpoints)))
	})

	It("by hand is only corrected by force, which does the same", func() {
		w := installed(withFiles(section, "cpuManagerPolicy: static"), repairs)
		w.write(section, "cpuManagerPolicy: none")
		Expect(w.run()).To(Succeed())
		Expect(w.reason()).To(ContainSubstring("A repair needs a drain"))
		Expect(w.calls).To(BeEmpty())
		w.offer(w.assign("rendered-a", withFiles(section, "cpuManagerPolicy: static"), func(a *assignment.Assignment) { a.Force = "1" }))
		Expect(w.run()).To(Succeed())
		Expect(w.calls).To(Equal(checkpoints))
		Expect(w.read(section)).To(Equal("cpuManagerPolicy: static"))
	})
})
