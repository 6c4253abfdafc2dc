package pool_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

var _ = Describe("A disruption policy", func() {
	It("is valid with every action, unit and path", func() {
		Expect(pool.CheckDisruption(policy(`{files: [{path: /, actions: [{type: Drain}, {type: DaemonReload}, {type: Reload, unit: crio.service}]}, {path: /etc/.a/..b, actions: [{type: None}]}],
			units: [{name: getty@tty1.service, actions: [{type: Reboot}]}, {name: dev-disk-by\x2duuid.mount, actions: [{type: Restart, unit: a.timer}]}],
			sshKeys: {actions: [{type: Restart, unit: sshd.service}]}}`), field.NewPath("spec", "updates", "disruptionPolicy"))).To(BeEmpty())
		Expect(pool.CheckDisruption(policy("{}"), nil)).To(BeEmpty())
	})

	none := "actions: [{type: None}]"
	DescribeTable("is refused, and the error names the field and the remedy, with",
		func(text, at, remedy string) {
			errs := pool.CheckDisruption(policy(text), field.NewPath("spec", "updates", "disruptionPolicy"))
			Expect(errs).To(HaveLen(1))
			Expect(errs[0].Error()).To(And(HavePrefix("spec.updates.disruptionPolicy."+at+":"), ContainSubstring(remedy)))
		},
		Entry("a relative path", "{files: [{path: etc, "+none+"}]}", "files[0].path", "must be an absolute path"),
		Entry("a path that ends with a slash", "{files: [{path: /etc/, "+none+"}]}", "files[0].path", "without a slash at its end"),
		Entry("a path with parts that lead up", "{files: [{path: /etc/../a, "+none+"}]}", "files[0].path", "'..'"),
		Entry("a path twice", "{files: [{path: /a, "+none+"}, {path: /a, "+none+"}]}", "files[1].path", "Duplicate"),
		Entry("a unit twice", "{units: [{name: a.service, "+none+"}, {name: a.service, "+none+"}]}", "units[1].name", "Duplicate"),
		Entry("a unit without a type", "{units: [{name: crio, "+none+"}]}", "units[0].name", "such as crio.service"),
		Entry("no action", "{files: [{path: /a, actions: []}]}", "files[0].actions", "None if the host does nothing"),
		Entry("an unknown action", "{files: [{path: /a, actions: [{type: Special}]}]}", "files[0].actions[0].type", `supported values: "None", "DaemonReload"`),
		Entry("None beside others", "{files: [{path: /a, actions: [{type: None}, {type: Drain}]}]}", "files[0].actions", "must be the only action"),
		Entry("Reboot beside others", "{sshKeys: {actions: [{type: Drain}, {type: Reboot}]}}", "sshKeys.actions", "must be the only action"),
		Entry("Reload without a unit", "{units: [{name: a.service, actions: [{type: Reload}]}]}", "units[0].actions[0].unit", "such as crio.service"),
		Entry("Drain with a unit", "{units: [{name: a.service, actions: [{type: Drain, unit: a.service}]}]}", "units[0].actions[0].unit", "leave it out"),
	)
})
