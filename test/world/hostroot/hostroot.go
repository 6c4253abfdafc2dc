// Package hostroot gives specs the root file system of a host, to change it with the programs that are in it, such as
// systemctl and useradd, by chroot. No service runs on it: hosts that boot are in package baremetal.
package hostroot

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/process"
)

// Spec is the part of a spec that the package needs, as ginkgo.GinkgoT returns it.
type Spec interface {
	Helper()
	Skip(args ...any)
	Fatal(args ...any)
	Cleanup(func())
}

// New returns the directory of a root file system, which is removed at the end of the spec. Changes are in memory. It
// skips the spec without the root file system of this repository, and without the right to mount.
func New(spec Spec) string {
	spec.Helper()
	bin, err := process.BinDir()
	if err != nil {
		spec.Fatal(err)
	}
	lower, err := filepath.EvalSymlinks(filepath.Join(bin, "rootfs", "root"))
	if err != nil {
		spec.Skip("the root file system of hosts does not exist: run make binaries:", err)
	}
	if os.Geteuid() != 0 {
		spec.Skip("mounting a root file system needs root")
	}
	top, err := os.MkdirTemp("/dev/shm", "root-")
	if err != nil {
		spec.Fatal(err)
	}
	spec.Cleanup(func() { _ = os.RemoveAll(top) })
	for _, name := range []string{"upper", "work", "root"} {
		if err := os.Mkdir(filepath.Join(top, name), 0o755); err != nil {
			spec.Fatal(err)
		}
	}
	root := filepath.Join(top, "root")
	options := fmt.Sprintf("lowerdir=%s,upperdir=%s/upper,workdir=%s/work", lower, top, top)
	if err := unix.Mount("overlay", root, "overlay", 0, options); err != nil {
		spec.Skip("the root file system of hosts can't be mounted:", err)
	}
	spec.Cleanup(func() { _ = unix.Unmount(root, unix.MNT_DETACH) })
	return root
}
