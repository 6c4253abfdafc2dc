package agent

import (
	"errors"
	"slices"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

var _ = Describe("An update of units", func() {
	It("starts a unit that it adds, and stops one that it masks or disables, without restarting it", func() {
		config := withFiles()
		config.Ignition.Systemd.Units = []types.Unit{unit("web.service", "[Service]", true), unit("other.service", "[Service]", true)}
		quiet := func(a *assignment.Assignment) {
			for _, name := range []string{"other.service", "new.service"} {
				a.Policy.Units[name] = rule(update.Action{Type: update.None})
			}
		}
		w := newWorld()
		w.install(w.assign("rendered-a", config, quiet))
		Expect(w.run()).To(Succeed())
		changed := withFiles()
		changed.Ignition.Systemd.Units = []types.Unit{{Name: "web.service", Mask: ptr.To(true)}, unit("other.service", "[Service]", false), unit("new.service", "[Service]", true)}
		second := w.offer(w.assign("rendered-b", changed, quiet))
		Expect(w.run()).To(Succeed())
		Expect(w.state()).To(Equal("Done " + second))
		Expect(w.calls).To(Equal([]string{"stop other.service web.service", "daemon-reload", "start new.service other.service web.service"}))
	})

	It("that reboots stops a unit before it removes the user as whom it runs, and reboots also if that fails", func() {
		for _, err := range []error{nil, errors.New("it hangs")} {
			config := withFiles()
			config.Ignition.Systemd.Units = []types.Unit{unit("app.service", "[Service]\nUser=app", true)}
			config.Ignition.Passwd.Users = []types.PasswdUser{{Name: "app"}}
			w := installed(config)
			w.fails["stop app.service"] = err
			second := w.offer(w.assign("rendered-b", withFiles()))
			Expect(w.run()).To(Succeed())
			Expect(w.state()).To(Equal("Done " + second))
			Expect(w.steps).To(ContainElements("before stop app.service", "before accounts app"))
			Expect(slices.Index(w.steps, "before stop app.service")).To(BeNumerically("<", slices.Index(w.steps, "before accounts app")))
		}
	})
})

var _ = Describe("A host that differs from its configuration", func() {
	Describe("in how units are enabled", func() {
		begin := func(changes ...func(*assignment.Assignment)) *world {
			config := withFiles("/etc/none/f", "a")
			config.Ignition.Systemd.Units = []types.Unit{
				unit("web.service", "[Install]", true), {Name: "os.service", Enabled: ptr.To(false)},
				{Name: "other.service", Dropins: []types.Dropin{{Name: "a.conf", Contents: ptr.To("[Unit]")}}},
			}
			w := installed(config, append(changes, func(a *assignment.Assignment) {
				a.Policy.Units["os.service"] = rule(update.Action{Type: update.None})
			})...)
			return w
		}

		It("reports what overrides them wherever systemd reads units, once, and repairs none of it", func() {
			w := begin(repairs)
			w.dropIns = []string{"/etc/systemd/system.control/web.service.d/50-CPUQuota.conf", "/run/systemd/system/service.d/a.conf"}
			w.overriding, w.overridingMasks, w.masked = []string{"/run/systemd/transient/web.service"}, []string{"other.service"}, []string{"other.service"}
			Expect(w.run()).To(Succeed())
			Expect(w.node.Annotations[agentv1.DriftAnnotation]).To(Equal("/etc/systemd/system.control/web.service.d/50-CPUQuota.conf: AdditionalDropIn\n" +
				"/etc/systemd/system/other.service: Masked\n/run/systemd/system/service.d/a.conf: AdditionalDropIn\n/run/systemd/transient/web.service: Overridden"))
			Expect(w.reason()).To(ContainSubstring("remove it on the host"))
			Expect(w.calls).To(BeEmpty())
		})

		It("still finds one kind if the question about another fails", func() {
			w := begin()
			w.dropIns, w.enablement["web.service"] = []string{"/run/systemd/system/web.service.d/a.conf"}, update.Disabled
			w.fails["is-enabled"] = errors.New("exit status 1")
			Expect(w.run()).To(Succeed())
			Expect(w.node.Annotations[agentv1.DriftAnnotation]).To(ContainSubstring("/run/systemd/system/web.service.d/a.conf: AdditionalDropIn"))
		})

		It("reports it by hand, and what is masked", func() {
			w := begin()
			w.enablement["web.service"], w.enablement["os.service"], w.masked = update.Disabled, update.Enabled, []string{"other.service"}
			Expect(w.run()).To(Succeed())
			Expect(w.node.Annotations[agentv1.DriftAnnotation]).To(Equal("/etc/systemd/system/os.service: Enablement\n" +
				"/etc/systemd/system/other.service: Masked\n/etc/systemd/system/web.service: Enablement"))
			Expect(w.state()).To(HavePrefix("Degraded "))
			Expect(w.calls).To(BeEmpty())
			w.enablement["web.service"], w.enablement["os.service"], w.masked = update.Enabled, update.Disabled, nil
			Expect(w.run()).To(Succeed())
			Expect(w.state()).To(HavePrefix("Done "))
		})

		It("repairs it with the actions of the policy, and leaves masks", func() {
			w := begin(repairs)
			w.enablement["web.service"], w.enablement["os.service"], w.masked = update.Disabled, update.Enabled, []string{"other.service"}
			Expect(w.run()).To(Succeed())
			Expect(w.enablement).To(And(HaveKeyWithValue("web.service", update.Enabled), HaveKeyWithValue("os.service", update.Disabled)))
			Expect(w.calls).To(Equal([]string{"stop os.service", "daemon-reload", "restart web.service", "start os.service"}), "os.service only if something wants it")
			Expect(w.node.Annotations[agentv1.DriftAnnotation]).To(Equal("/etc/systemd/system/other.service: Masked"))
			Expect(w.reason()).To(ContainSubstring("remove it on the host"))
		})

		It("does not take what was changed by hand for what was there before Poolboot, if a repair fails", func() {
			w := begin(repairs)
			w.enablement["web.service"] = update.Disabled
			w.fails["restart web.service"] = errors.New("exit status 1")
			Expect(w.run()).To(Succeed())
			Expect(w.enablement).To(HaveKeyWithValue("web.service", update.Enabled))
		})

		It("goes on if systemctl does not answer", func() {
			w := begin()
			w.fails["is-enabled"] = errors.New("exit status 1")
			Expect(w.run()).To(Succeed())
			Expect(w.state()).To(HavePrefix("Done "))
		})
	})
})
