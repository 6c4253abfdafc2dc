package systemd_test

import (
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/command"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/hostroot"
)

var _ = Describe("A unit that systemctl can't read or enable", func() {
	var root string
	BeforeEach(func() {
		root = hostroot.New(GinkgoT())
		for _, unit := range []string{"a.service", "m.service", "z.service"} {
			writeUnit(root, unit, service+install)
		}
	})
	bad := map[string]string{
		"Also":            service + install + "Also=other\n",
		"the section":     "[Service\nExecStart=/bin/true\n" + install,
		"WantedBy":        service + "[Install]\nWantedBy=multi-user\n",
		"Alias":           service + "[Install]\nAlias=other.socket\n",
		"DefaultInstance": service + install + "DefaultInstance=a/b\n",
	}
	entries := func() (entries []TableEntry) {
		for what, contents := range bad {
			entries = append(entries, Entry(what, contents))
		}
		return entries
	}()
	apply := func(operations ...update.Operation) error {
		GinkgoHelper()
		return applyAll(enablement(root), GinkgoT().Context(), operations)
	}

	DescribeTable("keeps no other unit as it is, and is undone", func(contents string) {
		name := "m.service"
		before := files(root)
		operations := []update.Operation{
			change("a.service", update.Preset, update.Enabled), change(name, update.Preset, update.Enabled), change("z.service", update.Preset, update.Enabled),
		}
		Expect(enablement(root).Prepare(GinkgoT().Context(), operations)).To(Succeed())
		writeUnit(root, name, contents)
		err := apply(operations...)
		Expect(files(root)).To(And(HaveKey(wants+"a.service"), HaveKey(wants+"z.service")))
		if err != nil { // a unit without instances ignores DefaultInstance
			Expect(err).To(MatchError(HavePrefix("unit m.service: ")))
		}
		for _, operation := range update.Undo(operations) {
			Expect(apply(operation)).To(Succeed(), operation.String())
		}
		writeUnit(root, name, service+install)
		Expect(files(root)).To(Equal(before))
	}, entries)

	DescribeTable("hides the drift of no other unit", func(contents string) {
		run(root, "systemctl", "--root=/", "enable", "z.service")
		writeUnit(root, "m.service", contents)
		differing, masked, err := enablement(root).Differing(GinkgoT().Context(), map[string]update.Enablement{
			"a.service": update.Enabled, "m.service": update.Enabled, "none.service": update.Enabled, "z.service": update.Disabled,
		})
		Expect(err).NotTo(HaveOccurred())
		Expect(masked).To(BeEmpty())
		Expect(differing).To(ContainElements("a.service", "z.service"))
		Expect(differing).NotTo(ContainElement("none.service"))
	}, entries)

	It("is not enabled, and says so", func() {
		writeUnit(root, "m.service", bad["Also"])
		differing, _, err := enablement(root).Differing(GinkgoT().Context(), map[string]update.Enablement{"m.service": update.Enabled})
		Expect(err).NotTo(HaveOccurred())
		Expect(differing).To(Equal([]string{"m.service"}))
		Expect(command.Detail(apply(change("m.service", update.Disabled, update.Enabled)))).To(And(HavePrefix("unit m.service: "), ContainSubstring("Invalid argument")))
	})

	It("of the image is left as it is when the pool does not configure it any more", func() {
		write(root, "usr/lib/systemd/system/image.service", service+install)
		run(root, "systemctl", "--root=/", "enable", "image.service")
		before := files(root)
		operations := []update.Operation{change("image.service", update.Preset, update.Enabled)}
		Expect(enablement(root).Prepare(GinkgoT().Context(), operations)).To(Succeed())
		writeUnit(root, "image.service", bad["Also"])
		Expect(apply(operations...)).NotTo(Succeed())
		Expect(apply(update.Undo(operations)...)).To(Succeed())
		Expect(os.Remove(filepath.Join(root, "etc/systemd/system/image.service"))).To(Succeed())
		Expect(files(root)).To(Equal(before))
	})

	It("is disabled when its file was broken by hand", func() {
		run(root, "systemctl", "--root=/", "enable", "m.service")
		writeUnit(root, "m.service", bad["Also"])
		Expect(apply(change("m.service", update.Enabled, update.Disabled))).To(Succeed())
		Expect(files(root)).NotTo(HaveKey(wants + "m.service"))
	})

	It("such as a link to itself does not keep others from being disabled", func() {
		run(root, "systemctl", "--root=/", "enable", "a.service")
		Expect(os.Symlink("loop.service", filepath.Join(root, "etc/systemd/system/loop.service"))).To(Succeed())
		Expect(apply(change("a.service", update.Enabled, update.Disabled))).To(Succeed())
		Expect(files(root)).NotTo(HaveKey(wants + "a.service"))
	})
})
