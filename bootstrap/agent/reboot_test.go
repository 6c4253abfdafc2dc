package agent

import (
	"errors"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/unitstate"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

func rebootsBy(method update.RebootMethod) func(*assignment.Assignment) {
	return func(a *assignment.Assignment) { a.RebootMethod = method }
}

var _ = Describe("The reboot of an update", func() {
	// changed returns a host that is about to change to another configuration, by a method.
	changed := func(method update.RebootMethod, change func(*update.Config)) (w *world, revision string) {
		w = installed(withFiles("/etc/f", "a", "/etc/none/f", "a"), rebootsBy(method))
		config := withFiles("/etc/f", "b", "/etc/none/f", "a")
		if change != nil {
			change(&config)
		}
		w.states = nil
		return w, w.offer(w.assign("rendered-b", config, rebootsBy(method)))
	}
	withArgument := func(config *update.Config) { config.KernelArguments = []string{"hugepages=8"} }
	full := func(method update.RebootMethod) string { return agentv1.FullRebootInsteadOf + string(method) + ": " }
	// reasons records all reasons that the agent reports.
	reasons := func(w *world) *[]string {
		var all []string
		w.units = func() map[string]unitstate.State {
			all = append(all, w.reason())
			return nil
		}
		return &all
	}

	DescribeTable("is one by the method of the pool, if the change allows it", func(method update.RebootMethod, change func(*update.Config), call, why string) {
		w, revision := changed(method, change)
		said := reasons(w)
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Done " + revision))
		Expect(w.calls).To(Equal([]string{call}))
		Expect(w.states).To(Equal([]string{"Draining", "Applying", "Rebooting", "Verifying", "Done"}))
		if why == "" {
			Expect(*said).NotTo(ContainElement(ContainSubstring(agentv1.FullRebootInsteadOf)))
		} else {
			Expect(*said).To(ContainElement(ContainSubstring(full(method) + why)))
		}
		Expect(w.running).To(Equal(w.arguments))
	},
		Entry("full", update.FullReboot, nil, "reboot", ""),
		Entry("kexec", update.Kexec, nil, "kexec", ""),
		Entry("kexec, with other kernel arguments", update.Kexec, withArgument, "kexec", ""),
		Entry("not kexec, with another operating system", update.Kexec, func(config *update.Config) { config.OS.Image = "image:2" }, "reboot", "the operating system changes"),
		Entry("soft reboot", update.SoftReboot, nil, "soft-reboot", ""),
		Entry("not soft reboot, with other kernel arguments", update.SoftReboot, withArgument, "reboot", "kernel arguments change"),
		Entry("not soft reboot, with settings that the kernel keeps", update.SoftReboot, func(config *update.Config) {
			*config = withFiles("/etc/f", "b", "/etc/none/f", "a", "/etc/sysctl.d/90-a.conf", "vm.swappiness = 1")
		}, "reboot", "/etc/sysctl.d/90-a.conf changes"),
	)

	DescribeTable("is a full one if the host refuses the method of the pool: it does not fail the update, and says why", func(method update.RebootMethod, call string) {
		w, revision := changed(method, nil)
		said := reasons(w)
		w.fails[call] = errors.New("operation not permitted")
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Done " + revision))
		Expect(w.calls).To(Equal([]string{"reboot"}))
		Expect(*said).To(ContainElement(ContainSubstring(full(method) + "reboot: operation not permitted")))
	},
		Entry("kexec, as with secure boot and a kernel without signature", update.Kexec, "kexec"),
		Entry("soft reboot, before systemd 254", update.SoftReboot, "soft-reboot"),
	)

	It("is a full one too if a kexec started the kernel without the arguments of the configuration", func() {
		w, revision := changed(update.Kexec, withArgument)
		w.startsOtherKernel = true
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Done " + revision))
		Expect(w.calls).To(Equal([]string{"kexec", "reboot"}))
		Expect(w.running).To(ContainElement("hugepages=8"))
	})

	DescribeTable("is a full one if the host does not reboot by the method of the pool", func(method update.RebootMethod, call string) {
		w, _ := changed(method, nil)
		w.shutsDownSlowly = true
		a, stop := w.begin()
		defer stop()
		for range int(rebootTimeout/time.Minute) + 5 {
			_, err := a.Step(GinkgoT().Context(), w.node)
			Expect(err).NotTo(HaveOccurred())
			w.pass(time.Minute)
		}
		Expect(w.calls).To(Equal([]string{call, "reboot"}))
		Expect(w.reason()).To(ContainSubstring(full(method) + "it was requested and has not happened"))
	},
		Entry("kexec", update.Kexec, "kexec"),
		Entry("soft reboot", update.SoftReboot, "soft-reboot"),
	)

	It("continues after a power cycle of a host whose kernel did not come up after a kexec", func() {
		w, revision := changed(update.Kexec, withArgument)
		w.shutsDownSlowly = true
		a, stop := w.begin()
		for len(w.calls) == 0 {
			_, err := a.Step(GinkgoT().Context(), w.node)
			Expect(err).NotTo(HaveOccurred())
			w.pass(time.Minute)
		}
		stop()
		w.shutsDownSlowly = false
		w.pass(24 * time.Hour)
		w.boot()
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Done " + revision))
		Expect(w.calls).To(Equal([]string{"kexec"}))
	})

	It("is not over when only the agent starts again", func() {
		w, _ := changed(update.SoftReboot, nil)
		w.shutsDownSlowly = true
		for range 2 {
			a, stop := w.begin()
			for range 20 {
				_, err := a.Step(GinkgoT().Context(), w.node)
				Expect(err).NotTo(HaveOccurred())
				w.pass(time.Second)
			}
			stop()
		}
		Expect(w.state()).To(HavePrefix("Rebooting "))
	})

	DescribeTable("is undone by a full one", func(method update.RebootMethod, call string) {
		w, revision := changed(method, nil)
		before := w.snapshot()
		w.isBroken = func() bool { return w.read("etc/f") == "b" }
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Degraded " + revision))
		Expect(w.calls).To(Equal([]string{call, "reboot"}))
		Expect(w.snapshot()).To(Equal(before))
	},
		Entry("after a kexec", update.Kexec, "kexec"),
		Entry("after a soft reboot, which is no boot", update.SoftReboot, "soft-reboot"),
	)

	It("does not count what the kubelet reported before a soft reboot", func() {
		w, revision := changed(update.SoftReboot, nil)
		w.staysReady = true
		w.isBroken = func() bool { return len(w.calls) > 0 }
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Degraded " + revision))
		Expect(w.reason()).To(ContainSubstring("the kubelet has not reported to the API server since the host was changed"))
	})
})
