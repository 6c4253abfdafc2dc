package systemd_test

import (
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/hostroot"
)

var _ = Describe("Units that are changed by hand", func() {
	var root string
	wanted := map[string]update.Enablement{
		"a.service": update.Enabled, "b.service": update.Disabled, "c.service": update.Preset, "static.service": update.Enabled,
		"missing.service": update.Enabled, "t@1.service": update.Enabled,
	}
	BeforeEach(func() {
		root = hostroot.New(GinkgoT())
		for _, unit := range []string{"a.service", "b.service", "t@.service"} {
			writeUnit(root, unit, service+install)
		}
		write(root, "usr/lib/systemd/system/c.service", service+install)
		write(root, "usr/lib/systemd/system/osmasked.service", "")
		writeUnit(root, "static.service", service)
		run(root, "systemctl", "--root=/", "enable", "a.service", "t@1.service")
	})
	differ := func(links ...string) (differing, masked []string) {
		GinkgoHelper()
		differing, masked, err := enablement(root, links...).Differing(GinkgoT().Context(), wanted)
		Expect(err).NotTo(HaveOccurred())
		return differing, masked
	}

	It("do not differ before, nor do those that can't be enabled", func() {
		differing, masked := differ()
		Expect(differing).To(BeEmpty())
		Expect(masked).To(BeEmpty())
	})

	It("differ if they were enabled or disabled, until they are as before", func() {
		run(root, "systemctl", "--root=/", "disable", "a.service", "t@1.service")
		run(root, "systemctl", "--root=/", "enable", "b.service", "c.service")
		differing, masked := differ()
		Expect(differing).To(Equal([]string{"a.service", "b.service", "t@1.service"}))
		Expect(masked).To(BeEmpty())
		Expect(applyAll(enablement(root), GinkgoT().Context(), []update.Operation{
			change("a.service", update.Enabled, update.Enabled), change("b.service", update.Disabled, update.Disabled), change("t@1.service", update.Enabled, update.Enabled),
		})).To(Succeed())
		differing, _ = differ()
		Expect(differing).To(BeEmpty())
	})

	It("differ if they were masked, also for this boot only, and whether they should be enabled or not", func() {
		run(root, "systemctl", "--root=/", "mask", "c.service")
		Expect(os.MkdirAll(filepath.Join(root, "run/systemd/system"), 0o755)).To(Succeed())
		Expect(os.Symlink("/dev/null", filepath.Join(root, "run/systemd/system/b.service"))).To(Succeed())
		differing, masked := differ()
		Expect(differing).To(BeEmpty())
		Expect(masked).To(Equal([]string{"b.service", "c.service"}))
	})

	It("do not differ by links of the configuration, whether these mask or enable a unit", func() {
		run(root, "systemctl", "--root=/", "mask", "c.service")
		run(root, "systemctl", "--root=/", "enable", "b.service")
		differing, masked := differ("/etc/systemd/system/c.service", "/dev/null", "/etc/systemd/system/"+wants+"b.service", "../b.service")
		Expect(differing).To(BeEmpty())
		Expect(masked).To(BeEmpty())
	})
})
