package image

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const bootEntry = "files/usr/libexec/poolboot/boot-entry"

// runBootEntry runs the program with the configuration of GRUB in the image, and these kernel arguments.
func runBootEntry(t *testing.T, arguments string, files map[string]string) (string, error) {
	t.Helper()
	i := newInitramfs(t)
	grub, err := os.ReadFile("grub/grub.cfg")
	if err != nil {
		t.Fatal(err)
	}
	i.write("boot/grub/grub.cfg", string(grub))
	i.write("boot/kernel-arguments.cfg", "set kernel_arguments='"+arguments+"'\n")
	for name, text := range files {
		i.write(name, text)
	}
	command := exec.Command("sh", bootEntry)
	command.Env = append(slices.Clone(i.environment), "BOOT_DIRECTORY="+i.path("boot"))
	output, err := command.CombinedOutput()
	return string(output), err
}

func TestBootEntryIsWhatGRUBBoots(t *testing.T) {
	const arguments = "console=ttyS0,115200 a=$HOME&|;`id` b"
	got, err := runBootEntry(t, arguments, nil)
	boot := ""
	if _, scanErr := fmt.Sscanf(got, "linux %s", &boot); err != nil || scanErr != nil {
		t.Fatalf("%v: %s", err, got)
	}
	boot = strings.TrimSuffix(boot, "/vmlinuz")
	if want := "linux " + boot + "/vmlinuz\noptions root=LABEL=root ro ignition.platform.id=openstack " + arguments + "\ninitrd " + boot + "/initramfs\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A boot that runs Ignition must not be skipped, and nothing must boot without arguments that are written otherwise.
func TestNoBootEntry(t *testing.T) {
	for why, files := range map[string]map[string]string{
		"the first boot is not complete": {"boot/ignition.firstboot": ""},
		"does not end with $firstboot":   {"boot/grub/grub.cfg": "linux /vmlinuz root=LABEL=root $kernel_arguments quiet\ninitrd /initramfs\n"},
	} {
		if output, err := runBootEntry(t, "quiet", files); err == nil || !strings.Contains(output, why) {
			t.Errorf("%s: %v: %s", why, err, output)
		}
	}
}
