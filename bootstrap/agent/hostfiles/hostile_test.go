package hostfiles

import (
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
)

var _ = Describe("A user of the host other than root", func() {
	const uid = 1000
	var root string
	var u *Updater
	// plant creates a symbolic link of the user.
	plant := func(target, name string) {
		GinkgoHelper()
		name = filepath.Join(root, name)
		Expect(os.MkdirAll(filepath.Dir(name), 0o755)).To(Succeed())
		Expect(os.RemoveAll(name)).To(Succeed())
		Expect(os.Symlink(target, name)).To(Succeed())
		Expect(os.Lchown(name, uid, uid)).To(Succeed())
	}
	// own creates a directory of the user.
	own := func(name string) {
		GinkgoHelper()
		Expect(os.MkdirAll(filepath.Join(root, name), 0o755)).To(Succeed())
		Expect(os.Chown(filepath.Join(root, name), uid, uid)).To(Succeed())
	}
	BeforeEach(func() {
		root = newHost()
		own("home/x")
		Expect(os.MkdirAll(filepath.Join(root, "root/.ssh"), 0o700)).To(Succeed())
		u = open(root)
	})
	keys := hosttree.Tree{"/home/x/.ssh/authorized_keys": file("ssh-ed25519 x", owner(uid, uid))}

	DescribeTable("can't have a file written outside of what it owns by a link", func(links ...string) {
		for i := 0; i+1 < len(links); i += 2 {
			plant(links[i], links[i+1])
		}
		before := snapshot(root)
		err := u.Apply(hosttree.Changes(nil, keys), false)
		Expect(err).To(MatchError(And(ContainSubstring("/home/x/"), ContainSubstring("is a symbolic link of the user with ID 1000"), ContainSubstring("remove it"))))
		Expect(err).To(BeAssignableToTypeOf(&CheckError{}))
		Expect(differing(snapshot(root), before)).To(BeEmpty())
		Expect(u.IsInterrupted() || u.IsUnconfirmed()).To(BeFalse())
	},
		Entry("absolute", "/root/.ssh", "home/x/.ssh"),
		Entry("relative", "../../root/.ssh", "home/x/.ssh"),
		Entry("to what does not exist", "/etc/new", "home/x/.ssh"),
		Entry("by two links", "b", "home/x/.ssh", "/root/.ssh", "home/x/b"),
		Entry("to a directory above", "/root", "home/x/a", "a/.ssh", "home/x/.ssh"),
	)

	It("can't have a file written where the configuration has a link, in the update that removes that link", func() {
		linked := hosttree.Tree{"/etc/app": link("/opt/app")}
		update(u, nil, linked)
		plant("/etc/app", "home/x/.ssh")
		before := snapshot(root)
		err := u.Apply(hosttree.Changes(linked, keys), true)
		Expect(err).To(MatchError(ContainSubstring("/home/x/.ssh: it is a symbolic link of the user with ID 1000")))
		Expect(differing(snapshot(root), before)).To(BeEmpty())
	})

	It("can move its own directory elsewhere in what it owns", func() {
		own("home/x/real")
		plant("real", "home/x/.ssh")
		update(u, nil, keys)
		Expect(os.ReadFile(filepath.Join(root, "home/x/real/authorized_keys"))).To(BeEquivalentTo("ssh-ed25519 x"))
	})

	It("can't have a repair, an update, a forced one or an end of the configuration write elsewhere after the file was written", func() {
		update(u, nil, keys)
		for _, target := range []string{"/root/.ssh", "/etc"} {
			plant(target, "home/x/.ssh")
			before := snapshot(root)
			differences, err := u.Differences()
			Expect(err).NotTo(HaveOccurred())
			Expect(differences).NotTo(BeEmpty())
			changes, err := u.ChangesTo(keys)
			Expect(err).NotTo(HaveOccurred())
			for _, force := range []bool{false, true} {
				Expect(u.Apply(changes, force)).NotTo(Succeed())
				Expect(u.Apply(hosttree.Changes(keys, hosttree.Tree{"/home/x/.ssh/authorized_keys": file("other")}), force)).NotTo(Succeed())
				Expect(differing(snapshot(root), before)).To(BeEmpty())
			}
			_ = u.Apply(hosttree.Changes(keys, nil), true)
			if u.IsUnconfirmed() {
				Expect(u.RollBack()).To(Succeed())
			}
			Expect(differing(snapshot(root), before)).To(BeEmpty())
		}
	})

	It("can't have an update undone or confirmed elsewhere", func() {
		for _, end := range []func() error{u.RollBack, u.Confirm} {
			Expect(u.Apply(hosttree.Changes(nil, keys), false)).To(Succeed())
			Expect(u.IsUnconfirmed()).To(BeTrue())
			plant("/etc", "home/x/.ssh")
			Expect(os.WriteFile(filepath.Join(root, "etc/authorized_keys"), []byte("of others"), 0o600)).To(Succeed())
			Expect(end()).To(Succeed())
			Expect(os.ReadFile(filepath.Join(root, "etc/authorized_keys"))).To(BeEquivalentTo("of others"))
			Expect(os.Remove(filepath.Join(root, "home/x/.ssh"))).To(Succeed())
		}
	})

	It("can't stop the check of the host", func() {
		own("home/x/d")
		tree := hosttree.Tree{"/etc/hard": hardLink("/home/x/d/f"), "/home/x/d/f": file("f"), "/etc/other": file("a")}
		update(u, nil, tree)
		plant("/etc", "home/x/d")
		Expect(os.WriteFile(filepath.Join(root, "etc/other"), []byte("b"), 0o644)).To(Succeed())
		Expect(u.Differences()).To(ContainElement(Difference{"/etc/other", Content}))
	})
})
