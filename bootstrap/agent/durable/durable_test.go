package durable_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/durable"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/powerloss"
)

func TestDurable(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Files that survive a power loss")
}

var _ = Describe("A file that survives a power loss", func() {
	var directory, name string

	BeforeEach(func() {
		directory = GinkgoT().TempDir()
		name = filepath.Join(directory, "a", "b", "state")
	})

	read := func() string {
		GinkgoHelper()
		contents, err := os.ReadFile(name)
		Expect(err).NotTo(HaveOccurred())
		return string(contents)
	}

	It("is created with its directories, which nobody else can enter", func() {
		Expect(durable.Write(name, []byte("new"), 0o640)).To(Succeed())
		Expect(read()).To(Equal("new"))
		Expect(os.Stat(name)).To(HaveField("Mode()", os.FileMode(0o640)))
		Expect(os.Stat(filepath.Dir(name))).To(HaveField("Mode()", os.ModeDir|0o700))
	})

	It("is replaced by another file, with the same mode and owner", func() {
		Expect(durable.Write(name, []byte("old"), 0o600)).To(Succeed())
		Expect(os.Chmod(name, 0o604)).To(Succeed())
		if os.Geteuid() == 0 {
			Expect(os.Chown(name, 7, 8)).To(Succeed())
		}
		before, err := os.Stat(name)
		Expect(err).NotTo(HaveOccurred())
		Expect(durable.Write(name, []byte("new"), 0o600)).To(Succeed())
		after, err := os.Stat(name)
		Expect(err).NotTo(HaveOccurred())
		Expect(read()).To(Equal("new"))
		Expect(after.Mode()).To(Equal(before.Mode()))
		old, now := before.Sys().(*syscall.Stat_t), after.Sys().(*syscall.Stat_t)
		Expect([]uint32{now.Uid, now.Gid}).To(Equal([]uint32{old.Uid, old.Gid}))
		Expect(now.Ino).NotTo(Equal(old.Ino), "it was not written in place")
	})

	It("is written after a power loss in the middle of it, also if something else is in the way", func() {
		Expect(durable.Write(name, []byte("old"), 0o600)).To(Succeed())
		victim := filepath.Join(directory, "victim")
		Expect(os.WriteFile(victim, []byte("of others"), 0o600)).To(Succeed())
		Expect(os.Symlink(victim, name+".poolboot-new")).To(Succeed())
		Expect(durable.Write(name, []byte("new"), 0o600)).To(Succeed())
		Expect(read()).To(Equal("new"))
		Expect(os.ReadFile(victim)).To(BeEquivalentTo("of others"))
		Expect(os.ReadDir(filepath.Dir(name))).To(HaveLen(1), "nothing is left")
	})

	It("does not replace a link or a directory", func() {
		Expect(os.MkdirAll(name, 0o755)).To(Succeed())
		Expect(durable.Write(name, []byte("new"), 0o600)).To(MatchError(ContainSubstring("it is not a regular file: remove it")))
		Expect(os.Remove(name)).To(Succeed())
		Expect(os.Symlink("elsewhere", name)).To(Succeed())
		Expect(durable.Write(name, []byte("new"), 0o600)).To(MatchError(ContainSubstring("it is not a regular file")))
	})

	It("is on the disk when it is written, with its directories", func() {
		disk := powerloss.NewDisk()
		for _, contents := range []string{"one", "two"} {
			Expect(durable.Write(filepath.Join(disk.Root, "a/b/state"), []byte(contents), 0o600)).To(Succeed())
			disk.AfterLoss(func(root string) {
				Expect(os.ReadFile(filepath.Join(root, "a/b/state"))).To(BeEquivalentTo(contents))
			})
		}
	})
})
