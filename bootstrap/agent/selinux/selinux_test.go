package selinux

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

func TestSELinux(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "The SELinux policy of a host")
}

// host runs matchpathcon, whose policy has a label for each path but those in /tmp.
type host struct {
	calls int
	err   error
}

func (h *host) Find(name string) (string, error) { return "/usr/sbin/" + name, h.err }

func (h *host) Run(_ context.Context, name string, arguments ...string) (output []byte, err error) {
	h.calls++
	Expect(append([]string{name}, arguments[:3]...)).To(Equal([]string{"matchpathcon", "-N", "-n", "-m"}))
	for _, path := range arguments[4:] {
		line := none
		if filepath.Dir(path) != "/tmp" {
			line = fmt.Sprintf("system_u:object_r:%s:s0", arguments[3]+path)
		}
		output = append(output, line+"\n"...)
	}
	return output, nil
}

var _ = Describe("The SELinux policy of a host", func() {
	ctx := context.Background()
	var root string
	BeforeEach(func() {
		root = GinkgoT().TempDir()
		Expect(os.MkdirAll(filepath.Dir(filepath.Join(root, enabled)), 0o755)).To(Succeed())
		Expect(os.WriteFile(filepath.Join(root, enabled), []byte("0"), 0o644)).To(Succeed())
	})

	It("answers for each path in their order, with nothing where it has no label", func() {
		Expect(LabelsOf(ctx, &host{}, root, "lnk_file", []string{"/etc/a b", "/tmp/a", "/etc/c"})).To(Equal(
			[]string{"system_u:object_r:lnk_file/etc/a b:s0", "", "system_u:object_r:lnk_file/etc/c:s0"}))
	})

	It("answers for many paths with few runs of the program", func() {
		h, paths := &host{}, slices.Repeat([]string{"/etc/a", "/tmp/a"}, 500)
		Expect(LabelsOf(ctx, h, root, "file", paths)).To(Equal(slices.Repeat([]string{"system_u:object_r:file/etc/a:s0", ""}, 500)))
		Expect(h.calls).To(Equal(4))
	})

	It("has no labels without the program, or if SELinux is not enabled", func() {
		Expect(LabelsOf(ctx, &host{err: exec.ErrNotFound}, root, "file", []string{"/etc/a", "/etc/b"})).To(Equal([]string{"", ""}))
		Expect(os.Remove(filepath.Join(root, enabled))).To(Succeed())
		h := &host{}
		Expect(LabelsOf(ctx, h, root, "file", []string{"/etc/a"})).To(Equal([]string{""}))
		Expect(h.calls).To(BeZero())
	})

	It("is an error if the program fails or its answers don't fit the paths", func() {
		_, err := LabelsOf(ctx, answer{errors.New("exit status 1"), ""}, root, "file", []string{"/etc/a"})
		Expect(err).To(MatchError("ask the SELinux policy for labels: exit status 1"))
		_, err = LabelsOf(ctx, answer{nil, "a\nb\n"}, root, "file", []string{"/etc/a"})
		Expect(err).To(MatchError("matchpathcon printed 2 labels for 1 paths"))
	})
})

// answer is what the program returns.
type answer struct {
	err    error
	output string
}

func (a answer) Find(name string) (string, error) { return name, nil }

func (a answer) Run(context.Context, string, ...string) ([]byte, error) {
	return []byte(a.output), a.err
}
