package update_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

var _ = Describe("The units of a plan", func() {
	units := func(list string) string { return withIgnition("systemd: {units: [" + list + "]}") }
	const quiet = "{files: [{path: /etc, actions: [{type: None}]}], units: [{name: a.service, actions: [{type: None}]}, {name: a.timer, actions: [{type: None}]}, {name: a.slice, actions: [{type: None}]}, " +
		"{name: b.service, actions: [{type: None}]}, {name: t@.service, actions: [{type: None}]}, {name: t@1.service, actions: [{type: None}]}, {name: kubelet.service, actions: [{type: None}]}, " +
		"{name: containerd.service, actions: [{type: None}]}, {name: chronyd.service, actions: [{type: None}]}]}"
	none := []string(nil)

	DescribeTable("stop if they go and start if they come, and the other way around when it is undone",
		func(before, after string, stops, starts, undoStops, undoStarts []string) {
			plan := planOf(before, after, policy(quiet))
			Expect(plan.Reboots()).To(BeFalse())
			Expect(plan.Stop).To(Equal(stops))
			Expect(plan.Start).To(Equal(starts))
			Expect(plan.Undo.Stop).To(Equal(undoStops), "undone")
			Expect(plan.Undo.Start).To(Equal(undoStarts), "undone")
		},
		Entry("a new unit that is enabled", nothing, units(`{name: a.service, contents: "[Unit]", enabled: true}`), none, []string{"a.service"}, []string{"a.service"}, none),
		Entry("a new unit that is not", nothing, units(`{name: a.service, contents: "[Unit]"}`), none, none, []string{"a.service"}, none),
		Entry("a new unit that is disabled", nothing, units(`{name: a.service, contents: "[Unit]", enabled: false}`), none, none, []string{"a.service"}, none),
		Entry("a unit that is removed", units(`{name: a.service, contents: "[Unit]", enabled: true}`), nothing, []string{"a.service"}, none, none, []string{"a.service"}),
		Entry("a unit that is masked", units(`{name: a.service, contents: "[Unit]", enabled: true}`), units(`{name: a.service, mask: true}`), []string{"a.service"}, none, none, []string{"a.service"}),
		Entry("a unit of the image that is masked", nothing, units(`{name: chronyd.service, mask: true}`), []string{"chronyd.service"}, none, none, none),
		Entry("a unit that is masked by a link", nothing, withIgnition("storage: {links: [{path: /etc/systemd/system/chronyd.service, target: /dev/null}]}"), []string{"chronyd.service"}, none, none, none),
		Entry("a unit that becomes disabled", units(`{name: a.service, contents: "[Unit]", enabled: true}`), units(`{name: a.service, contents: "[Unit]", enabled: false}`),
			[]string{"a.service"}, none, none, []string{"a.service"}),
		Entry("a unit of the image that becomes disabled", nothing, units(`{name: chronyd.service, enabled: false}`), []string{"chronyd.service"}, none, none, none),
		Entry("a unit that is enabled no longer", units(`{name: chronyd.service, enabled: true}`), nothing, []string{"chronyd.service"}, none, none, []string{"chronyd.service"}),
		Entry("a unit that stays enabled without its file", units(`{name: a.service, contents: "[Unit]", enabled: true}`), units(`{name: a.service, enabled: true}`),
			[]string{"a.service"}, []string{"a.service"}, none, none),
		Entry("a unit that changes", units(`{name: a.service, contents: "[Unit]", enabled: true}`), units(`{name: a.service, contents: "[Service]", enabled: true}`), none, none, none, none),
		Entry("a timer and its service", units(`{name: a.service, contents: "[Unit]"}, {name: a.timer, contents: "[Unit]", enabled: true}`), nothing, []string{"a.service", "a.timer"}, none, none, []string{"a.timer"}),
		Entry("a unit that is enabled by a link", nothing, withIgnition("storage: {links: [{path: /etc/systemd/system/multi-user.target.wants/chronyd.service, target: /usr/lib/systemd/system/chronyd.service}]}"),
			none, []string{"chronyd.service"}, []string{"chronyd.service"}, none),
		Entry("a unit that another one names with Also", nothing, units(`{name: a.service, contents: "[Install]\nAlso=b.service", enabled: true}, {name: b.service, contents: "[Unit]"}`),
			none, []string{"a.service", "b.service"}, []string{"a.service", "b.service"}, none),
		Entry("units that another one names with Also in a continued line and by a specifier", nothing,
			units(`{name: a.service, contents: "[Install]\nAlso=b.service \\\n%p.timer", enabled: true}, {name: b.service, contents: "[Unit]"}, {name: a.timer, contents: "[Unit]"}`),
			none, []string{"a.service", "a.timer", "b.service"}, []string{"a.service", "a.timer", "b.service"}, none),
		Entry("the default instance of a template", nothing, units(`{name: t@.service, contents: "[Install]\nDefaultInstance=x", enabled: true}`), none, []string{"t@x.service"}, []string{"t@.service", "t@x.service"}, none),
		Entry("the instances of a template", units(`{name: t@.service, contents: "[Unit]"}, {name: t@1.service, enabled: true}`), nothing, []string{"t@.service", "t@1.service"}, none, none, []string{"t@1.service"}),
		Entry("what a host needs", units(`{name: containerd.service, contents: "[Unit]", enabled: true}`), units(`{name: containerd.service, mask: true}, {name: kubelet.service, enabled: false}`), none, none, none, none),
		Entry("what runs nothing itself", units(`{name: a.slice, contents: "[Unit]", enabled: true}`), nothing, none, none, none, none),
	)

	restarts := policy("{units: [{name: a.service, actions: [{type: DaemonReload}, {type: Restart, unit: a.service}]}, {name: b.service, actions: [{type: Reload, unit: b.service}]}]}")
	DescribeTable("are not restarted or reloaded if they stop, whichever way",
		func(before, after string, actions, undo []string, starts, undoStarts []string) {
			plan := planOf(before, after, restarts)
			Expect(describe(plan.Actions)).To(Equal(actions))
			Expect(describe(plan.Undo.Actions)).To(Equal(undo))
			Expect(plan.Start).To(Equal(starts))
			Expect(plan.Undo.Start).To(Equal(undoStarts))
			for _, change := range plan.Changes {
				Expect(describe(change.Actions)).To(Equal(actions))
			}
		},
		Entry("removed", units(`{name: a.service, contents: "[Unit]", enabled: true}`), nothing, []string{"DaemonReload"}, []string{"DaemonReload", "Restart a.service"}, none, none),
		Entry("masked", units(`{name: a.service, contents: "[Unit]", enabled: true}`), units(`{name: a.service, mask: true}`), []string{"DaemonReload"}, []string{"DaemonReload", "Restart a.service"}, none, none),
		Entry("new, which the restart starts", nothing, units(`{name: a.service, contents: "[Unit]", enabled: true}`), []string{"DaemonReload", "Restart a.service"}, []string{"DaemonReload"}, none, none),
		Entry("new, which reads its configuration when it starts", nothing, units(`{name: b.service, contents: "[Unit]", enabled: true}`), []string{"None"}, []string{"None"}, []string{"b.service"}, none),
		Entry("changed", units(`{name: a.service, contents: "[Unit]"}`), units(`{name: a.service, contents: "[Service]"}`), []string{"DaemonReload", "Restart a.service"}, []string{"DaemonReload", "Restart a.service"}, none, none),
	)

	It("that a host needs are restarted when their file is removed, if the operating system has them", func() {
		plan := planOf(units(`{name: containerd.service, contents: "[Unit]"}`), nothing, policy("{units: [{name: containerd.service, actions: [{type: Restart, unit: containerd.service}]}]}"))
		Expect(plan.Actions).To(Equal([]update.Action{{Type: update.Restart, Unit: "containerd.service", IfExists: true}}))
	})

	It("stop before a reboot only if their files go and they can run as a user, and start again if it is undone before", func() {
		before := units(`{name: a.service, contents: "[Unit]", enabled: true}, {name: b.service, contents: "[Unit]", enabled: true}, {name: d.mount, contents: "[Unit]", enabled: true}`)
		plan := planOf(before, units(`{name: b.service, contents: "[Unit]", enabled: false}, {name: c.service, contents: "[Unit]", enabled: true}`))
		Expect(plan.Reboots()).To(BeTrue())
		Expect(plan.Stop).To(Equal([]string{"a.service"}))
		Expect(plan.Start).To(BeEmpty())
		Expect(plan.Undo.Stop).To(Equal([]string{"c.service"}))
		Expect(plan.Undo.Start).To(Equal([]string{"a.service"}))
	})

	It("are an effect of an update that does nothing else", func() {
		plan := planOf(units(`{name: a.service, contents: "[Unit]", enabled: true}`), nothing, policy(quiet))
		Expect(describe(plan.Actions)).To(Equal([]string{"None"}))
		Expect(plan.Effect()).To(Equal(update.EffectRestart))
	})
})
