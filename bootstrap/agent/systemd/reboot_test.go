package systemd_test

import (
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/command"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/systemd"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

var _ = DescribeTable("A host lacks a reboot method without what it needs:", func(method update.RebootMethod, lacks bool, files ...string) {
	manager := systemd.Manager{Runner: command.Runner{Root: GinkgoT().TempDir()}}
	for i := 0; i < len(files); i += 2 {
		name := filepath.Join(manager.Runner.Root, files[i])
		Expect(os.MkdirAll(filepath.Dir(name), 0o755)).To(Succeed())
		Expect(os.WriteFile(name, []byte(files[i+1]), 0o600)).To(Succeed())
	}
	Expect(manager.Lacks(method)).To(Equal(lacks))
},
	Entry("kexec", update.Kexec, false, systemd.BootEntryProgram, "", "/proc/sys/kernel/kexec_load_disabled", "0\n"),
	Entry("kexec without boot-entry", update.Kexec, true, "/proc/sys/kernel/kexec_load_disabled", "0\n"),
	Entry("kexec with a kernel without it", update.Kexec, true, systemd.BootEntryProgram, ""),
	Entry("kexec that is disabled", update.Kexec, true, systemd.BootEntryProgram, "", "/proc/sys/kernel/kexec_load_disabled", "1\n"),
	Entry("soft reboot", update.SoftReboot, false, "/lib/systemd/system/soft-reboot.target", ""),
	Entry("soft reboot with systemd 252", update.SoftReboot, true, "/lib/systemd/system/reboot.target", ""),
	Entry("never a full reboot", update.FullReboot, false),
)

var _ = It("A host that knows no soft reboot says so", func(ctx SpecContext) {
	manager := systemd.Manager{Runner: command.Runner{Root: GinkgoT().TempDir()}}
	Expect(manager.Reboot(ctx, update.SoftReboot)).To(MatchError(HavePrefix("a soft reboot needs systemd 254")))
})
