package image

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// workshop is a machine with fake programs that builds images. Its build has no content, but all steps.
type workshop struct{ *initramfs }

// newWorkshop returns a machine that can build images: root on Debian, amd64, apt sources with packages, and space.
func newWorkshop(t *testing.T) workshop {
	w := workshop{newInitramfs(t)}
	for _, file := range []string{"image.sh", "check.sh", "../debian.sh"} {
		if _, err := os.Stat(file); err != nil { // go test also records that the result depends on these files
			t.Fatal(err)
		}
	}
	w.program("id", "echo 0")
	w.program("dpkg", "echo amd64")
	w.program("apt-get", `case $* in *SOURCESENTRY*) echo "Debian /etc/apt/sources.list:1"; echo "Debian Backports /etc/apt/backports.list:1" ;; *) echo "Debian Backports $LISTS" ;; esac`)
	w.program("apt-helper", `cat "$2"`)
	w.program("df", "echo Avail; echo 9999")
	w.write("lists", "Package: linux-image-cloud-amd64\nPackage: linux-image-amd64\nPackage: sudo\nPackage: firmware-linux\n")
	w.environment = append(w.environment, "KERNEL=", "PACKAGES=", "ROOT_SIZE=", "SELINUX=", "LISTS="+w.path("lists"), "APT_HELPER="+w.path("bin/apt-helper"))
	return w
}

// needsBookworm skips a test of what only Debian 12 gets to.
func needsBookworm(t *testing.T) {
	t.Helper()
	if release, err := os.ReadFile("/etc/os-release"); err != nil || !strings.Contains(string(release), "VERSION_CODENAME=bookworm") {
		t.Skip("needs Debian 12")
	}
}

// image runs image.sh in a mode with variables, and returns its output.
func (w workshop) image(mode string, variables ...string) (string, error) {
	command := w.command(mode, w.path("out/image.qcow2"), variables...)
	output, err := command.CombinedOutput()
	return string(output), err
}

func (w workshop) command(mode, image string, variables ...string) *exec.Cmd {
	command := exec.Command("./image.sh", mode, w.path("machine"), image)
	command.Env = append(append([]string{}, w.environment...), variables...)
	return command
}

func TestMachineThatCanBuildAnImage(t *testing.T) {
	needsBookworm(t)
	for _, variables := range [][]string{nil, {"KERNEL=linux-image-amd64"}, {"KERNEL=linux-image-arm64"}, {"PACKAGES= sudo  firmware-linux "}, {"PACKAGES=sudo/bookworm-backports"}, {"ROOT_SIZE=2048"}} {
		w := newWorkshop(t)
		if output, err := w.image("check", variables...); err != nil || output != "" {
			t.Errorf("%v: %v: %s", variables, err, output)
		}
		if w.exists("machine") || w.exists("out") {
			t.Error("the check has created a folder")
		}
	}
}

func TestMachineThatCannotBuildAnImage(t *testing.T) {
	for name, c := range map[string]struct{ program, script, message string }{
		"not root":  {"id", "echo 1000", "Only root can build an image. What to do: run the same command with sudo\n"},
		"not amd64": {"dpkg", "echo arm64", "This machine is not Debian for amd64. What to do: "},
		"no Debian": {"dpkg", "exit 127", "This machine is not Debian for amd64. What to do: "},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorkshop(t)
			w.program(c.program, c.script)
			if output, err := w.image("check"); err == nil || !strings.HasPrefix(output, c.message) {
				t.Errorf("%v: %s", err, output)
			}
		})
	}
}

func TestWrongVariables(t *testing.T) {
	for variable, message := range map[string]string{
		"ROOT_SIZE=abc":              "ROOT_SIZE=abc is not a number of MiB from 2048 to 1048576. What to do: leave ROOT_SIZE out for 3072, or set for example ROOT_SIZE=8192\n",
		"ROOT_SIZE=10":               "ROOT_SIZE=10 is not a number",
		"ROOT_SIZE=-4096":            "ROOT_SIZE=-4096 is not a number",
		"ROOT_SIZE=04096":            "ROOT_SIZE=04096 is not a number",
		"ROOT_SIZE=9999999":          "ROOT_SIZE=9999999 is not a number",
		"ROOT_SIZE=8G":               "ROOT_SIZE=8G is not a number",
		"ROOT_SIZE=a[$(id>&2)]":      "ROOT_SIZE=a[$(id>&2)] is not a number",
		"KERNEL=nonsense":            "KERNEL=nonsense is not the name of a kernel package",
		"KERNEL=linux-image-../x":    "KERNEL=linux-image-../x is not the name of a kernel package",
		"PACKAGES=Sudo":              "PACKAGES: Sudo is not the name of a Debian package",
		"PACKAGES=sudo --x":          "PACKAGES: --x is not the name of a Debian package",
		"PACKAGES=sudo,curl":         "PACKAGES: sudo,curl is not the name of a Debian package. What to do: write names with spaces between them",
		"SELINUX=enforcing":          "SELINUX=enforcing is not 1. What to do: leave SELINUX out, or set SELINUX=1 for an image with Debian's policy\n",
		"PACKAGES=linux-image-amd64": "PACKAGES: linux-image-amd64 is a kernel, and an image has one. What to do: set KERNEL=linux-image-amd64 instead\n",
	} {
		t.Run(variable, func(t *testing.T) {
			for _, mode := range []string{"check", "build"} {
				if output, err := newWorkshop(t).image(mode, variable); err == nil || !strings.HasPrefix(output, message) {
					t.Errorf("%s: %v: %s", mode, err, output)
				}
			}
		})
	}
}

func TestPackagesThatTheSourcesDoNotHave(t *testing.T) {
	needsBookworm(t)
	for variable, message := range map[string]string{
		"KERNEL=linux-image-nonsense": "KERNEL=linux-image-nonsense: the apt sources of this machine have no such package. What to do: leave KERNEL out for virtual machines",
		"PACKAGES=sudo intel-microcode": "PACKAGES: the apt sources of this machine have no package intel-microcode. What to do: correct its name, or add the component that has it to " +
			"/etc/apt/backports.list /etc/apt/sources.list and run apt-get update (firmware and microcode: non-free-firmware)\n",
		"PACKAGES=firmware-linux firmware": "PACKAGES: the apt sources of this machine have no package firmware.", // only a part of a name
	} {
		t.Run(variable, func(t *testing.T) {
			if output, err := newWorkshop(t).image("check", variable); err == nil || !strings.HasPrefix(output, message) {
				t.Errorf("%v: %s", err, output)
			}
		})
	}
}

func TestFoldersThatCannotBeWritten(t *testing.T) {
	needsBookworm(t)
	for name, c := range map[string]struct {
		change  func(workshop)
		message string
	}{
		"OUT is in a file": {func(w workshop) { w.write("out", "") }, "cannot be written: OUT is not a folder, or its file system is read-only. What to do: set OUT to a folder on a file system that root can write\n"},
		// A program instead of a read-only file system, for which the test would have to be root.
		"OUT is read-only":      {func(w workshop) { w.program("mktemp", "exit 1") }, "is not a folder, or its file system is read-only. What to do: set OUT to"},
		"the image is a folder": {func(w workshop) { w.write("out/image.qcow2/x", "") }, "OUT/image.qcow2 is a folder. What to do: set IMAGE to a file, or remove the folder\n"},
		"no space":              {func(w workshop) { w.program("df", "echo Avail; echo ' 99'") }, "MACHINE has 99 MiB of free space, and the build needs 3600 MiB. What to do: free space there, or use a checkout on a larger file system\n"},
		"no space for the image": {func(w workshop) {
			w.program("stat", `echo "$3"`)
			w.program("df", `case $3 in */out) echo 99 ;; *) echo 9999 ;; esac`)
			w.write("out/other", "")
			w.write("machine/other", "")
		}, "OUT has 99 MiB of free space, and the build needs 1300 MiB. What to do: free space there, or set OUT to a folder on a larger file system\n"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorkshop(t)
			c.change(w)
			output, err := w.image("check")
			output = strings.NewReplacer(w.path("out"), "OUT", w.path("machine"), "MACHINE").Replace(output)
			if err == nil || !strings.Contains(output, c.message) {
				t.Errorf("%v: %s", err, output)
			}
		})
	}
}

func TestNameOfTheImage(t *testing.T) {
	for variable, suffix := range map[string]string{
		"KERNEL=":                        "-cloud-amd64.qcow2",
		"KERNEL=linux-image-cloud-amd64": "-cloud-amd64.qcow2",
		"KERNEL=linux-image-amd64":       "[0-9]-amd64.qcow2",
		"KERNEL=linux-image-rt-amd64":    "-rt-amd64.qcow2",
		"KERNEL=linux-image-cloud-arm64": "/bin/arm64/machine '.*-cloud-arm64.qcow2",
		"SELINUX=1":                      "-cloud-amd64-selinux.qcow2",
		"IMAGE=/images/x.qcow2":          " '/images/x.qcow2",
	} {
		output, err := exec.Command("make", "-C", "../..", "--dry-run", "image-requirements", variable).CombinedOutput()
		if err != nil || !regexp.MustCompile(suffix+"'\n").Match(output) {
			t.Errorf("%s: %v: %s", variable, err, output)
		}
	}
}
