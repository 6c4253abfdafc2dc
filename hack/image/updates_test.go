package image

import (
	"errors"
	"os"
	"os/exec"
	"testing"
)

// prepareUpdates runs the function of updates.sh for the directory root.
func (i *initramfs) prepareUpdates(files string) (string, error) {
	i.t.Helper()
	if _, err := os.Stat("updates.sh"); err != nil { // go test also records that the result depends on this file
		i.t.Fatal(err)
	}
	command := exec.Command("bash", "-euc", `fail() { echo "$1" >&2; exit 1; }; . ./updates.sh; prepare_updates "$1" "$2"`, "-", i.path("root"), files)
	command.Env = i.environment
	output, err := command.CombinedOutput()
	return string(output), err
}

func TestImageThatCanBeUpdated(t *testing.T) {
	i := newInitramfs(t)
	i.write("root/etc/systemd/system.conf", "of the image\n")
	i.write("root/usr/sbin/init", "")
	i.write("root/usr/etc/old", "of an older build\n")
	i.write("package/cmdline", "of a package\n")
	if err := errors.Join(os.MkdirAll(i.path("root/usr/lib/kernel"), 0o755), os.Link(i.path("package/cmdline"), i.path("root/usr/lib/kernel/cmdline"))); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/run/resolv.conf", i.path("root/etc/resolv.conf")); err != nil {
		t.Fatal(err)
	}
	if output, err := i.prepareUpdates("."); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	i.write("root/etc/systemd/system.conf", "of a configuration\n")
	if got := i.read("root/usr/etc/systemd/system.conf"); got != "of the image\n" {
		t.Errorf("the copy is %q", got)
	}
	if target, err := os.Readlink(i.path("root/usr/etc/resolv.conf")); target != "/run/resolv.conf" {
		t.Error(target, err)
	}
	if i.exists("root/usr/etc/old") || i.exists("root/usr/etc/etc") {
		t.Error("the copy has what is not in /etc")
	}
	if found, err := os.Stat(i.path("root/usr/sbin/ignition-kargs-helper")); err != nil || found.Mode() != 0o755 {
		t.Error(found, err)
	}
	if got := i.read("package/cmdline"); got != "of a package\n" {
		t.Errorf("the root file system, which has the same file, has %q", got)
	}
	if got, want := i.read("root/usr/lib/kernel/cmdline"), "console=tty0 console=ttyS0,115200\n"; got != want {
		t.Errorf("the arguments of the image are %q, not %q", got, want)
	}
}

func TestImageWithoutArguments(t *testing.T) {
	i := newInitramfs(t)
	i.write("root/etc/hosts", "")
	i.write("root/usr/sbin/init", "")
	i.write("files/grub/kernel-arguments.cfg", "menuentry\n")
	i.write("files/dracut/31poolboot-grub/ignition-kargs-helper.sh", "")
	if output, err := i.prepareUpdates(i.path("files")); err == nil || output != "grub/kernel-arguments.cfg has no line set kernel_arguments='...'\n" {
		t.Errorf("%v: %s", err, output)
	}
}
