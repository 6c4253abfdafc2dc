package update_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

var _ = DescribeTable("The effect of a plan is that of its strongest action:", func(expected update.Effect, types ...update.ActionType) {
	plan := update.Plan{}
	for _, t := range types {
		plan.Actions = append(plan.Actions, update.Action{Type: t})
	}
	Expect(plan.Effect()).To(Equal(expected))
	plan.Obstacles = []update.Obstacle{{Why: "disks"}}
	Expect(plan.Effect()).To(Equal(update.EffectReplace))
},
	Entry("nothing", update.EffectNone),
	Entry("None", update.EffectNone, update.None),
	Entry("a reload of systemd", update.EffectReload, update.DaemonReload),
	Entry("a reload of a unit", update.EffectReload, update.None, update.Reload),
	Entry("a restart", update.EffectRestart, update.DaemonReload, update.Reload, update.Restart),
	Entry("a drain", update.EffectRestart, update.Drain),
	Entry("a reboot", update.EffectReboot, update.Restart, update.Reboot),
)

var _ = DescribeTable("A plan says how the host reboots:", func(method update.RebootMethod, by func(*update.Rebooting), after update.Config, want string) {
	r := update.Rebooting{Method: method, Can: update.AllCapabilities}
	if by != nil {
		by(&r)
	}
	plan := update.New(update.Config{}, after, update.DefaultPolicy(), r.Can)
	Expect(plan.DescribeReboot(r)).To(Equal(want))
},
	Entry("fully", update.FullReboot, nil, update.Config{KernelArguments: []string{"a"}}, "yes: kernelArguments"),
	Entry("by the method of the pool", update.Kexec, nil, update.Config{KernelArguments: []string{"a"}}, "yes: kernelArguments; by Kexec"),
	Entry("fully, if the change does not allow the method", update.SoftReboot, nil, update.Config{KernelArguments: []string{"a"}},
		"yes: kernelArguments; by Full instead of SoftReboot: kernel arguments change"),
	Entry("fully, if the host reports that it can't kexec", update.Kexec, func(r *update.Rebooting) { r.Can = update.CapabilitiesWithout("Kexec") },
		update.Config{KernelArguments: []string{"a"}}, "yes: kernelArguments; by Full instead of Kexec: the host reports that it can't"),
	Entry("by Metal3, which applies firmware", update.Kexec, func(r *update.Rebooting) { r.ByMetal3 = true },
		update.Config{KernelArguments: []string{"a"}}, "yes: kernelArguments; by Metal3, which applies pending firmware settings or updates"),
	Entry("without firmware that can't be applied", update.Kexec, func(r *update.Rebooting) { r.NotApplied = "it is not valid" },
		update.Config{KernelArguments: []string{"a"}}, "yes: kernelArguments; by Kexec; pending firmware is not applied: it is not valid"),
	Entry("not at all", update.Kexec, func(r *update.Rebooting) { r.ByMetal3 = true }, update.Config{}, "no: nothing changes on the host"),
)

var _ = It("What a host lacks is in its report, and is read from it", func() {
	lacks := update.AllCapabilities
	lacks.LacksKexec, lacks.LacksSoftReboot = true, true
	Expect(lacks.Unsupported()).To(Equal([]string{"Kexec", "SoftReboot"}))
	Expect(update.CapabilitiesWithout(lacks.Unsupported()...)).To(Equal(lacks))
	Expect(update.AllCapabilities.Unsupported()).To(BeEmpty())
})
