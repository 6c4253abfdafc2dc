package image

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// newBuild returns a workshop in which builds succeed. Every image that they write is another one.
func newBuild(t *testing.T) workshop {
	t.Helper()
	needsBookworm(t)
	w := newWorkshop(t)
	w.program("apt-config", "exit 0")
	w.program("mmdebstrap", `for option; do case $option in
	--include=*) echo "$option" >>"$CALLS" ;;
	*/root-*) root=$option ;;
	esac; done
`+w.blocks("mmdebstrap")+`
mkdir -p "$root"/{boot,dev,etc/ssh,etc/systemd/system,lib/modules/6.1,opt,sbin,tmp,usr/{bin,sbin},usr/lib/dracut/modules.d,usr/lib/grub/i386-pc,var/lib/dbus,var/log}
: >"$root/boot/vmlinuz-6.1"
printf '#!/bin/sh\necho "setfiles $*" >>"$CALLS"\n' >"$root/sbin/setfiles"
chmod +x "$root/sbin/setfiles"
head -c 512 /dev/zero >"$root/usr/lib/grub/i386-pc/boot.img"`)
	// As the real one: it ignores SIGTERM.
	w.program("unshare", `trap '' INT TERM
while [[ $1 == --* ]]; do shift; done
[ "$1" = bash ] || { "$@"; exit; }
echo "dracut $7" >>"$CALLS"
: >"$5/boot/initramfs"`)
	w.program("go", `case $* in *" list "*) echo "$MODULE" ;; esac`)
	for _, program := range []string{"mke2fs", "sfdisk", "mformat", "mmd", "mcopy"} {
		w.program(program, "exit 0")
	}
	w.program("chroot", `: >"$1/tmp/core.img"`)
	w.program("qemu-img", `for file; do :; done
mktemp -u >"$file"
`+w.blocks("qemu-img"))
	for _, file := range []string{"kubelet", "kubeadm", "pause.tar", "containerd/containerd", "cni/bridge", "ignition", "ignition-selinux", "network-data"} {
		w.write("programs/"+file, file)
	}
	for _, file := range []string{"module-setup.sh", "ignition-generator", "x.sh"} {
		w.write("module/dracut/30ignition/"+file, "")
	}
	w.environment = append(w.environment, "MODULE="+w.path("module"), "PROGRAMS="+w.path("programs"))
	return w
}

// blocks returns commands of a program that wait for ever if there is a pipe with the name of the program. The program
// keeps the pipe open.
func (w workshop) blocks(program string) string {
	pipe := w.path(program + ".pipe")
	return `if [ -p "` + pipe + `" ]; then exec 3>"` + pipe + `"; echo started >&3; sleep 600; fi`
}

// build builds an image and returns it.
func (w workshop) build(name string, variables ...string) string {
	w.t.Helper()
	if output, err := w.command("build", w.path("out/"+name), variables...).CombinedOutput(); err != nil {
		w.t.Fatalf("%v: %s", err, output)
	}
	return w.read("out/" + name)
}

// installed returns the packages of the root file systems that were built.
func (w workshop) installed() (packages []string) {
	for line := range strings.Lines(w.read("calls")) {
		if list, is := strings.CutPrefix(strings.TrimSpace(line), "--include="); is {
			packages = append(packages, ","+list+",")
		}
	}
	return packages
}

func TestRebuildWithoutChangesWritesNothing(t *testing.T) {
	w := newBuild(t)
	first := w.build("image")
	calls := w.read("calls")
	if w.build("image") != first || w.read("calls") != calls {
		t.Error("the image was built again")
	}
	w.write("programs/kubelet", "another one")
	if w.build("image") == first || w.read("calls") != calls {
		t.Error("want another image with the same root file system and initramfs")
	}
}

func TestKernelsDoNotReplaceEachOther(t *testing.T) {
	w := newBuild(t)
	virtual := w.build("virtual")
	hardware := w.build("hardware", "KERNEL=linux-image-amd64")
	if w.build("virtual") != virtual || w.build("hardware", "KERNEL=linux-image-amd64") != hardware {
		t.Error("an image was built again")
	}
	installed := w.installed()
	if len(installed) != 2 || !strings.Contains(installed[0], ",linux-image-cloud-amd64,") || !strings.Contains(installed[1], ",linux-image-amd64,") {
		t.Errorf("installed: %s", installed)
	}
	for _, packages := range installed {
		if strings.Count(packages, "linux-image-") != 1 {
			t.Errorf("dracut and GRUB need one kernel: %s", packages)
		}
	}
}

func TestProgramsOfAnotherArchitectureRunInAnEmulator(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	w := newBuild(t)
	unshare := w.read("bin/unshare")
	w.program("unshare", `if [ "$1" = --user ]; then exec /usr/bin/unshare --user bash -c 'echo && read -r && echo && read -r'; fi`+"\n"+unshare)
	w.program("nsenter", `echo "emulate $(cat "/proc/$(cut -d / -f 3 <<<"$1")/uid_map" | xargs) $2" >>"$CALLS"`+"\nshift\n"+`"$@"`)
	w.program("mcopy", `echo "mcopy $*" >>"$CALLS"`)
	w.write("module/dracut/30ignition/module-setup.sh", "instmods -c mlxbf_bootctl\n")
	w.build("image", "KERNEL=linux-image-arm64")
	installed := w.installed()
	if len(installed) != 1 || !strings.Contains(installed[0], ",grub-efi-arm64-signed,") || strings.Contains(installed[0], "amd64") {
		t.Errorf("installed: %s", installed)
	}
	calls := w.read("calls")
	if strings.Count(calls, "emulate 0 0 4294967295 unshare\n") != 2 || !strings.Contains(calls, "::/EFI/BOOT/BOOTAA64.EFI\n") {
		t.Errorf("want mmdebstrap and dracut to run in the emulator, and the boot loader of arm64: %s", calls)
	}
	if setup := w.read("machine/root-linux-image-arm64/usr/lib/dracut/modules.d/30ignition/module-setup.sh"); setup != "instmods mlxbf_bootctl\n" {
		t.Errorf("want dracut to go on without a module that the kernel lacks: %s", setup)
	}
}

// The names of the files are those of the Makefile, but IMAGE can be any.
func TestImageOfAnotherKernelIsReplaced(t *testing.T) {
	w := newBuild(t)
	w.build("image")
	hardware := w.build("image", "KERNEL=linux-image-amd64")
	if w.build("image") == hardware {
		t.Error("the image is still that of the other kernel")
	}
}

func TestPackagesAreInstalled(t *testing.T) {
	w := newBuild(t)
	w.build("image")
	first := w.build("image", "PACKAGES=sudo firmware-linux")
	if w.build("image", "PACKAGES= firmware-linux  sudo sudo") != first {
		t.Error("the order of the packages matters")
	}
	if w.build("image", "PACKAGES=sudo") == first {
		t.Error("the image has the packages of the last build")
	}
	installed := w.installed()
	if len(installed) != 3 || strings.Contains(installed[0], ",sudo,") ||
		!strings.Contains(installed[1], ",sudo,") || !strings.Contains(installed[1], ",firmware-linux,") ||
		!strings.Contains(installed[2], ",sudo,") || strings.Contains(installed[2], ",firmware-linux,") {
		t.Errorf("installed: %s", installed)
	}
}

func TestSELinux(t *testing.T) {
	w := newBuild(t)
	// The files of the boot partition when they are complete.
	w.program("mke2fs", `while [ "$1" != -d ]; do shift; done
[ "${2##*/}" != boot ] || cp -r "$2" "`+w.path("boot")+`"`)
	plain := w.build("image")
	if calls := w.read("calls"); strings.Contains(calls, "setfiles") {
		t.Errorf("an image without a policy has labels: %s", calls)
	}
	if err := os.RemoveAll(w.path("boot")); err != nil {
		t.Fatal(err)
	}
	w.build("selinux", "SELINUX=1")
	calls := w.read("calls")
	for _, want := range []string{",selinux-policy-default,", "/tree\n", "/boot\n"} {
		if !strings.Contains(calls, want) {
			t.Errorf("want %q: %s", want, calls)
		}
	}
	if got := w.read("boot/kernel-arguments.cfg"); !strings.HasSuffix(got, " security=selinux'\n") {
		t.Errorf("the kernel arguments are %s", got)
	}
	if w.build("image") != plain {
		t.Error("the image without a policy was built again")
	}
}

// The firmware starts shim, shim starts the GRUB beside it, and that has the prefix /EFI/debian.
func TestBootLoaderForUEFI(t *testing.T) {
	w := newBuild(t)
	w.program("mcopy", `[ "$3" != - ] || cat >"`+w.path("grub.cfg")+`"
echo "${3##*/} $4" >>"$CALLS"`)
	w.build("image")
	for _, file := range []string{"shimx64.efi.signed ::/EFI/BOOT/BOOTX64.EFI\n", "grubx64.efi.signed ::/EFI/BOOT/grubx64.efi\n", "- ::/EFI/debian/grub.cfg\n"} {
		if calls := w.read("calls"); !strings.Contains(calls, file) {
			t.Errorf("want %s: %s", file, calls)
		}
	}
	if config := w.read("grub.cfg"); !strings.Contains(config, "search --no-floppy --label boot ") || !strings.Contains(config, "configfile $prefix/grub.cfg\n") {
		t.Errorf("grub.cfg: %s", config)
	}
}

func TestFilesThatDoNotFit(t *testing.T) {
	for folder, message := range map[string]string{
		"tree": "The files of the image take 3000 MiB, and the partition root has 3072 MiB. What to do: set ROOT_SIZE to a larger number of MiB\n",
		"boot": "The files of the image take 3000 MiB, and the partition boot has 256 MiB. What to do: set PACKAGES without some of the firmware",
	} {
		w := newBuild(t)
		w.program("du", `[ "${2##*/}" != `+folder+` ] || { echo "3000	$2"; exit; }; echo "1	$2"`)
		if output, err := w.image("build"); err == nil || !strings.Contains(output, message) || w.exists("out/image.qcow2") {
			t.Errorf("%v: %s", err, output)
		}
	}
}

func TestInterruptedBuildEndsAndContinues(t *testing.T) {
	// If the tests run in the background, SIGINT can be ignored, and the build would inherit that.
	heard := make(chan os.Signal, 1)
	signal.Notify(heard, os.Interrupt)
	t.Cleanup(func() { signal.Stop(heard) })
	for program, roots := range map[string]int{"mmdebstrap": 3, "qemu-img": 2} {
		for code, interrupt := range map[int]syscall.Signal{130: syscall.SIGINT, 143: syscall.SIGTERM} {
			t.Run(program+" "+interrupt.String(), func(t *testing.T) {
				w := newBuild(t)
				before := w.build("image")
				pipe := w.path(program + ".pipe")
				if err := syscall.Mkfifo(pipe, 0o600); err != nil {
					t.Fatal(err)
				}
				output, err := w.interrupt(w.command("build", w.path("out/image"), "PACKAGES=sudo"), pipe, interrupt)
				if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.ExitCode() != code {
					t.Errorf("%v, want %d", err, code)
				}
				if !strings.Contains(output, "The build was interrupted. "+w.path("out/image")+" is as it was before.") || strings.Contains(output, "Killed") {
					t.Errorf("output: %s", output)
				}
				if left, _ := filepath.Glob(w.path("out/*")); len(left) != 2 || w.read("out/image") != before {
					t.Errorf("left: %v", left)
				}
				if err := os.Remove(pipe); err != nil {
					t.Fatal(err)
				}
				if w.build("image", "PACKAGES=sudo") == before {
					t.Error("the image has not the packages")
				}
				if installed := w.installed(); len(installed) != roots {
					t.Errorf("finished steps were repeated: %s", installed)
				}
			})
		}
	}
}

// interrupt runs a command, sends it a signal when a program has written to the pipe, and waits until both have ended.
func (w workshop) interrupt(command *exec.Cmd, pipe string, interrupt syscall.Signal) (string, error) {
	w.t.Helper()
	output := new(strings.Builder)
	command.Stdout, command.Stderr = output, output
	command.WaitDelay = 10 * time.Second
	if err := command.Start(); err != nil {
		w.t.Fatal(err)
	}
	open, err := os.OpenFile(pipe, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	defer open.Close()
	if !eventually(func() bool { read, _ := open.Read(make([]byte, 64)); return read > 0 }) {
		w.t.Errorf("the program has not started")
	}
	if err := command.Process.Signal(interrupt); err != nil {
		w.t.Fatal(err)
	}
	// A build that does not end must not block the tests.
	kill := time.AfterFunc(20*time.Second, func() { _ = command.Process.Kill() })
	defer kill.Stop()
	err = command.Wait()
	// Only when the program has ended, the pipe has no writer.
	if err := open.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		w.t.Fatal(err)
	}
	if _, err := open.Read(make([]byte, 64)); !errors.Is(err, io.EOF) {
		w.t.Errorf("the program has not ended: %v", err)
	}
	return output.String(), err
}

// eventually reports whether a condition became true within ten seconds.
func eventually(condition func() bool) bool {
	for start := time.Now(); time.Since(start) < 10*time.Second; time.Sleep(10 * time.Millisecond) {
		if condition() {
			return true
		}
	}
	return false
}
