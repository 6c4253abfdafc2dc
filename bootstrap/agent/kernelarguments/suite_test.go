package kernelarguments

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

func TestKernelArguments(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Kernel arguments of a host")
}

// errPower is the error of a program during which the power is lost.
var errPower = errors.New("no power")

// host is a host whose boot loader has arguments. It runs the programs of the host.
type host struct {
	root string
	// next are the arguments with which it boots next, and running those of the running kernel.
	next, running []string
	// sources are the arguments that bootc remembers for each source.
	sources map[string][]string
	// calls are the programs that changed something, with their arguments.
	calls []string
	// failAt loses the power before (odd) or after (even) a call that changes something, counted from 1.
	failAt int
}

// newHost returns a host that booted with arguments of its image and, appended by Ignition, those of a configuration
// that the image does not have.
func newHost(image, config []string) *host {
	GinkgoHelper()
	h := &host{root: newDirectory(), sources: map[string][]string{}}
	h.next = append(slices.Clone(image), without(unique(config), image)...)
	h.write(imagePath, strings.Join(image, " ")+"\n")
	h.reboot()
	return h
}

// newDirectory returns a directory, in memory if possible: the specs sync a lot.
func newDirectory() string {
	GinkgoHelper()
	parent := "/dev/shm"
	if _, err := os.Stat(parent); err != nil {
		parent = ""
	}
	directory, err := os.MkdirTemp(parent, "kernelarguments-")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(os.RemoveAll, directory)
	return directory
}

func (h *host) write(name, contents string) {
	GinkgoHelper()
	Expect(os.MkdirAll(filepath.Dir(filepath.Join(h.root, name)), 0o755)).To(Succeed())
	Expect(os.WriteFile(filepath.Join(h.root, name), []byte(contents), 0o644)).To(Succeed())
}

func (h *host) reboot() {
	GinkgoHelper()
	h.running = slices.Clone(h.next)
	h.write(commandLinePath, strings.Join(append([]string{"BOOT_IMAGE=/vmlinuz", "root=/dev/vda4"}, h.running...), " ")+"\n")
}

func (h *host) executor(program string) *Executor {
	return &Executor{Runner: h, Programs: []string{program, "another"}, Root: h.root}
}

// Run is a model of the programs, written from their documentation.
func (h *host) Run(_ context.Context, name string, arguments ...string) ([]byte, error) {
	if name == "rpm-ostree" && len(arguments) == 1 {
		return []byte(strings.Join(h.next, " ") + " ostree=/ostree/boot.1/fedora-coreos/" + fmt.Sprint(len(h.calls)) + "\n"), nil
	}
	if name == "grubby" && len(arguments) == 1 {
		return fmt.Appendf(nil, "index=0\nkernel=\"/boot/vmlinuz\"\nargs=\"%s\"\nroot=\"/dev/vda4\"\n", strings.Join(h.next, " ")), nil
	}
	if name == "bootc" && slices.Contains(arguments, "--help") {
		return nil, nil
	}
	h.calls = append(h.calls, name+" "+strings.Join(arguments, " "))
	if 2*len(h.calls)-1 == h.failAt {
		return nil, errPower
	}
	if err := h.change(name, arguments); err != nil {
		return nil, err
	}
	if 2*len(h.calls) == h.failAt {
		return nil, errPower
	}
	return nil, nil
}

func (h *host) change(name string, arguments []string) error {
	switch {
	case name == "rpm-ostree" && arguments[0] == "kargs":
		return h.rpmOSTree(arguments[1:])
	case name == "bootc" && strings.Join(arguments[:4], " ") == "loader-entries set-options-for-source --source poolboot":
		options, isOptions := strings.CutPrefix(arguments[4], "--options=")
		if !isOptions {
			return errors.New("unexpected argument")
		}
		for _, old := range h.sources["poolboot"] {
			h.removeOne(old)
		}
		h.sources["poolboot"] = strings.Fields(options)
		h.next = append(h.next, h.sources["poolboot"]...)
		return nil
	case name == "grubby" && arguments[0] == "--update-kernel=ALL":
		return h.grubby(arguments[1:])
	case name == "ignition-kargs-helper":
		return h.helper(arguments)
	}
	return fmt.Errorf("unexpected %s %v", name, arguments)
}

func (h *host) removeOne(argument string) bool {
	i := slices.Index(h.next, argument)
	if i >= 0 {
		h.next = slices.Delete(h.next, i, i+1)
	}
	return i >= 0
}

// rpmOSTree deletes one argument of a list for each --delete, and fails if there is none. An argument without value
// deletes the only one with the name, whatever its value is.
func (h *host) rpmOSTree(arguments []string) error {
	for _, argument := range arguments {
		if deleted, isDelete := strings.CutPrefix(argument, "--delete="); isDelete && !h.removeOne(deleted) {
			ofName := slices.DeleteFunc(slices.Clone(h.next), func(a string) bool { return nameOf(a) != deleted })
			if len(ofName) != 1 {
				return fmt.Errorf("error: No karg '%s' found", deleted)
			}
			h.removeOne(ofName[0])
		}
	}
	for _, argument := range arguments {
		if appended, isAppend := strings.CutPrefix(argument, "--append="); isAppend {
			h.next = append(h.next, appended)
		}
	}
	return nil
}

// grubby splits at spaces. --remove-args without value removes all of the name, and --args replaces all of the name.
func (h *host) grubby(arguments []string) error {
	removeName := func(name string) {
		h.next = slices.DeleteFunc(h.next, func(a string) bool { return nameOf(a) == name })
	}
	for _, argument := range arguments {
		if removed, isRemove := strings.CutPrefix(argument, "--remove-args="); isRemove {
			for _, name := range strings.Fields(removed) {
				removeName(name)
			}
		}
	}
	for _, argument := range arguments {
		if added, isAdd := strings.CutPrefix(argument, "--args="); isAdd {
			for _, new := range strings.Fields(added) {
				removeName(nameOf(new))
			}
			h.next = append(h.next, strings.Fields(added)...)
		}
	}
	return nil
}

// helper first removes what should not exist, which is not what hack/image does: the contract has no order.
func (h *host) helper(arguments []string) error {
	for i := 0; i < len(arguments); i += 2 {
		if arguments[i] == "--should-exist" && !slices.Contains(h.next, arguments[i+1]) {
			h.next = append(h.next, arguments[i+1])
		}
	}
	for i := 0; i < len(arguments); i += 2 {
		if arguments[i] == "--should-not-exist" {
			h.next = without(h.next, arguments[i+1:i+2])
		}
	}
	return nil
}

// script runs the helper of hack/image on a host whose boot partition is mounted read-only.
type script struct {
	directory string
	path      string
}

func newScript(arguments ...string) *script {
	GinkgoHelper()
	source, err := filepath.Abs("../../../hack/image/dracut/31poolboot-grub/ignition-kargs-helper.sh")
	Expect(err).NotTo(HaveOccurred())
	s := &script{directory: GinkgoT().TempDir(), path: source}
	for name, contents := range map[string]string{
		"boot/kernel-arguments.cfg": "set kernel_arguments='" + strings.Join(arguments, " ") + "'\n",
		"mounts":                    "/dev/vda2 " + filepath.Join(s.directory, "boot") + " ext4 ro 0 0\n",
		"bin/mount":                 "#!/bin/sh\necho \"$*\" >>" + s.directory + "/calls\n",
	} {
		Expect(os.MkdirAll(filepath.Dir(filepath.Join(s.directory, name)), 0o755)).To(Succeed())
		Expect(os.WriteFile(filepath.Join(s.directory, name), []byte(contents), 0o755)).To(Succeed())
	}
	return s
}

func (s *script) Run(ctx context.Context, name string, arguments ...string) ([]byte, error) {
	if name != "ignition-kargs-helper" {
		return nil, fmt.Errorf("unexpected %s", name)
	}
	cmd := exec.CommandContext(ctx, "/bin/sh", append([]string{s.path}, arguments...)...)
	cmd.Env = append(os.Environ(), "PATH="+filepath.Join(s.directory, "bin")+":"+os.Getenv("PATH"), "MOUNTS="+filepath.Join(s.directory, "mounts"),
		"BOOT_DIRECTORY="+filepath.Join(s.directory, "boot"), "KARGS_CHANGED="+filepath.Join(s.directory, "changed"))
	output, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w: %s", err, output)
	}
	return output, err
}

// arguments returns the arguments with which the host boots next.
func (s *script) arguments() []string {
	GinkgoHelper()
	line, err := os.ReadFile(filepath.Join(s.directory, "boot/kernel-arguments.cfg"))
	Expect(err).NotTo(HaveOccurred())
	value, isSet := strings.CutPrefix(strings.TrimSuffix(string(line), "'\n"), "set kernel_arguments='")
	Expect(isSet).To(BeTrue())
	return ignition.SplitArguments([]string{value})
}

func operations(before, after []string) []update.Operation {
	return []update.Operation{{Kind: update.ChangeKernelArguments, Before: update.State{KernelArguments: before}, After: update.State{KernelArguments: after}}}
}

// applyAll carries out operations in their order, also after one that failed.
func applyAll(executor interface {
	Apply(ctx context.Context, operation update.Operation) error
}, ctx context.Context, operations []update.Operation) (err error) {
	for _, operation := range operations {
		err = errors.Join(err, executor.Apply(ctx, operation))
	}
	return err
}
