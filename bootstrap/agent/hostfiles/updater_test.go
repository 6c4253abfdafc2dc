package hostfiles

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
)

var _ = Describe("An update of files", func() {
	var root string
	BeforeEach(func() { root = newHost() })

	It("writes contents, modes with special bits, owners, links and the parents of what it writes", func() {
		apply(open(root), nil, hosttree.Tree{
			"/etc/new/deep/a": file("a", mode(0o4750), owner(1000, 4)),
			"/opt/sticky":     directory(mode(0o1777), owner(1000, 1000)),
			"/etc/empty":      keptFile(),
			"/etc/link":       link("/etc/new/deep/a"),
			"/etc/hard":       hardLink("/etc/new/deep/a"),
		})
		Expect(snapshot(root)).To(And(
			HaveKeyWithValue("etc/new/deep/a", HavePrefix(`urwxr-x--- 1000:4 "a"`)),
			HaveKeyWithValue("etc/hard", ContainSubstring("1000:4")),
			HaveKeyWithValue("etc/new/deep", "drwxr-xr-x 0:0"),
			HaveKeyWithValue("opt/sticky", "dtrwxrwxrwx 1000:1000"),
			HaveKeyWithValue("etc/empty", HavePrefix(`-rw-r--r-- 0:0 ""`)),
			HaveKeyWithValue("etc/link", HavePrefix("Lrwxrwxrwx 0:0 -> /etc/new/deep/a")),
		))
		Expect(filepath.Join(root, "etc/hard")).To(BeSameFile(filepath.Join(root, "etc/new/deep/a")))
		Expect(slots(root)).To(BeEmpty())
	})

	It("restores every file of the image when the configuration does not contain it any more, with inode and label", func() {
		before := snapshot(root)
		inode := inodeOf(root, "etc/image.conf")
		tree := hosttree.Tree{
			"/etc/image.conf":       file("other", mode(0o600)),
			"/etc/issue":            file("not a link any more"),
			"/etc/motd":             link("/etc/hosts"),
			"/etc/hosts":            keptFile(mode(0o600), owner(1000, 1000)),
			"/etc/conf.d":           directory(mode(0o700), owner(1000, 1000)),
			"/etc/conf.d/a.conf":    directory(),
			"/etc/conf.d/a.conf/x":  file("below what was a file"),
			"/home/core/.ssh/a/b/c": file("c"),
		}
		u := open(root)
		apply(u, nil, tree)
		Expect(snapshot(root)).NotTo(Equal(before))
		apply(u, tree, nil)
		Expect(differing(snapshot(root), before)).To(BeEmpty())
		Expect(inodeOf(root, "etc/image.conf")).To(Equal(inode))
		Expect(slots(root)).To(BeEmpty())
	})

	It("knows the links of the configuration that the host has", func() {
		root := newHost()
		u := open(root)
		tree := hosttree.Tree{"/etc/l": link("motd"), "/etc/f": file("1")}
		apply(u, nil, tree)
		Expect(u.Links()).To(Equal(map[string]string{"/etc/l": "motd"}))
		apply(u, tree, nil)
		Expect(u.Links()).To(BeEmpty())
	})

	It("labels a new file like the one that it replaces, or like its directory", func() {
		apply(open(root), nil, hosttree.Tree{"/etc/image.conf": file("other"), "/etc/new": file("new")})
		Expect(snapshot(root)).To(And(
			HaveKeyWithValue("etc/image.conf", HaveSuffix("system_u:object_r:image_t:s0")),
			HaveKeyWithValue("etc/new", HaveSuffix("system_u:object_r:etc_t:s0")),
		))
	})

	It("can be undone until it is confirmed, also by another process", func() {
		a := hosttree.Tree{"/etc/motd": file("a"), "/etc/a/b": file("a"), "/etc/hard": hardLink("/etc/a/b")}
		b := hosttree.Tree{"/etc/motd": file("b"), "/etc/a": file("b"), "/etc/hard": file("b"), "/etc/hosts": keptFile(mode(0o600))}
		u := open(root)
		apply(u, nil, a)
		before := snapshot(root)
		Expect(u.Apply(hosttree.Changes(a, b), false)).To(Succeed())
		Expect(u.IsUnconfirmed()).To(BeTrue())
		Expect(u.Apply(nil, false)).To(MatchError(ErrUnconfirmed))
		Expect(u.Close()).To(Succeed())

		u = open(root)
		Expect(u.Complete()).To(Succeed())
		Expect(u.IsUnconfirmed()).To(BeTrue())
		Expect(u.RollBack()).To(Succeed())
		Expect(differing(snapshot(root), before)).To(BeEmpty())
		apply(u, a, b)
		Expect(u.RollBack()).To(Succeed(), "there is nothing to undo")
		apply(u, b, nil)
		Expect(slots(root)).To(BeEmpty())
	})

	It("changes every type of a path to every other, and back", func() {
		states := map[string]hosttree.Tree{
			"nothing":             {},
			"a file":              {"/etc/x": file("1")},
			"another file":        {"/etc/x": file("2", mode(0o600))},
			"a file without":      {"/etc/x": keptFile(mode(0o640))},
			"a link":              {"/etc/x": link("motd")},
			"a mask":              {"/etc/x": link("/dev/null")},
			"not a mask":          {"/etc/x": unmasked()},
			"a hard link":         {"/etc/x": hardLink("/etc/hosts")},
			"a directory":         {"/etc/x": directory(mode(0o711))},
			"a private directory": {"/etc/x": directory(mode(0o700), owner(1000, 1000))},
			"a path below":        {"/etc/x/y/z": file("3")},
			"another path below":  {"/etc/x/y/z": directory(), "/etc/x/a": link("y/z")},
			"a directory with it": {"/etc/x": directory(mode(0o750)), "/etc/x/y": file("4")},
		}
		for _, image := range []string{"nothing", "a file", "a link", "a mask", "a directory"} {
			for from, a := range states {
				for to, b := range states {
					if image == "a directory" && !isDirectoryLike(a, b) {
						continue
					}
					if below := "/etc/x/y"; (image == "a link" || image == "a mask") && (hasBelow(a, below) || hasBelow(b, below)) {
						continue // it leads elsewhere with the image
					}
					By("image with " + image + ", from " + from + " to " + to)
					installImageState(root, image)
					fresh := freshTree(image, b)
					before := snapshot(root)
					u := open(root)
					isRefused := MatchError(MatchRegexp("^nothing was changed: .*(not a regular file|not a directory|with files that Poolboot did not write)"))
					if err := u.Apply(hosttree.Changes(nil, a), false); err != nil {
						Expect(err).To(isRefused)
						Expect(differing(snapshot(root), before)).To(BeEmpty())
						Expect(u.Close()).To(Succeed())
						continue
					}
					Expect(u.Confirm()).To(Succeed())
					middle := snapshot(root)
					if err := u.Apply(hosttree.Changes(a, b), false); err != nil {
						Expect(err).To(isRefused)
						Expect(fresh).To(BeNil(), "a fresh host can have it")
						Expect(differing(snapshot(root), middle)).To(BeEmpty())
						apply(u, a, nil)
						Expect(differing(snapshot(root), before)).To(BeEmpty())
						Expect(u.Close()).To(Succeed())
						continue
					}
					Expect(u.Confirm()).To(Succeed())
					if fresh != nil {
						Expect(differing(snapshot(root), fresh)).To(BeEmpty())
					}
					Expect(u.Differences()).To(BeEmpty())
					apply(u, b, nil)
					Expect(differing(snapshot(root), before)).To(BeEmpty())
					Expect(slots(root)).To(BeEmpty())
					Expect(u.Close()).To(Succeed())
				}
			}
		}
	})

	It("keeps files on another mount in slots on that mount", func() {
		Expect(os.MkdirAll(filepath.Join(root, "opt/data"), 0o755)).To(Succeed())
		mount(filepath.Join(root, "opt/data"), "tmpfs", "size=1m")
		Expect(os.MkdirAll(filepath.Join(root, "opt/data/x"), 0o755)).To(Succeed())
		Expect(os.WriteFile(filepath.Join(root, "opt/data/x/old"), []byte("old"), 0o600)).To(Succeed())
		before := snapshot(root)
		tree := hosttree.Tree{"/opt/data/x/old": file("new"), "/opt/data/y/z": file("new"), "/etc/motd": file("new")}
		u := open(root)
		apply(u, nil, tree)
		Expect(snapshot(root)).To(HaveKeyWithValue("opt/data/x/old", ContainSubstring(`"new"`)))
		Expect(slots(root)).To(ConsistOf(HavePrefix(filepath.Join(root, "opt/data/.poolboot")), HavePrefix(filepath.Join(root, "var/lib/poolboot/slots"))))
		Expect(os.Stat(filepath.Join(root, "opt/data/.poolboot"))).To(HaveField("Mode()", os.ModeDir|0o700))
		apply(u, tree, nil)
		Expect(differing(snapshot(root), before)).To(BeEmpty())
		Expect(filepath.Join(root, "opt/data/.poolboot")).NotTo(BeADirectory())
	})

	It("keeps its state where only root can enter", func() {
		u := open(root)
		Expect(u.Apply(hosttree.Changes(nil, hosttree.Tree{"/etc/motd": file("a")}), false)).To(Succeed())
		Expect(os.Stat(filepath.Join(root, "var/lib/poolboot"))).To(HaveField("Mode()", os.ModeDir|0o700))
		Expect(os.Stat(filepath.Join(root, "var/lib/poolboot/slots"))).To(HaveField("Mode()", os.ModeDir|0o700))
		Expect(os.Stat(filepath.Join(root, "var/lib/poolboot/files.journal"))).To(HaveField("Mode()", os.FileMode(0o600)))
		journal, err := os.ReadFile(filepath.Join(root, "var/lib/poolboot/files.journal"))
		Expect(err).NotTo(HaveOccurred())
		Expect(string(journal)).NotTo(ContainSubstring("welcome"))
	})
})

func inodeOf(root, name string) uint64 {
	GinkgoHelper()
	var stat unix.Stat_t
	Expect(unix.Lstat(filepath.Join(root, name), &stat)).To(Succeed())
	return stat.Ino
}

// installImageState makes a host with this image at /etc/x.
func installImageState(root, image string) {
	GinkgoHelper()
	Expect(os.RemoveAll(filepath.Join(root, "etc/x"))).To(Succeed())
	Expect(os.RemoveAll(filepath.Join(root, "var/lib/poolboot"))).To(Succeed())
	_ = unix.Lremovexattr(filepath.Join(root, "etc"), selinuxLabel)
	switch image {
	case "a file":
		Expect(os.WriteFile(filepath.Join(root, "etc/x"), []byte("image"), 0o604)).To(Succeed())
	case "a link":
		Expect(os.Symlink("hosts", filepath.Join(root, "etc/x"))).To(Succeed())
	case "a mask":
		Expect(os.Symlink("/dev/null", filepath.Join(root, "etc/x"))).To(Succeed())
	case "a directory":
		Expect(os.Mkdir(filepath.Join(root, "etc/x"), 0o751)).To(Succeed())
		Expect(os.WriteFile(filepath.Join(root, "etc/x/image"), nil, 0o604)).To(Succeed())
	}
}

// freshTree returns what a host with this image has if this is its first configuration.
func freshTree(image string, tree hosttree.Tree) map[string]string {
	GinkgoHelper()
	root := newHost()
	installImageState(root, image)
	u := open(root)
	err := u.Apply(hosttree.Changes(nil, tree), false)
	fresh := snapshot(root)
	Expect(u.Close()).To(Succeed())
	Expect(os.RemoveAll(root)).To(Succeed())
	if err != nil {
		return nil
	}
	return fresh
}

// isDirectoryLike reports whether trees have a directory at /etc/x, or nothing.
func isDirectoryLike(trees ...hosttree.Tree) bool {
	for _, tree := range trees {
		if entry, exists := tree["/etc/x"]; exists && entry.Type != hosttree.Directory && entry.Type != hosttree.Unmasked {
			return false
		}
	}
	return true
}

// hasBelow reports whether a tree has a path at or below this one.
func hasBelow(tree hosttree.Tree, below string) bool {
	for name := range tree {
		if strings.HasPrefix(name, below) {
			return true
		}
	}
	return false
}

// mount mounts a file system until the end of the spec.
func mount(target, kind, options string) {
	GinkgoHelper()
	err := unix.Mount("none", target, kind, 0, options)
	if errors.Is(err, unix.EPERM) {
		Skip("this container can't mount file systems")
	}
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { _ = unix.Unmount(target, unix.MNT_DETACH) })
}
