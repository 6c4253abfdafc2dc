package systemd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// BootEntryProgram is the program of an image that prints what its boot loader boots next: the lines linux, initrd and
// options of an entry of the Boot Loader Specification, with the paths of the running host.
const BootEntryProgram = "/usr/libexec/poolboot/boot-entry"

// bootEntry is what a boot loader boots.
type bootEntry struct{ linux, initrd, options string }

// Reboot requests a reboot: services are stopped first. It returns when the request is accepted. An error means that
// the host does not reboot by this method.
func (m Manager) Reboot(ctx context.Context, method update.RebootMethod) error {
	verb := "reboot"
	switch method {
	case update.FullReboot:
	case update.SoftReboot:
		if m.Lacks(method) {
			version, _ := m.Runner.Run(ctx, systemctl, "--version")
			line, _, _ := strings.Cut(string(version), " (")
			return fmt.Errorf("a soft reboot needs systemd 254, and the host has %s", cmp.Or(strings.TrimSpace(line), "an earlier one"))
		}
		verb = "soft-reboot"
	case update.Kexec:
		verb = "kexec"
		if err := m.loadKernel(ctx); err != nil {
			return err
		}
	default:
		return fmt.Errorf("this agent knows no reboot method %s", method)
	}
	_, err := m.Runner.Run(ctx, systemctl, "--no-wall", "--no-block", "--check-inhibitors=no", verb)
	if err != nil && method == update.Kexec {
		_ = unix.KexecFileLoad(-1, -1, "", unix.KEXEC_FILE_UNLOAD) // newer versions of systemctl reboot would start it
	}
	return err
}

// Lacks reports whether the host can't reboot by a method, as far as that is known without a try: no program says which
// kernel boots next, the kernel starts no other one, or systemd knows no soft reboot.
func (m Manager) Lacks(method update.RebootMethod) bool {
	read := func(name string) ([]byte, error) { return os.ReadFile(filepath.Join("/", m.Runner.Root, name)) }
	switch method {
	case update.Kexec:
		_, err := read(BootEntryProgram)
		disabled, kernelErr := read("/proc/sys/kernel/kexec_load_disabled")
		return err != nil || kernelErr != nil || strings.TrimSpace(string(disabled)) != "0"
	case update.SoftReboot:
		_, err := read("/lib/systemd/system/soft-reboot.target")
		return err != nil
	}
	return false
}

// Started returns the uptime at which systemd began to start the system: another one after each soft reboot.
func (m Manager) Started(ctx context.Context) (time.Duration, error) {
	const unit, property = "sysinit.target", "ActiveEnterTimestampMonotonic"
	shown, err := m.show(ctx, []string{unit}, property)
	if err != nil {
		return 0, err
	}
	if len(shown) == 0 || shown[0].number(property) <= 0 {
		return 0, errors.New("systemd does not say when it started " + unit)
	}
	return time.Duration(shown[0].number(property)) * time.Microsecond, nil
}

// loadKernel loads what the boot loader would boot next. With secure boot, the kernel accepts only one with a
// signature that it trusts.
func (m Manager) loadKernel(ctx context.Context) error {
	output, err := m.Runner.Run(ctx, BootEntryProgram)
	if err != nil {
		return fmt.Errorf("the kernel that boots next is not known: %w", err)
	}
	entry, err := parseBootEntry(string(output))
	if err != nil {
		return fmt.Errorf("the kernel that boots next is not known: %s: %w", BootEntryProgram, err)
	}
	kernel, err := os.Open(filepath.Join("/", m.Runner.Root, entry.linux))
	if err != nil {
		return err
	}
	defer kernel.Close()
	initrd, err := os.Open(filepath.Join("/", m.Runner.Root, entry.initrd))
	if err != nil {
		return err
	}
	defer initrd.Close()
	if err := unix.KexecFileLoad(int(kernel.Fd()), int(initrd.Fd()), entry.options, 0); err != nil {
		return fmt.Errorf("the running kernel refuses to load %s: %w", entry.linux, err)
	}
	return nil
}

// parseBootEntry reads an entry that has each of its lines once.
func parseBootEntry(text string) (entry bootEntry, _ error) {
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		field := map[string]*string{"linux": &entry.linux, "initrd": &entry.initrd, "options": &entry.options}[key]
		switch value = strings.TrimSpace(value); {
		case field == nil:
		case *field != "":
			return entry, fmt.Errorf("it has two lines %s", key)
		case key != "options" && !filepath.IsAbs(value):
			return entry, fmt.Errorf("the line %s has no absolute path", key)
		default:
			*field = value
		}
	}
	if entry.linux == "" || entry.initrd == "" || entry.options == "" {
		return entry, errors.New("it has not all of the lines linux, initrd and options")
	}
	return entry, nil
}
