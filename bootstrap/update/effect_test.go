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
