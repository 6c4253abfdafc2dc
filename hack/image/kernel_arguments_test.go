package image

import (
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

// kernelArguments returns an initramfs on a host with these kernel arguments.
func kernelArguments(t *testing.T, current string) *initramfs {
	i := newInitramfs(t)
	i.write("media/kernel-arguments.cfg", "set kernel_arguments='"+current+"'\n")
	i.environment = append(i.environment, "BOOT_DEVICE=/dev/boot", "KARGS_CHANGED="+i.path("changed"))
	return i
}
