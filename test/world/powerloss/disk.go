// Package powerloss has a disk that keeps what was synced, and nothing else: what a program leaves there when the power
// is lost.
package powerloss

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"
)

// size is that of a disk in bytes.
const size = 16 << 20

// Disk is a file with an ext4 file system that writes nothing before it is synced, as far as that is possible.
type Disk struct {
	// Root is where it is mounted, until the spec ends.
	Root string
	file string
}

// NewDisk returns an empty disk. It skips the spec if this machine can't mount one.
func NewDisk() *Disk {
	GinkgoHelper()
	file := filepath.Join(newDirectory(), "disk")
	Expect(os.WriteFile(file, nil, 0o600)).To(Succeed())
	Expect(os.Truncate(file, size)).To(Succeed())
	if output, err := exec.Command("mkfs.ext4", "-q", "-F", file).CombinedOutput(); err != nil {
		Skip("can't create a file system: " + string(output))
	}
	d := &Disk{Root: mount(file), file: file}
	Expect(os.Remove(filepath.Join(d.Root, "lost+found"))).To(Succeed())
	return d
}

// AfterLoss calls a function with a directory that has what is on the disk if the power is lost now.
func (d *Disk) AfterLoss(see func(root string)) {
	GinkgoHelper()
	copied := filepath.Join(newDirectory(), "disk")
	Expect(os.WriteFile(copied, d.contents(), 0o600)).To(Succeed())
	root := mount(copied)
	see(root)
	Expect(unix.Unmount(root, 0)).To(Succeed())
	Expect(os.Remove(copied)).To(Succeed())
}

// contents returns what the kernel wrote to the disk until now, and nothing that is only in memory. While another
// goroutine syncs, the beginning can be older than the end, which no loss of power causes.
func (d *Disk) contents() []byte {
	GinkgoHelper()
	var last []byte
	for range 100 {
		data, err := os.ReadFile(d.file)
		Expect(err).NotTo(HaveOccurred())
		if bytes.Equal(data, last) {
			return data
		}
		last = data
	}
	Fail("the disk is never still")
	return nil
}

func mount(file string) string {
	GinkgoHelper()
	target := newDirectory()
	if output, err := exec.Command("mount", "-o", "loop,noauto_da_alloc,commit=300", file, target).CombinedOutput(); err != nil {
		Skip("can't mount a file system: " + string(output))
	}
	DeferCleanup(func() { _ = unix.Unmount(target, unix.MNT_DETACH) })
	return target
}

// newDirectory returns a directory, in memory if possible.
func newDirectory() string {
	GinkgoHelper()
	parent := "/dev/shm"
	if _, err := os.Stat(parent); err != nil {
		parent = ""
	}
	directory, err := os.MkdirTemp(parent, "powerloss-")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(os.RemoveAll, directory)
	return directory
}
