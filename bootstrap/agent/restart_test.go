package agent

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// restarts adds a restart of the hosts of a pool to an assignment.
func restarts(pool, id string, kind update.RestartKind) func(*assignment.Assignment) {
	return func(a *assignment.Assignment) { a.Pool, a.Restart = pool, &assignment.Restart{ID: id, Kind: kind} }
}

func inPool(pool string) func(*assignment.Assignment) {
	return func(a *assignment.Assignment) { a.Pool = pool }
}

var _ = Describe("A restart that was requested", func() {
	config := withFiles("/etc/none/f", "a")
	var w *world
	offer := func(changes ...func(*assignment.Assignment)) string {
		GinkgoHelper()
		return w.offer(w.assign("rendered-a", config, changes...))
	}
	BeforeEach(func() { w = installed(config, inPool("infra")) })

	DescribeTable("happens once, with the states and the verification of an update", func(kind update.RestartKind, calls, states []string, effect string) {
		revision := offer(restarts("infra", "1", kind))
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Done " + revision))
		Expect(w.calls).To(Equal(calls))
		Expect(w.states).To(Equal(states))
		Expect(w.node.Annotations).To(HaveKeyWithValue(agentv1.EffectAnnotation, revision+" "+effect))
		Expect(w.run()).To(Succeed())
		Expect(w.calls).To(Equal(calls))
	},
		Entry("a reboot", update.RestartHost, []string{"reboot"}, []string{"Draining", "Applying", "Rebooting", "Verifying", "Done"}, "Reboot"),
		Entry("of the kubelet", update.RestartKubelet, []string{"restart kubelet.service"}, []string{"Applying", "Verifying", "Done"}, "Restart"),
	)

	It("reboots by the method of the pool", func() {
		offer(restarts("infra", "1", update.RestartHost), rebootsBy(update.SoftReboot))
		Expect(w.run()).To(Succeed())
		Expect(w.calls).To(Equal([]string{"soft-reboot"}))
	})

	It("is done together with a change", func() {
		w.offer(w.assign("rendered-b", withFiles("/etc/none/f", "b"), restarts("infra", "1", update.RestartHost)))
		Expect(w.run()).To(Succeed())
		Expect(w.calls).To(Equal([]string{"reboot"}))
		Expect(w.read("etc/none/f")).To(Equal("b"))
	})

	It("does nothing on a host that boots for the first time", func() {
		w = newWorld()
		revision := w.install(w.assign("rendered-a", config, restarts("infra", "1", update.RestartHost)))
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Done " + revision))
		Expect(w.calls).To(BeEmpty())
	})

	DescribeTable("does nothing on a host", func(changes ...func(*assignment.Assignment)) {
		offer(restarts("infra", "1", update.RestartKubelet))
		Expect(w.run()).To(Succeed())
		w.calls = nil
		revision := offer(changes...)
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Done " + revision))
		Expect(w.calls).To(BeEmpty())
	},
		Entry("that has done it, also if the ID is used again for another kind", restarts("infra", "1", update.RestartHost)),
		Entry("for which it is withdrawn", inPool("infra")),
		Entry("that comes from another pool", restarts("gpu", "2", update.RestartHost)),
		Entry("that goes to a pool which requested none", inPool("gpu")),
	)

	It("happens again for another ID, also for an earlier one that another one has replaced", func() {
		for _, id := range []string{"1", "2", "1"} {
			offer(restarts("infra", id, update.RestartHost))
			Expect(w.run()).To(Succeed())
		}
		Expect(w.calls).To(Equal([]string{"reboot", "reboot", "reboot"}))
	})

	It("gives way to the next one while the Node is drained", func() {
		w.drains = false
		offer(restarts("infra", "1", update.RestartHost))
		Expect(w.run()).To(Succeed())
		Expect(w.states).To(Equal([]string{"Draining"}))
		w.drains = true
		revision := offer(restarts("infra", "2", update.RestartHost))
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Done " + revision))
		Expect(w.calls).To(Equal([]string{"reboot"}))
	})

	It("that fails is reported and not repeated: the host reboots fully once more, and does not restart without another ID", func() {
		w.isBroken = func() bool { return w.boots == 2 }
		revision := offer(restarts("infra", "1", update.RestartHost), rebootsBy(update.Kexec))
		Expect(w.run()).To(Succeed())
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Degraded " + revision))
		Expect(w.calls).To(Equal([]string{"kexec", "reboot"}))
		Expect(w.node.Ready).To(BeTrue())
	})

	It("that is withdrawn after the reboot does not reboot the host again", func() {
		first := w.node.Annotations[agentv1.DesiredAnnotation]
		w.isBroken = func() bool {
			if w.boots == 2 {
				w.offered, w.node.Annotations[agentv1.DesiredAnnotation] = first, first
			}
			return w.boots == 2 && w.node.Annotations[agentv1.StateAnnotation] != "Done"
		}
		offer(restarts("infra", "1", update.RestartHost))
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Done " + first))
		Expect(w.calls).To(Equal([]string{"reboot"}))
	})

	It("is not lost or repeated if the agent is killed at any step", func() {
		offer(restarts("infra", "1", update.RestartHost))
		Expect(w.run()).To(Succeed())
		steps := len(w.steps)
		for at := 1; at <= steps; at++ {
			w = installed(config, inPool("infra"))
			w.steps, w.stopAt = nil, at
			revision := offer(restarts("infra", "1", update.RestartHost))
			Expect(w.run()).To(Succeed())
			Expect(w.state()).To(Equal("Done " + revision))
			Expect(w.boots).To(Equal(2))
		}
	})
})
