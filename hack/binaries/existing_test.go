package binaries

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// programs maps the programs to what the real ones print as their versions.
var programs = map[string]string{
	"kube-apiserver":          "Kubernetes v1.36.1",
	"kube-controller-manager": "Kubernetes v1.36.1",
	"kubelet":                 "Kubernetes v1.36.1-dirty",
	"kubeadm":                 "v1.36.1",
	"kubectl":                 "Client Version: v1.36.1\nKustomize Version: v5.7.1",
	"etcd":                    "etcd Version: 3.6.11\nGit SHA: 1234567\nGo Version: go1.26.0\nGo OS/Arch: linux/amd64",
}

// folder returns a folder of programs, with some changes: the text that a program prints, or "" for a missing program.
func folder(t *testing.T, changes map[string]string) string {
	dir := t.TempDir()
	for name, prints := range programs {
		if changed, ok := changes[name]; ok {
			prints = changed
		}
		if prints == "" {
			continue
		}
		script := "#!/bin/sh\ncat <<'END'\n" + prints + "\nEND\n"
		if prints == "broken" {
			script = "#!/bin/sh\necho 'cannot execute binary file' >&2\nexit 126\n"
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// run runs make for some programs, with a new folder for them.
func run(t *testing.T, dryRun bool, variable string, names ...string) (bin, printed string, err error) {
	bin = filepath.Join(t.TempDir(), "bin")
	arguments := []string{"-C", "../..", "--no-print-directory", "BIN=" + bin}
	if dryRun {
		arguments = append(arguments, "--dry-run")
	}
	for _, name := range names {
		arguments = append(arguments, filepath.Join(bin, name))
	}
	command := exec.Command("make", arguments...)
	for _, setting := range os.Environ() {
		name, _, _ := strings.Cut(setting, "=")
		if name != "KUBERNETES_BIN" && name != "KUBEBUILDER_ASSETS" && !strings.HasPrefix(name, "MAKE") && name != "MFLAGS" {
			command.Env = append(command.Env, setting)
		}
	}
	command.Env = append(command.Env, variable)
	out, err := command.CombinedOutput()
	return bin, string(out), err
}

func TestExistingProgramsAreLinked(t *testing.T) {
	for _, variable := range []string{"KUBERNETES_BIN", "KUBEBUILDER_ASSETS"} {
		t.Run(variable, func(t *testing.T) {
			dir := folder(t, nil)
			var names []string
			for name := range programs {
				names = append(names, name)
			}
			bin, printed, err := run(t, false, variable+"="+dir, names...)
			if err != nil {
				t.Fatalf("%v: %s", err, printed)
			}
			for _, name := range names {
				if leadsTo, err := os.Readlink(filepath.Join(bin, name)); err != nil || leadsTo != filepath.Join(dir, name) {
					t.Errorf("%s: %s, %v", name, leadsTo, err)
				}
			}
		})
	}
}

func TestOthersAreRefused(t *testing.T) {
	for name, c := range map[string]struct{ program, prints, says string }{
		"another minor release of Kubernetes": {"kubelet", "Kubernetes v1.35.4", "is v1.35.4, but v1.36.3 is wanted, or another patch release of v1.36."},
		"another minor release of etcd":       {"etcd", "etcd Version: 3.5.21\nGo Version: go1.26.0", "is v3.5.21, but v3.6.8 is wanted, or another patch release of v3.6."},
		"a release that only starts like it":  {"kubeadm", "v1.360.0", "is v1.360.0"},
		"a program of another architecture":   {"kubectl", "broken", "does not tell its version (cannot execute binary file)"},
		"another program":                     {"kube-apiserver", "hello", "does not tell its version (hello)"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := folder(t, map[string]string{c.program: c.prints})
			_, printed, err := run(t, false, "KUBERNETES_BIN="+dir, c.program)
			if err == nil || !strings.Contains(printed, filepath.Join(dir, c.program)+" "+c.says) || !strings.Contains(printed, "What to do: put one of v") {
				t.Errorf("%v: %s", err, printed)
			}
		})
	}
}

func TestWhatIsMissingIsBuilt(t *testing.T) {
	dir := folder(t, map[string]string{"kubelet": "", "kubeadm": "", "kube-controller-manager": ""}) // as in the folder of envtest
	_, printed, err := run(t, true, "KUBEBUILDER_ASSETS="+dir, "kubelet", "kube-apiserver", "etcd")
	if err != nil {
		t.Fatalf("%v: %s", err, printed)
	}
	if !strings.Contains(printed, "k8s.io/kubernetes/cmd/kubelet") || strings.Contains(printed, "k8s.io/kubernetes/cmd/kube-apiserver") || strings.Contains(printed, "go.etcd.io/etcd") {
		t.Errorf("got %s", printed)
	}
}

func TestAFolderWithoutAnyIsRefused(t *testing.T) {
	dir := t.TempDir()
	_, printed, err := run(t, true, "KUBERNETES_BIN="+dir, "kubelet")
	if err == nil || !strings.Contains(printed, "There is none of kube-apiserver") || !strings.Contains(printed, dir) {
		t.Errorf("%v: %s", err, printed)
	}
}

// TestVersionOfEtcd verifies that the required version is the one that is built.
func TestVersionOfEtcd(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	module, err := os.ReadFile("../tools/k8s/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	_, version, _ := strings.Cut(string(makefile), "ETCD_VERSION := ")
	version, _, _ = strings.Cut(version, "\n")
	if !strings.Contains(string(module), "go.etcd.io/etcd/server/v3 "+version) {
		t.Errorf("the Makefile says %s, hack/tools/k8s/go.mod another version", version)
	}
}
