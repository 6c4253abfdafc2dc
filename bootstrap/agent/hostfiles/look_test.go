package hostfiles

import (
	"errors"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

var _ = Describe("A look at a host", func() {
	var root string
	var u *Updater
	BeforeEach(func() {
		root = newHost()
		u = open(root)
		apply(u, nil, hosttree.Tree{"/etc/f": file("a"), "/etc/dir/g": file("g")})
		Expect(os.MkdirAll(filepath.Join(root, "etc/systemd/system/multi-user.target.wants"), 0o755)).To(Succeed())
	})
	look := func() uint64 { return u.Look("a.service") }

	DescribeTable("finds that a path of the configuration was", func(change func(etc string) error) {
		before := look()
		Expect(look()).To(Equal(before))
		Expect(change(filepath.Join(root, "etc"))).To(Succeed())
		Expect(look()).NotTo(Equal(before))
	},
		Entry("written", func(etc string) error { return os.WriteFile(etc+"/f", []byte("b"), 0o644) }),
		Entry("removed", func(etc string) error { return os.Remove(etc + "/f") }),
		Entry("replaced", func(etc string) error {
			return errors.Join(os.WriteFile(etc+"/tmp", []byte("a"), 0o644), os.Rename(etc+"/tmp", etc+"/f"))
		}),
		Entry("given another mode", func(etc string) error { return os.Chmod(etc+"/f", 0o600) }),
		Entry("moved with its directory", func(etc string) error { return os.Rename(etc+"/dir", etc+"/other") }),
		Entry("enabled by a link to a unit", func(etc string) error {
			return os.Symlink("../a.service", etc+"/systemd/system/multi-user.target.wants/a.service")
		}),
	)

	It("finds what overrides a unit, in all directories of units", func() {
		for _, directory := range ignition.UnitDirectories {
			for _, name := range []string{"a.service", "a.service.d/x.conf", "service.d/x.conf"} {
				before, full := look(), filepath.Join(root, directory, name)
				Expect(os.MkdirAll(filepath.Dir(full), 0o755)).To(Succeed())
				Expect(os.WriteFile(full, nil, 0o644)).To(Succeed())
				Expect(look()).NotTo(Equal(before), full)
			}
		}
	})

	It("finds nothing in what others write beside it", func() {
		before := look()
		for _, name := range []string{"etc/other", "etc/dir/other", "etc/systemd/system/other.service"} {
			Expect(os.WriteFile(filepath.Join(root, name), []byte("b"), 0o644)).To(Succeed())
		}
		Expect(look()).To(Equal(before))
	})

	It("does not wait for a FUSE file system that a user mounted over a path", func() {
		mountFUSE(filepath.Join(root, "etc/dir"))
		Expect(look()).To(Equal(look()))
	})
})
