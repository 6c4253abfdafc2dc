package agent

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

var _ = It("A forced update disables a unit by its new file before it is undone, as another update does", func() {
	newTarget := func(revision, force, wantedBy string) *target {
		config := withFiles()
		config.Ignition.Systemd.Units = []types.Unit{unit("web.service", "[Install]\nWantedBy="+wantedBy, true)}
		t := &target{revision: revision, config: config}
		t.Force, t.Policy = force, update.DefaultPolicy()
		return t
	}
	enablement := func(force string, drift ...difference) (states []string) {
		u := newUpdate(newTarget("1", "", "a.target"), newTarget("2", force, "b.target"), drift, update.AllCapabilities)
		for _, operation := range u.plan.Operations {
			if operation.Kind == update.ChangeEnablement {
				states = append(states, string(operation.Before.Enablement)+" -> "+string(operation.After.Enablement))
			}
		}
		return states
	}
	Expect(enablement("")).To(Equal([]string{"Enabled -> Disabled", "Disabled -> Enabled"}))
	Expect(enablement("now")).To(Equal([]string{"Enabled -> Disabled", "Disabled -> Enabled"}))
	Expect(enablement("now", difference{"/etc/systemd/system/web.service", otherEnablement})).To(HaveExactElements("Enabled -> Enabled"))
})
