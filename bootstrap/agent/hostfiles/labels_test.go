package hostfiles

import (
	"errors"
	"os"
	"path/filepath"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
)

const (
	policyFile      = "system_u:object_r:policy_file_t:s0"
	policyDirectory = "system_u:object_r:policy_dir_t:s0"
	policyLink      = "system_u:object_r:policy_lnk_file_t:s0"
	imageLabel      = "system_u:object_r:image_t:s0"
)

var _ = Describe("On a host with a policy of SELinux, an update", func() {
	var root string
	BeforeEach(func() { root = newHost() })

	labels := func(names ...string) (found []string) {
		GinkgoHelper()
		for _, name := range names {
			value := make([]byte, 256)
			size, err := unix.Lgetxattr(filepath.Join(root, name), selinuxLabel, value)
			Expect(err).NotTo(HaveOccurred(), name)
			found = append(found, string(value[:size]))
		}
		return found
	}

	It("gives files, directories and links the labels of the policy, whatever those of their directories are", func() {
		apply(open(root), nil, hosttree.Tree{"/etc/a/b/c": file("a"), "/etc/new/deep": directory(), "/etc/systemd/system/m.socket": link("/dev/null")})
		Expect(labels("etc/a/b/c", "etc/new", "etc/systemd/system/m.socket")).To(Equal([]string{policyFile, policyDirectory, policyLink}))
	})

	It("gives a file the label of the policy if it replaces one with another label, or returns from a copy of /etc", func() {
		for _, name := range []string{"etc/policy.conf", "usr/etc/usr.conf"} {
			Expect(os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o755)).To(Succeed())
			Expect(os.WriteFile(filepath.Join(root, name), nil, 0o644)).To(Succeed())
			Expect(unix.Lsetxattr(filepath.Join(root, name), selinuxLabel, []byte(imageLabel), 0)).To(Succeed())
		}
		Expect(os.WriteFile(filepath.Join(root, "etc/usr.conf"), []byte("Ignition"), 0o644)).To(Succeed())
		u, tree := open(root), hosttree.Tree{"/etc/usr.conf": file("Ignition", func(e *hosttree.Entry) { e.Replaces = true })}
		Expect(u.Adopt(tree)).To(Succeed())
		apply(u, tree, hosttree.Tree{"/etc/policy.conf": file("a")})
		Expect(labels("etc/policy.conf", "etc/usr.conf")).To(Equal([]string{policyFile, policyFile}))
	})

	It("that is undone restores the labels that files had, and directories with those of the policy", func() {
		Expect(os.WriteFile(filepath.Join(root, "etc/policy.conf"), nil, 0o644)).To(Succeed())
		Expect(unix.Lsetxattr(filepath.Join(root, "etc/policy.conf"), selinuxLabel, []byte(imageLabel), 0)).To(Succeed())
		u, from := open(root), hosttree.Tree{"/etc/new": directory()}
		apply(u, nil, from)
		Expect(u.Apply(hosttree.Changes(from, hosttree.Tree{"/etc/policy.conf": file("a")}), false)).To(Succeed())
		Expect(labels("etc/policy.conf")).To(Equal([]string{policyFile}))
		Expect(filepath.Join(root, "etc/new")).NotTo(BeADirectory())
		Expect(u.RollBack()).To(Succeed())
		Expect(labels("etc/policy.conf", "etc/new")).To(Equal([]string{imageLabel, policyDirectory}))
	})

	It("also changes files on a file system without labels, such as vfat, NFS or a mount with the option context=", func() {
		Expect(os.MkdirAll(filepath.Join(root, "srv/data"), 0o755)).To(Succeed())
		mount(filepath.Join(root, "srv/data"), "ramfs", "")
		u := open(root)
		u.Labels = func(_ string, paths []string) ([]string, error) {
			return slices.Repeat([]string{policyFile}, len(paths)), nil
		}
		apply(u, nil, hosttree.Tree{"/srv/data/f": file("a"), "/srv/data/deep/f": file("a")})
	})

	It("changes nothing if the policy does not answer", func() {
		u, before := open(root), snapshot(root)
		u.Labels = func(string, []string) ([]string, error) { return nil, errors.New("no answer") }
		Expect(u.Apply(hosttree.Changes(nil, hosttree.Tree{"/etc/motd": file("a")}), false)).To(MatchError("nothing was changed: no answer"))
		Expect(differing(snapshot(root), before)).To(BeEmpty())
		u.Labels = nil
		apply(u, nil, hosttree.Tree{"/etc/motd": file("a")})
	})
})
