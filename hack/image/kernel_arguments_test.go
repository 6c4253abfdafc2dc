package image

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

const helper = "31poolboot-grub/ignition-kargs-helper.sh"

func TestKernelArgumentsAreChanged(t *testing.T) {
	for name, c := range map[string]struct {
		current   string
		arguments []string
		expected  string
	}{
		"added":                              {"quiet", []string{"--should-exist", "a=b", "--should-exist", "c"}, "quiet a=b c"},
		"removed":                            {"quiet a=b c", []string{"--should-not-exist", "a=b"}, "quiet c"},
		"removed wherever they are":          {"a b a a c a", []string{"--should-not-exist", "a"}, "b c"},
		"replaced":                           {"mitigations=auto quiet", []string{"--should-exist", "mitigations=off", "--should-not-exist", "mitigations=auto"}, "quiet mitigations=off"},
		"only whole arguments":               {"console=ttyS0,115200", []string{"--should-not-exist", "console=ttyS0", "--should-exist", "console=ttyS0,9600"}, "console=ttyS0,115200 console=ttyS0,9600"},
		"with characters that a shell reads": {"a", []string{"--should-exist", "b=$HOME;`id`*?[x]&|"}, "a b=$HOME;`id`*?[x]&|"},
		"removed, all":                       {"a b", []string{"--should-not-exist", "a", "--should-not-exist", "b"}, ""},
		"added where there were none":        {"", []string{"--should-exist", "a"}, "a"},
		"several in one entry":               {"a", []string{"--should-exist", "b c"}, "a b c"},
	} {
		t.Run(name, func(t *testing.T) {
			i := kernelArguments(t, c.current)
			if output, err := i.run(helper, c.arguments...); err != nil {
				t.Fatalf("%v: %s", err, output)
			}
			if got, want := i.read("media/kernel-arguments.cfg"), "set kernel_arguments='"+c.expected+"'\n"; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			if !i.exists("changed") {
				t.Error("the host does not reboot")
			}
		})
	}
}

func TestNoRebootWithoutChange(t *testing.T) {
	for current, arguments := range map[string][]string{
		"quiet a=b": {"--should-exist", "a=b", "--should-not-exist", "c"},
		"":          {"--should-not-exist", "c"},
	} {
		i := kernelArguments(t, current)
		if output, err := i.run(helper, arguments...); err != nil {
			t.Fatalf("%v: %s", err, output)
		}
		if i.exists("changed") {
			t.Error("the host reboots for ever")
		}
	}
}

func TestKernelArgumentsThatGRUBCannotPass(t *testing.T) {
	for name, argument := range map[string]string{"empty": "", "single quote": "a='b", "double quote": `a="b c"`, "backslash": `a\b`, "newline": "a\nset root=x"} {
		t.Run(name, func(t *testing.T) {
			i := kernelArguments(t, "quiet")
			output, err := i.run(helper, "--should-exist", "fine", "--should-exist", argument)
			if err == nil || !strings.Contains(output, "GRUB cannot pass the kernel argument "+argument) {
				t.Errorf("%v: %s", err, output)
			}
			if i.exists("changed") || i.read("media/kernel-arguments.cfg") != "set kernel_arguments='quiet'\n" {
				t.Error("it was changed")
			}
		})
	}
}

func TestImageWithoutKernelArguments(t *testing.T) {
	i := kernelArguments(t, "quiet")
	i.write("media/kernel-arguments.cfg", "")
	if output, err := i.run(helper, "--should-exist", "a"); err == nil || !strings.Contains(output, "has no line set kernel_arguments='...'. Write the image again") {
		t.Errorf("%v: %s", err, output)
	}
}

// On a running host, the file system is mounted at /boot. It must not be mounted again, and GRUB does not read what is
// only in its journal.
func TestKernelArgumentsOfARunningHost(t *testing.T) {
	i := kernelArguments(t, "quiet")
	i.write("boot/kernel-arguments.cfg", "set kernel_arguments='quiet'\n")
	i.write("mounts", "/dev/vda3 / ext4 rw 0 0\n/dev/vda2 "+i.path("boot")+" ext4 ro,nosuid 0 0\n")
	i.program("mount", `echo "$* $(cat "$BOOT_DIRECTORY/kernel-arguments.cfg")" >>"$CALLS"`)
	i.environment = append(i.environment, "BOOT_DIRECTORY="+i.path("boot"), "MOUNTS="+i.path("mounts"))
	for range 2 { // the second time, there is nothing to do
		if output, err := i.run(helper, "--should-exist", "a", "--should-not-exist", "quiet"); err != nil {
			t.Fatalf("%v: %s", err, output)
		}
		if got, want := i.read("calls"), "-o remount,rw "+i.path("boot")+" set kernel_arguments='quiet'\n-o remount,ro "+i.path("boot")+" set kernel_arguments='a'\n"; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if i.read("media/kernel-arguments.cfg") != "set kernel_arguments='quiet'\n" {
		t.Error("it was mounted again")
	}
}

// GRUB reads the file system without its journal, as debugfs does.
func TestKernelArgumentsInARealFileSystem(t *testing.T) {
	i := newInitramfs(t)
	i.write("files/kernel-arguments.cfg", "set kernel_arguments='quiet'\n")
	shell := func(script string) string {
		command := exec.Command("/bin/sh", "-euc", script, "-", i.dir)
		output, err := command.CombinedOutput()
		if err != nil {
			t.Skipf("this machine can't mount file systems: %v: %s", err, output)
		}
		return strings.TrimSpace(string(output))
	}
	device := shell(`truncate -s 32M "$1/disk"; mkdir "$1/boot"; /sbin/mke2fs -q -t ext4 -d "$1/files" "$1/disk"; /sbin/losetup --find --show "$1/disk"`)
	t.Cleanup(func() { _ = exec.Command("/sbin/losetup", "--detach", device).Run() })
	shell("mount -o ro,nosuid " + device + ` "$1/boot"`)
	t.Cleanup(func() { _ = exec.Command("umount", i.path("boot")).Run() })
	i.environment = append(os.Environ(), "TMPDIR="+i.path("tmp"), "BOOT_DIRECTORY="+i.path("boot"), "KARGS_CHANGED="+i.path("changed"))
	if output, err := i.run(helper, "--should-exist", "a", "--should-not-exist", "quiet"); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	if got := shell("/sbin/debugfs -R 'cat kernel-arguments.cfg' " + device + " 2>/dev/null"); got != "set kernel_arguments='a'" {
		t.Errorf("on the disk is %q", got)
	}
	if got := shell(`grep " $1/boot " /proc/mounts`); !strings.Contains(got, " ext4 ro,nosuid") {
		t.Errorf("it is mounted as %q", got)
	}
	if got := shell("/sbin/dumpe2fs -h " + device + " 2>/dev/null"); strings.Contains(got, "needs_recovery") {
		t.Error("the journal is not empty")
	}
}

func TestFileSystemThatCannotBeWritten(t *testing.T) {
	i := kernelArguments(t, "quiet")
	i.write("boot/kernel-arguments.cfg", "set kernel_arguments='quiet'\n")
	i.write("mounts", "/dev/vda2 "+i.path("boot")+" ext4 ro,nosuid 0 0\n")
	i.program("mount", `echo "mount: cannot remount read-write" >&2; exit 32`)
	i.environment = append(i.environment, "BOOT_DIRECTORY="+i.path("boot"), "MOUNTS="+i.path("mounts"))
	if output, err := i.run(helper, "--should-exist", "a"); err == nil || !strings.Contains(output, "cannot remount") {
		t.Errorf("%v: %s", err, output)
	}
	if i.read("boot/kernel-arguments.cfg") != "set kernel_arguments='quiet'\n" || i.exists("changed") {
		t.Error("it was changed")
	}
}

// kernelArguments returns an initramfs on a host with these kernel arguments.
func kernelArguments(t *testing.T, current string) *initramfs {
	i := newInitramfs(t)
	i.write("media/kernel-arguments.cfg", "set kernel_arguments='"+current+"'\n")
	i.environment = append(i.environment, "BOOT_DEVICE=/dev/boot", "KARGS_CHANGED="+i.path("changed"))
	return i
}
