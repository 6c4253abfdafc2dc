package systemd_test

import (
	"os"
	"os/exec"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/command"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/systemd"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/hostroot"
)

const wants = "multi-user.target.wants/"

var _ = Describe("The enablement of units", func() {
	var root string

	BeforeEach(func() {
		root = hostroot.New(GinkgoT())
		writeUnit(root, "plain.service", service+install)
		write(root, "usr/lib/systemd/system/image.service", service+install)
		write(root, "usr/lib/systemd/system-preset/50-image.preset", "enable preset.service\n")
		writeUnit(root, "preset.service", service+install)
		run(root, "systemctl", "--root=/", "enable", "image.service")
	})

	apply := func(operations ...update.Operation) {
		GinkgoHelper()
		Expect(applyAll(enablement(root), GinkgoT().Context(), operations)).To(Succeed())
	}

	It("changes, can be repeated, and is undone", func() {
		before := files(root)
		operations := []update.Operation{
			change("plain.service", update.Preset, update.Enabled),
			change("image.service", update.Preset, update.Disabled),
			change("preset.service", update.Preset, update.Enabled),
		}
		for range 2 {
			apply(operations...)
			Expect(files(root)).To(And(HaveKey(wants+"plain.service"), Not(HaveKey(wants+"image.service")), HaveKey(wants+"preset.service")))
		}
		for range 2 {
			apply(update.Undo(operations)...)
			Expect(files(root)).To(Equal(before), "the unit of the image is enabled again, which no preset says")
		}
	})

	It("is undone after each part of the operations, also if the undoing is interrupted", func() {
		before := files(root)
		operations := []update.Operation{change("plain.service", update.Preset, update.Enabled), change("image.service", update.Preset, update.Disabled)}
		for done := range len(operations) + 1 {
			Expect(enablement(root).Prepare(GinkgoT().Context(), operations)).To(Succeed())
			apply(operations[:done]...)
			undo := update.Undo(operations)
			apply(undo[:1]...)
			apply(undo...)
			Expect(files(root)).To(Equal(before))
		}
	})

	It("is remembered again after it was restored and changed by hand", func() {
		disable := change("image.service", update.Preset, update.Disabled)
		apply(disable)
		apply(update.Undo([]update.Operation{disable})...)
		run(root, "systemctl", "--root=/", "disable", "image.service")
		apply(change("image.service", update.Preset, update.Enabled))
		Expect(files(root)).To(HaveKey(wants + "image.service"))
		apply(change("image.service", update.Enabled, update.Preset))
		Expect(files(root)).NotTo(HaveKey(wants + "image.service"))
	})

	It("follows the presets if it is not known how the unit was before", func() {
		run(root, "systemctl", "--root=/", "enable", "plain.service")
		apply(change("plain.service", update.Enabled, update.Preset), change("preset.service", update.Disabled, update.Preset))
		Expect(files(root)).To(And(HaveKey(wants+"preset.service"), Not(HaveKey(wants+"plain.service"))))
	})

	It("of a new unit that is undone is that before, while the presets still enable it", func() {
		writeUnit(root, "t@.service", service+install)
		operations := []update.Operation{change("new.service", update.Preset, update.Enabled), change("t@a.service", update.Preset, update.Enabled)}
		before := files(root)
		Expect(enablement(root).Prepare(GinkgoT().Context(), operations)).To(Succeed())
		write(root, hosttree.PresetPath, "enable new.service\nenable t@.service b a\n")
		writeUnit(root, "new.service", service+install)
		apply(operations...)
		apply(update.Undo(operations)...)
		Expect(os.Remove(filepath.Join(root, "etc/systemd/system/new.service"))).To(Succeed())
		Expect(files(root)).To(Equal(before))
	})

	It("of instances and templates is theirs", func() {
		writeUnit(root, "a@.service", service+install)
		writeUnit(root, "b@.service", service+install+"DefaultInstance=default\n")
		apply(change("a@x.service", update.Preset, update.Enabled), change("b@.service", update.Preset, update.Enabled))
		Expect(files(root)).To(And(HaveKey(wants+"a@x.service"), HaveKey(wants+"b@default.service")))
		apply(change("a@x.service", update.Enabled, update.Disabled), change("b@.service", update.Enabled, update.Disabled))
		Expect(files(root)).NotTo(Or(HaveKey(wants+"a@x.service"), HaveKey(wants+"b@default.service")))
	})

	It("keeps links of the configuration that lead to a unit which it disables", func() {
		link := filepath.Join(root, "etc/systemd/system/special.target.wants/plain.service")
		Expect(os.MkdirAll(filepath.Dir(link), 0o755)).To(Succeed())
		Expect(os.Symlink("../plain.service", link)).To(Succeed())
		run(root, "systemctl", "--root=/", "enable", "plain.service")
		e := enablement(root, "/etc/systemd/system/special.target.wants/plain.service", "../plain.service", "/etc/other", "nothing")
		Expect(applyAll(e, GinkgoT().Context(), []update.Operation{change("plain.service", update.Enabled, update.Disabled)})).To(Succeed())
		Expect(files(root)).To(And(HaveKey("special.target.wants/plain.service"), Not(HaveKey(wants+"plain.service"))))
		Expect(os.Readlink(link)).To(Equal("../plain.service"))
		Expect(filepath.Join(root, "etc/other")).NotTo(BeAnExistingFile(), "it is not a link to a unit")
	})

	DescribeTable("skips what can't be enabled:",
		func(unit string, prepare func()) {
			prepare()
			before := files(root)
			for _, to := range []update.Enablement{update.Enabled, update.Disabled, update.Preset} {
				apply(change(unit, update.Preset, to))
				Expect(files(root)).To(Equal(before))
			}
		},
		Entry("a unit that does not exist", "none.service", func() {}),
		Entry("an instance of a template that does not exist", "none@x.service", func() {}),
		Entry("a unit without a section Install", "static.service", func() { writeUnit(root, "static.service", service) }),
		Entry("a masked unit", "masked.service", func() {
			Expect(os.Symlink("/dev/null", filepath.Join(root, "etc/systemd/system/masked.service"))).To(Succeed())
		}),
		Entry("another name of a unit", "alias.service", func() {
			Expect(os.Symlink("plain.service", filepath.Join(root, "etc/systemd/system/alias.service"))).To(Succeed())
		}),
	)

	It("fails for a unit that systemctl refuses, and names it", func() {
		writeUnit(root, "bad.service", service+"[Install]\nWantedBy=two words%\n")
		Expect(applyAll(enablement(root), GinkgoT().Context(), []update.Operation{change("bad.service", update.Preset, update.Enabled)})).
			To(MatchError(HavePrefix("unit bad.service: systemctl --root=/ --quiet enable -- bad.service: exit status 1")))
	})

	It("fails if systemctl does not work, instead of skipping units", func() {
		Expect(os.Remove(filepath.Join(root, "bin/systemctl"))).To(Succeed())
		Expect(applyAll(enablement(root), GinkgoT().Context(), []update.Operation{change("plain.service", update.Preset, update.Enabled)})).To(MatchError(exec.ErrNotFound))
		write(root, "bin/systemctl", "#!/bin/sh\necho Input/output error >&2; exit 1\n")
		Expect(os.Chmod(filepath.Join(root, "bin/systemctl"), 0o755)).To(Succeed())
		err := applyAll(enablement(root), GinkgoT().Context(), []update.Operation{change("plain.service", update.Preset, update.Enabled)})
		Expect(command.Detail(err)).To(ContainSubstring("Input/output error"))
	})

	It("fails if the record of how units were is broken, and names the file", func() {
		for _, damaged := range []string{"{", "", "null", "[]"} {
			write(root, systemd.RecordPath, damaged)
			Expect(systemd.Enablement{Runner: command.Runner{Root: root}}.Prepare(GinkgoT().Context(), nil)).To(MatchError(ContainSubstring(systemd.RecordPath)), damaged)
		}
	})
})
