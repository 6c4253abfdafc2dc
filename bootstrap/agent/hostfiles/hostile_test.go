package hostfiles

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"
	"k8s.io/utils/ptr"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// mountFUSE mounts a file system as fusermount does for the user with ID 1000. Its server never answers. It returns a
// function that unmounts it, and one that ends the server.
func mountFUSE(target string) (unmount, end func()) {
	GinkgoHelper()
	server, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		Skip("this host has no FUSE: " + err.Error())
	}
	end = sync.OnceFunc(func() { _ = unix.Close(server) })
	DeferCleanup(end)
	mount(target, "fuse.test", fmt.Sprintf("fd=%d,rootmode=40000,user_id=1000,group_id=1000,allow_other", server))
	return func() { _ = unix.Unmount(target, unix.MNT_DETACH) }, end
}

// soon runs something that must not wait for a file system that does not answer.
func soon(end func(), act func()) {
	GinkgoHelper()
	timer := time.AfterFunc(20*time.Second, end) // lets the system calls end
	act()
	Expect(timer.Stop()).To(BeTrue(), "it waits for a file system that does not answer")
}

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
		Expect(err).To(MatchError(And(ContainSubstring("/home/x/"), ContainSubstring("is a symbolic link that the user with ID 1000 can place"), ContainSubstring("remove it"))))
		Expect(err).To(BeAssignableToTypeOf(&CheckError{}))
		Expect(differing(snapshot(root), before)).To(BeEmpty())
		Expect(u.isInterrupted() || u.IsUnconfirmed()).To(BeFalse())
	},
		Entry("absolute", "/root/.ssh", "home/x/.ssh"),
		Entry("relative", "../../root/.ssh", "home/x/.ssh"),
		Entry("to what does not exist", "/etc/new", "home/x/.ssh"),
		Entry("by two links", "b", "home/x/.ssh", "/root/.ssh", "home/x/b"),
		Entry("to a directory above", "/root", "home/x/a", "a/.ssh", "home/x/.ssh"),
	)

	It("can't have a file written where the configuration has a link, in the update that removes that link", func() {
		linked := hosttree.Tree{"/etc/app": link("/opt/app")}
		apply(u, nil, linked)
		plant("/etc/app", "home/x/.ssh")
		before := snapshot(root)
		err := u.Apply(hosttree.Changes(linked, keys), true)
		Expect(err).To(MatchError(ContainSubstring("/home/x/.ssh: it is a symbolic link that the user with ID 1000 can place")))
		Expect(differing(snapshot(root), before)).To(BeEmpty())
	})

	It("can move its own directory elsewhere in what it owns", func() {
		own("home/x/real")
		plant("real", "home/x/.ssh")
		apply(u, nil, keys)
		Expect(os.ReadFile(filepath.Join(root, "home/x/real/authorized_keys"))).To(BeEquivalentTo("ssh-ed25519 x"))
	})

	It("can't have a repair, an update, a forced one or an end of the configuration write elsewhere after the file was written", func() {
		apply(u, nil, keys)
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
		apply(u, nil, tree)
		plant("/etc", "home/x/d")
		Expect(os.WriteFile(filepath.Join(root, "etc/other"), []byte("b"), 0o644)).To(Succeed())
		Expect(u.Differences()).To(ContainElement(update.Drift{Name: "/etc/other", Kind: update.DriftContent}))
	})

	DescribeTable("can't stop the check or an update of other paths, or make them wait, by", func(obstruct func() (end func())) {
		Expect(os.MkdirAll(filepath.Join(root, "home/x/.ssh"), 0o755)).To(Succeed())
		own("home/x/.ssh")
		tree := hosttree.Tree{"/etc/hard": hardLink("/home/x/.ssh/f"), "/home/x/.ssh/f": file("f"), "/home/x/.ssh/keys": file("k"), "/etc/other": file("a"), "/etc/z": file("a")}
		apply(u, nil, tree)
		end := obstruct()
		soon(end, func() {
			Expect(os.WriteFile(filepath.Join(root, "etc/other"), []byte("b"), 0o644)).To(Succeed())
			found, err := u.Differences()
			Expect(err).NotTo(HaveOccurred())
			Expect(found).To(ContainElement(update.Drift{Name: "/etc/other", Kind: update.DriftContent}))
			Expect(found).To(ContainElement(HaveField("Name", HavePrefix("/home/x/.ssh"))))

			By("an update of other paths")
			changes, err := u.ChangesTo(hosttree.Tree{"/etc/other": file("c"), "/etc/hard": tree["/etc/hard"], "/home/x/.ssh/f": file("f"), "/home/x/.ssh/keys": file("k")})
			Expect(err).NotTo(HaveOccurred())
			var own []hosttree.Change
			for _, change := range changes {
				if change.Path == "/etc/other" || change.Path == "/etc/z" {
					own = append(own, change)
				}
			}
			Expect(own).To(HaveLen(2))
			Expect(u.Apply(own, true)).To(Succeed())
			Expect(u.RollBack()).To(Succeed())
			Expect(u.Apply(own, true)).To(Succeed())
			Expect(u.Confirm()).To(Succeed())
			Expect(os.ReadFile(filepath.Join(root, "etc/other"))).To(BeEquivalentTo("c"))

			By("an update of its own path is refused, and the error names it")
			err = u.Apply([]hosttree.Change{{Path: "/home/x/.ssh/keys", To: ptr.To(file("other"))}}, false)
			Expect(err).To(BeAssignableToTypeOf(&CheckError{}))
			Expect(err).To(MatchError(ContainSubstring("/home/x/.ssh")))
		})
	},
		Entry("mounting a FUSE file system that does not answer", func() func() {
			_, end := mountFUSE(filepath.Join(root, "home/x/.ssh"))
			return end
		}),
		Entry("mounting a FUSE file system whose server ended", func() func() {
			_, end := mountFUSE(filepath.Join(root, "home/x/.ssh"))
			end()
			return end
		}),
		Entry("a loop of links", func() func() {
			Expect(os.Rename(filepath.Join(root, "home/x/.ssh"), filepath.Join(root, "home/x/moved"))).To(Succeed())
			plant(".ssh", "home/x/.ssh")
			return func() {}
		}),
		Entry("a pipe", func() func() {
			Expect(os.Remove(filepath.Join(root, "home/x/.ssh/keys"))).To(Succeed())
			Expect(unix.Mkfifo(filepath.Join(root, "home/x/.ssh/keys"), 0o644)).To(Succeed())
			return func() {}
		}),
		Entry("a lease", func() func() {
			file, err := os.OpenFile(filepath.Join(root, "home/x/.ssh/keys"), os.O_RDWR, 0)
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(file.Close)
			Expect(os.Chtimes(file.Name(), time.Unix(1, 0), time.Unix(1, 0))).To(Succeed())
			_, err = unix.FcntlInt(file.Fd(), unix.F_SETLEASE, unix.F_WRLCK)
			Expect(err).NotTo(HaveOccurred())
			return func() { _ = file.Close() }
		}),
	)

	It("can't have the check read more than the configuration has by exchanging a file while it is compared", func() {
		tree := hosttree.Tree{"/home/x/keys": file("keys")}
		apply(u, nil, tree)
		name := filepath.Join(root, "home/x/keys")
		original, err := os.Open(name)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(original.Close)
		var stat unix.Stat_t
		Expect(unix.Fstat(int(original.Fd()), &stat)).To(Succeed())
		huge, err := os.Create(name + ".huge")
		Expect(err).NotTo(HaveOccurred())
		Expect(huge.Truncate(1 << 40)).To(Succeed())
		begun := time.Now()
		got, err := readAndClose(huge, stat.Size)
		Expect(err).NotTo(HaveOccurred())
		Expect(got.sum).NotTo(Equal(sumOf([]byte("keys"))))
		Expect(time.Since(begun)).To(BeNumerically("<", time.Second))

		Expect(os.Rename(name+".huge", name)).To(Succeed())
		begun = time.Now()
		got, err = u.readIfChanged("home/x/keys", stat.Size, fingerprint{})
		Expect(err).NotTo(HaveOccurred())
		Expect(got.sum).NotTo(Equal(sumOf([]byte("keys"))))
		Expect(time.Since(begun)).To(BeNumerically("<", time.Second))
	})

	DescribeTable("can't have a link of root followed that it moved to where the configuration writes", func(prepare func()) {
		prepare()
		before := snapshot(root)
		err := u.Apply(hosttree.Changes(nil, keys), false)
		Expect(err).To(MatchError(And(ContainSubstring("/home/x/.ssh: it is a symbolic link that the user with ID 1000 can place"), ContainSubstring("remove it"))))
		Expect(differing(snapshot(root), before)).To(BeEmpty())
	},
		Entry("from its directory", func() {
			Expect(os.Symlink("/root/.ssh", filepath.Join(root, "home/x/.ssh"))).To(Succeed())
		}),
	)

	It("can't have a link of root followed in a directory of root that it moved", func() {
		Expect(os.MkdirAll(filepath.Join(root, "home/x/dir"), 0o755)).To(Succeed())
		Expect(os.Symlink("/root/.ssh", filepath.Join(root, "home/x/dir/.ssh"))).To(Succeed())
		Expect(u.Apply(hosttree.Changes(nil, hosttree.Tree{"/home/x/dir/.ssh/keys": file("x")}), false)).To(MatchError(ContainSubstring("can place")))
	})

	It("can't have a link followed in a directory in which several users can write", func() {
		for name, mode := range map[string]os.FileMode{"opt/open": 0o777, "opt/group": 0o775} {
			Expect(os.Mkdir(filepath.Join(root, name), 0o755)).To(Succeed())
			Expect(os.Chmod(filepath.Join(root, name), mode)).To(Succeed())
			Expect(os.Chown(filepath.Join(root, name), 0, 50)).To(Succeed())
			Expect(os.Symlink("/etc", filepath.Join(root, name, "l"))).To(Succeed())
			Expect(u.Apply(hosttree.Changes(nil, hosttree.Tree{"/" + name + "/l/new": file("x")}), false)).To(MatchError(ContainSubstring("several users can write")))
		}
	})

	It("can own a link that only root can place", func() {
		Expect(os.Symlink("/opt", filepath.Join(root, "etc/l"))).To(Succeed())
		Expect(os.Lchown(filepath.Join(root, "etc/l"), uid, uid)).To(Succeed())
		apply(u, nil, hosttree.Tree{"/etc/l/new": file("x")})
		Expect(filepath.Join(root, "opt/new")).To(BeARegularFile())
	})
})
