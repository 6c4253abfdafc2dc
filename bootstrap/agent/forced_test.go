package agent

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
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
	enablement := func(force string, drift ...update.Drift) (states []string) {
		u := newUpdate(newTarget("1", "", "a.target"), newTarget("2", force, "b.target"), "boot", drift, update.AllCapabilities)
		for _, operation := range u.plan.Operations {
			if operation.Kind == update.ChangeEnablement {
				states = append(states, string(operation.Before.Enablement)+" -> "+string(operation.After.Enablement))
			}
		}
		return states
	}
	Expect(enablement("")).To(Equal([]string{"Enabled -> Disabled", "Disabled -> Enabled"}))
	Expect(enablement("now")).To(Equal([]string{"Enabled -> Disabled", "Disabled -> Enabled"}))
	for _, kind := range []update.DriftKind{update.DriftEnablement, update.DriftContent} {
		Expect(enablement("now", update.Drift{Name: "/etc/systemd/system/web.service", Kind: kind})).To(Equal([]string{"Enabled -> Disabled", "Disabled -> Enabled"}))
	}
})

var _ = It("A forced update acts on what was changed by hand and leaves the configuration", func() {
	config := withFiles("/etc/restart/f", "a")
	config.Ignition.Systemd.Units = []types.Unit{unit("web.service", "[Service]", true)}
	w := newWorld()
	w.install(w.assign("rendered-a", config))
	Expect(w.run()).To(Succeed())
	Expect(w.enablement["web.service"]).To(Equal(update.Enabled))
	w.write("etc/restart/f", "by hand")
	w.write("etc/systemd/system/web.service", "by hand")
	w.offer(w.assign("rendered-b", withFiles(), func(a *assignment.Assignment) { a.Force = "1" }))
	Expect(w.run()).To(Succeed())
	Expect(w.state()).To(HavePrefix("Done "))
	Expect(w.calls).To(ContainElements("stop web.service", "restart kubelet.service"))
	Expect(w.enablement["web.service"]).NotTo(Equal(update.Enabled))
})
