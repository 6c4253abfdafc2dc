package update

import (
	"cmp"
	"slices"
	"strings"
)

// RebootMethod is how a host reboots for an update.
type RebootMethod string

const (
	// FullReboot goes through the firmware and the boot loader. It is empty so that assignments stay as they were.
	FullReboot RebootMethod = ""
	// Kexec starts the kernel that would boot next, without the firmware and the boot loader.
	Kexec RebootMethod = "Kexec"
	// SoftReboot restarts everything but the kernel.
	SoftReboot RebootMethod = "SoftReboot"
)

// kernelPaths are files and directories from which the kernel, its modules, devices and network get settings that only
// a boot resets.
var kernelPaths = []string{
	"/etc/NetworkManager/", "/etc/binfmt.d/", "/etc/crypttab", "/etc/fstab", "/etc/modprobe.d/", "/etc/modules", "/etc/modules-load.d/", "/etc/network/",
	"/etc/selinux/", "/etc/sysctl.conf", "/etc/sysctl.d/", "/etc/systemd/network/", "/etc/tmpfiles.d/", "/etc/udev/",
}

// WhyFullReboot returns why a host can't reboot by a method after the operations of the plan, "" if it can.
func (p *Plan) WhyFullReboot(method RebootMethod) string {
	if method == SoftReboot && slices.ContainsFunc(p.Changes, func(c Difference) bool { return c.Kind == KindOSReboot }) {
		return "the operating system needs to boot its kernel"
	}
	for _, operation := range p.Operations {
		switch kind := operation.Kind; {
		case method == FullReboot:
		case kind == ChangeOS:
			return "the operating system changes"
		case method == Kexec:
		case kind == ChangeKernelArguments:
			return "kernel arguments change"
		case kind == ChangePath && slices.ContainsFunc(kernelPaths, func(prefix string) bool {
			return operation.Name == prefix || strings.HasSuffix(prefix, "/") && strings.HasPrefix(operation.Name, prefix)
		}):
			return operation.Name + " changes, which the kernel follows completely only after a boot"
		}
	}
	return ""
}

// String returns the method as in rebootMethod of a pool.
func (m RebootMethod) String() string { return cmp.Or(string(m), "Full") }
