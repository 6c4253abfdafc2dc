package hostfiles

import (
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// bind mounts a file on another one, as services do, and returns a function that unmounts it.
func bind(target string) (unmount func()) {
	GinkgoHelper()
	source := filepath.Join(newDirectory(GinkgoT()), "source")
	Expect(os.WriteFile(source, []byte("of a mount"), 0o600)).To(Succeed())
	if err := unix.Mount(source, target, "", unix.MS_BIND, ""); err != nil {
		Skip("this container can't mount files: " + err.Error())
	}
	DeferCleanup(func() { _ = unix.Unmount(target, unix.MNT_DETACH) })
	return func() {
		GinkgoHelper()
		Expect(unix.Unmount(target, 0)).To(Succeed())
	}
}

var _ = Describe("The undo of an update of files", func() {
	from := hosttree.Tree{
		"/etc/a":                       file("a"),
		"/etc/d/e/f":                   file("a"),
		"/etc/hosts":                   keptFile(mode(0o600)),
		"/etc/z":                       file("a"),
		"/home/core/.ssh":              directory(mode(0o700), owner(1000, 1000)),
		"/home/core/.ssh/keys":         file("a", owner(1000, 1000)),
		"/home/core/.ssh/other/config": file("a"),
	}
	to := hosttree.Tree{
		"/etc/a":                       file("b"),
		"/etc/d/e/f":                   file("b"),
		"/etc/hosts":                   file("b"),
		"/etc/image.conf":              file("b"),
		"/etc/new/deep":                file("b"),
		"/etc/z":                       file("b"),
		"/home/core/.ssh":              directory(mode(0o700), owner(1000, 1000)),
		"/home/core/.ssh/keys":         file("b", owner(1000, 1000)),
		"/home/core/.ssh/other/config": file("b"),
	}
	var (
		root         string
		u            *Updater
		image, first map[string]string
	)
	BeforeEach(func() {
		root = newHost()
		image = snapshot(root)
		u = open(root)
		apply(u, nil, from)
		first = snapshot(root)
		Expect(u.Apply(hosttree.Changes(from, to), false)).To(Succeed())
	})
	in := func(name string) string { return filepath.Join(root, name) }
	reopen := func() {
		GinkgoHelper()
		Expect(u.Close()).To(Succeed())
		u = open(root)
	}
	// expectRestored checks that the host has its first configuration, and can get rid of it.
	expectRestored := func() {
		GinkgoHelper()
		Expect(u.LeftOver()).To(BeEmpty())
		Expect(differing(snapshot(root), first)).To(BeEmpty())
		Expect(u.Differences()).To(BeEmpty())
		apply(u, from, nil)
		Expect(differing(snapshot(root), image)).To(BeEmpty())
		Expect(slots(root)).To(BeEmpty())
	}
	rename := func(from, to string) {
		GinkgoHelper()
		Expect(os.Rename(in(from), in(to))).To(Succeed())
	}

	DescribeTable("ends although a path can't be restored, restores all others, and restores that path when it is possible",
		func(name, why string, obstruct func() (clear func())) {
			clear := obstruct()
			for i := range 2 { // also in another process
				if i == 0 {
					Expect(u.RollBack()).To(Succeed())
				}
				Expect(u.IsUnconfirmed() || u.isInterrupted()).To(BeFalse())
				Expect(u.LeftOver()).To(ContainElement(And(HaveField("Path", name), HaveField("Why", ContainSubstring(why)))))
				Expect(u.Differences()).To(ContainElement(And(HaveField("Name", name), HaveField("Kind", update.DriftNotRestored))))
				for _, path := range []string{"etc/a", "etc/z", "etc/d/e/f", "home/core/.ssh/keys", "home/core/.ssh/other/config"} {
					if !strings.HasPrefix("/"+path, filepath.Dir(name)+"/") || filepath.Dir(name) == "/etc" && name != "/"+path {
						Expect(os.ReadFile(in(path))).To(BeEquivalentTo("a"), path)
					}
				}
				Expect(u.Retry()).To(Succeed())
				reopen()
			}
			clear()
			Expect(u.Retry()).To(Succeed())
			expectRestored()
		},
		Entry("a file that is mounted on", "/etc/a", "unmount what is mounted there", func() func() { return bind(in("etc/a")) }),
		Entry("a file of the image that is mounted on", "/etc/image.conf", "unmount what is mounted there", func() func() { return bind(in("etc/image.conf")) }),
		Entry("a file that was configured without contents and is mounted on", "/etc/hosts", "unmount what is mounted there", func() func() { return bind(in("etc/hosts")) }),
		Entry("a new file that is mounted on", "/etc/new/deep", "unmount what is mounted there", func() func() { return bind(in("etc/new/deep")) }),
		Entry("a file with a directory in its place", "/etc/z", "move the directory that is there away", func() func() {
			Expect(os.Remove(in("etc/z"))).To(Succeed())
			Expect(os.Mkdir(in("etc/z"), 0o755)).To(Succeed())
			return func() { Expect(os.Remove(in("etc/z"))).To(Succeed()) }
		}),
		Entry("a file with a file in the place of its directory", "/etc/d/e/f", "/etc/d is not the directory that it was: remove it", func() func() {
			rename("etc/d", "etc/moved")
			Expect(os.WriteFile(in("etc/d"), nil, 0o600)).To(Succeed())
			return func() {
				Expect(os.Remove(in("etc/d"))).To(Succeed())
				rename("etc/moved", "etc/d")
			}
		}),
		Entry("a file in a directory that its user replaced by a link", "/home/core/.ssh/keys", "/home/core/.ssh is not the directory that it was: remove it", func() func() {
			rename("home/core/.ssh", "home/core/ssh")
			Expect(os.Symlink("ssh", in("home/core/.ssh"))).To(Succeed())
			return func() {
				Expect(os.Remove(in("home/core/.ssh"))).To(Succeed())
				rename("home/core/ssh", "home/core/.ssh")
			}
		}),
		Entry("a directory on which its user mounted a FUSE file system", "/home/core/.ssh/keys", "a FUSE file system of the user with ID 1000 is mounted there", func() func() {
			unmount, _ := mountFUSE(in("home/core/.ssh"))
			return unmount
		}),
	)

	It("restores parents that were removed", func() {
		Expect(os.RemoveAll(in("etc/d"))).To(Succeed())
		Expect(u.RollBack()).To(Succeed())
		expectRestored()
	})

	It("ends although slots can't be removed, and removes them later", func() {
		root := newHost()
		data := filepath.Join(root, "opt/data")
		Expect(os.MkdirAll(data, 0o755)).To(Succeed())
		mount(data, "tmpfs", "")
		u := open(root)
		tree := hosttree.Tree{"/opt/data/x": file("x"), "/etc/motd": file("x")}
		Expect(u.Apply(hosttree.Changes(nil, tree), false)).To(Succeed())
		Expect(unix.Mount("none", data, "", unix.MS_REMOUNT|unix.MS_RDONLY, "")).To(Succeed())
		Expect(u.RollBack()).To(Succeed())
		Expect(u.LeftOver()).To(ConsistOf(HaveField("Path", "/opt/data/x")))
		Expect(os.ReadFile(filepath.Join(root, "etc/motd"))).To(BeEquivalentTo("welcome to the image\n"))
		Expect(unix.Mount("none", data, "", unix.MS_REMOUNT, "")).To(Succeed())
		Expect(u.Retry()).To(Succeed())
		Expect(u.LeftOver()).To(BeEmpty())
		Expect(slots(root)).To(BeEmpty())
		Expect(filepath.Join(data, "x")).NotTo(BeAnExistingFile())
	})

	It("leaves a path to a later update only once it is restored, so that the image gets back its own file", func() {
		inode := inodeOf(root, "etc/motd")
		unmount := bind(in("etc/image.conf"))
		Expect(u.RollBack()).To(Succeed())
		next := hosttree.Tree{"/etc/image.conf": file("c"), "/etc/a": file("c")}
		for name, entry := range from {
			if _, exists := next[name]; !exists {
				next[name] = entry
			}
		}
		for _, force := range []bool{false, true} {
			var refused *CheckError
			Expect(u.Check(hosttree.Changes(from, next), force)).To(BeAssignableToTypeOf(refused))
			Expect(u.Apply(hosttree.Changes(from, next), force)).To(MatchError(And(
				HavePrefix("nothing was changed: /etc/image.conf: the undo of an earlier update could not restore it: "), ContainSubstring("unmount what is mounted there"))))
		}

		By("updates of other paths are possible meanwhile, and are undone")
		other := hosttree.Tree{"/etc/a": file("other")}
		for name, entry := range from {
			if name != "/etc/a" {
				other[name] = entry
			}
		}
		Expect(u.Apply(hosttree.Changes(from, other), false)).To(Succeed())
		Expect(u.RollBack()).To(Succeed())
		Expect(u.LeftOver()).To(HaveLen(1))

		unmount()
		apply(u, from, next)
		Expect(u.LeftOver()).To(BeEmpty())
		apply(u, next, nil)
		Expect(differing(snapshot(root), image)).To(BeEmpty())
		Expect(slots(root)).To(BeEmpty())
		Expect(inodeOf(root, "etc/motd")).To(Equal(inode))
	})
})

var _ = Describe("An update of files on an overlay file system", func() {
	// newOverlay returns a host whose image is on another file system than its changes. There, the names of one file
	// have other numbers.
	newOverlay := func() string {
		GinkgoHelper()
		lower, err := os.MkdirTemp(os.TempDir(), "lower-")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(os.RemoveAll, lower)
		Expect(os.Chmod(lower, 0o755)).To(Succeed())
		installImage(lower)
		Expect(os.Symlink("/dev/null", filepath.Join(lower, "etc/systemd/system/m.socket"))).To(Succeed())
		top := newDirectory(GinkgoT())
		for _, name := range []string{"upper", "work", "root"} {
			Expect(os.Mkdir(filepath.Join(top, name), 0o755)).To(Succeed())
		}
		mount(filepath.Join(top, "root"), "overlay", "lowerdir="+lower+",upperdir="+top+"/upper,workdir="+top+"/work")
		return filepath.Join(top, "root")
	}

	It("removes what it replaces by nothing, is undone, and returns to the image", func() {
		root := newOverlay()
		image := snapshot(root)
		u := open(root)
		tree := hosttree.Tree{"/etc/systemd/system/m.socket": unmasked(), "/etc/motd": directory(), "/etc/motd/x": file("x"), "/etc/image.conf": file("x")}
		Expect(u.Apply(hosttree.Changes(nil, tree), false)).To(Succeed())
		Expect(filepath.Join(root, "etc/systemd/system/m.socket")).NotTo(BeAnExistingFile())
		Expect(snapshot(root)).NotTo(HaveKey("etc/systemd/system/m.socket"))
		Expect(u.RollBack()).To(Succeed())
		Expect(differing(snapshot(root), image)).To(BeEmpty())
		apply(u, nil, tree)
		Expect(u.Differences()).To(BeEmpty())
		apply(u, tree, nil)
		Expect(differing(snapshot(root), image)).To(BeEmpty())
		Expect(slots(root)).To(BeEmpty())
	})
})

var _ = Describe("An update of files that has no effect", func() {
	DescribeTable("on a path is undone, and the error names the path", func(name string, change func(root string)) {
		root := newHost()
		before := snapshot(root)
		u := open(root)
		isDone := false
		u.before = func(call, from, to string) {
			if call == "sync" && !isDone && u.journal.Phase == committed {
				isDone = true
				change(root)
			}
		}
		tree := hosttree.Tree{"/etc/systemd/system/m.socket": unmasked(), "/etc/motd": file("new"), "/etc/d": directory(mode(0o700)), "/etc/hosts": keptFile(mode(0o600)), "/etc/hard": hardLink("/etc/motd")}
		Expect(u.Apply(hosttree.Changes(nil, tree), false)).To(MatchError(And(ContainSubstring("the update was undone: "+name+": "), ContainSubstring("it is not as it was prepared"))))
		Expect(isDone).To(BeTrue())
		Expect(u.IsUnconfirmed() || u.isInterrupted()).To(BeFalse())
		Expect(u.LeftOver()).To(BeEmpty())
		Expect(differing(snapshot(root), before)).To(BeEmpty())
	},
		Entry("that is a file", "/etc/motd", func(root string) {
			Expect(os.WriteFile(filepath.Join(root, "etc/other"), []byte("other"), 0o644)).To(Succeed())
			Expect(os.Rename(filepath.Join(root, "etc/other"), filepath.Join(root, "etc/motd"))).To(Succeed())
		}),
		Entry("that is a directory", "/etc/d", func(root string) { Expect(os.Chmod(filepath.Join(root, "etc/d"), 0o755)).To(Succeed()) }),
		Entry("that changes in place", "/etc/hosts", func(root string) { Expect(os.Chmod(filepath.Join(root, "etc/hosts"), 0o644)).To(Succeed()) }),
	)
})
