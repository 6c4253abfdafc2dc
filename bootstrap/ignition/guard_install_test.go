package ignition_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

var _ = Describe("The section Install of a unit", func() {
	DescribeTable("is refused if systemd could not enable the unit, or would ignore a setting",
		func(unitName, settings, why string) {
			document := unitWith(unitName, "[Unit]\nDescription=x\n[Install]\n"+settings+"\n")
			Expect(ignition.Guard(parse(document))).To(MatchError("systemd.units[0].contents: " + unitName + " line " + why))
		},
		Entry("Also without a type", "a.service", "Also=other", "4: Also=other is not the name of a unit, and systemd could not enable this one: write other.service"),
		Entry("Also in quotes, which systemd does not remove", "a.service", `Also="a.timer"`, `4: Also="a.timer" is not the name of a unit, and systemd could not enable this one: write a.timer`),
		Entry("Also with a path", "a.service", "Also=a/b.timer", "4: Also=a/b.timer is not the name of a unit, and systemd could not enable this one: write a name as in Also=example.service"),
		Entry("Also with an unknown specifier", "a.service", "Also=%z.timer", "4: Also=%z.timer has a specifier that systemd does not have in the section Install: write the name itself"),
		Entry("Also with a percent sign", "a.service", "Also=%", "4: Also=% is not the name of a unit, and systemd could not enable this one: write a name as in Also=example.service"),
		Entry("the second of several names, on a continued line", "a.service", "X-A=1\nAlso=b.timer \\\n  other", "5: Also=other is not the name of a unit, and systemd could not enable this one: write other.service"),
		Entry("a name after a setting whose backslash is escaped", "a.service", "X-A=1\\\\\nAlso=other", "5: Also=other is not the name of a unit, and systemd could not enable this one: write other.service"),
		Entry("WantedBy without a type", "a.service", "WantedBy=multi-user", "4: WantedBy=multi-user is not the name of a unit, and systemd could not enable this one: write multi-user.target"),
		Entry("WantedBy with a comment behind it", "a.service", "WantedBy=multi-user.target # c", "4: WantedBy=# is not the name of a unit, and systemd could not enable this one: move the comment to a line of its own"),
		Entry("a list with commas", "a.service", "RequiredBy=a.target,b.target", "4: RequiredBy=a.target,b.target is not the name of a unit, and systemd could not enable this one: separate names with blanks"),
		Entry("a name with a comma behind it", "a.service", "RequiredBy=a.target, b.target", "4: RequiredBy=a.target, is not the name of a unit, and systemd could not enable this one: write a.target"),
		Entry("an unknown type", "a.service", "UpheldBy=a.snapshot", "4: UpheldBy=a.snapshot is not the name of a unit, and systemd could not enable this one: write a.snapshot.target"),
		Entry("a quote that is not closed", "a.service", `WantedBy="a.target`, "4: a quote in WantedBy is not closed, and systemd ignores the line: close it"),
		Entry("an alias without a type", "a.timer", "Alias=b", "4: Alias=b is not the name of a unit, and systemd could not enable this one: write b.timer"),
		Entry("an alias of another type", "a.service", "Alias=b.socket", "4: Alias=b.socket: systemd could not enable this unit: an alias has the same type: write b.service"),
		Entry("an alias with an @ of a unit without one", "a.service", "Alias=b@.service", "4: Alias=b@.service: systemd could not enable this unit: only a template or an instance can have an alias with an @: remove it"),
		Entry("an alias without an @ of a template", "a@.service", "Alias=b.service", "4: Alias=b.service: systemd could not enable this unit: an alias of a template or an instance has an @: write b@.service"),
		Entry("an alias of an instance with another one", "a@1.service", "Alias=b@2.service", "4: Alias=b@2.service: systemd could not enable this unit: the alias of an instance has the same instance: write @1"),
		Entry("an alias that is a dependency of another unit", "a.service", "Alias=x.target.wants/b.service", "4: Alias=x.target.wants/b.service is not the name of a unit: for a dependency set WantedBy or RequiredBy"),
		Entry("a default instance with a blank", "a@.service", "DefaultInstance=x y", `4: DefaultInstance=x y is not the name of an instance, and systemd could not enable any unit: use letters, digits and :-_.\ only`),
		Entry("a setting in another case", "a.service", "wantedby=a.target", "4: systemd ignores wantedby: write WantedBy"),
		Entry("a setting of another section", "a.service", "After=a.target", "4: systemd ignores After in the section Install: remove the line, correct the name, or move it to its section"),
	)

	DescribeTable("is accepted as systemd accepts it",
		func(unitName, settings string) {
			Expect(ignition.Guard(parse(unitWith(unitName, "[Install]\n"+settings+"\n[Service]\nAlso=other\n")))).To(Succeed())
		},
		Entry("with names", "a.service", "WantedBy=multi-user.target graphical.target\nRequiredBy=x@.service\nUpheldBy=y@1.service\nAlso=a.timer a@.socket a@b.path"),
		Entry("with names in quotes", "a.service", `WantedBy="multi-user.target" 'b.target'`),
		Entry("with escapes", "a.service", `WantedBy=dev-disk-by\x2dlabel-a.device`),
		Entry("with empty values, which reset a list", "a.service", "WantedBy=\nAlso=\nAlias=\nDefaultInstance="),
		Entry("with settings of others", "a.service", "X-Mine=a b c"),
		Entry("with specifiers", "a.service", "Also=%p.timer %N.socket %n\nWantedBy=host-%H.target"),
		Entry("as getty@.service", "getty@.service", "WantedBy=getty.target\nDefaultInstance=tty1\nAlias=autovt@.service"),
		Entry("as a template whose instances are enabled", "a@.service", "WantedBy=multi-user.target foo@%i.service foo@.service\nAlso=a@%i.timer\nAlias=b@%i.service b@1.service"),
		Entry("as an instance", "a@1.service", "Alias=b@.service b@1.service"),
		Entry("with aliases", "dbus-broker.service", "Alias=dbus.service dbus-broker.service"),
		Entry("with aliases that are dependencies", "a.service", "Alias=multi-user.target.wants/a.service x.target.requires/a.service"),
		Entry("with an alias of a mount unit, which systemd ignores", "a.mount", "Alias=b"),
		Entry("with a default instance of a unit that is no template, which systemd ignores", "a.service", "DefaultInstance=x y"),
		Entry("with a comment", "a.service", "# Also=other\n; Also=other\nWantedBy=multi-user.target"),
	)

	It("is checked in drop-ins and in files, and not in files of which systemd does not read it", func() {
		const malformed = "[Install]\nAlso=other\n"
		Expect(ignition.Guard(parse(dropin("a.service", malformed)))).To(MatchError(HavePrefix("systemd.units[0].dropins[0].contents: drop-in 10-mine.conf of a.service line 2: Also=other is not")))
		for _, path := range []string{"/etc/systemd/system/a.service", "/etc/systemd/system/a.service.d/1.conf"} {
			Expect(ignition.Guard(parse(fileWith(path, malformed)))).To(MatchError(HavePrefix("storage.files[0].contents: " + path + " line 2: Also=other is not")))
		}
		for _, path := range []string{"/etc/systemd/system/README", "/etc/systemd/system/a.service.d/1.conf.bak", "/etc/containers/systemd/a.container", "/etc/a.service"} {
			Expect(ignition.Guard(parse(fileWith(path, malformed)))).To(Succeed(), path)
		}
	})
})
