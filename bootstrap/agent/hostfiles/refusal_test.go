package hostfiles

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

var _ = Describe("An update of files that is not possible", func() {
	var (
		root   string
		before map[string]string
		u      *Updater
		// refusal is the error of the last update.
		refusal error
	)
	BeforeEach(func() {
		root = newHost()
		u = open(root)
	})

	// expectRefused checks that an update is refused with an error, nothing was changed, and the next one works.
	expectRefused := func(from, to hosttree.Tree, message string) {
		GinkgoHelper()
		before = snapshot(root)
		refusal = u.Apply(hosttree.Changes(from, to), false)
		Expect(refusal).To(MatchError(ContainSubstring(message)))
		Expect(differing(snapshot(root), before)).To(BeEmpty())
		Expect(slots(root)).To(BeEmpty())
		Expect(u.isInterrupted() || u.IsUnconfirmed()).To(BeFalse())
		apply(u, nil, hosttree.Tree{"/opt/works": file("works")})
		apply(u, hosttree.Tree{"/opt/works": file("works")}, nil)
		Expect(differing(snapshot(root), before)).To(BeEmpty())
	}

	It("because others created the directory for slots, says what to do", func() {
		home := filepath.Join(root, "home/core")
		mount(home, "tmpfs", "")
		Expect(os.Symlink("../../etc", filepath.Join(home, ".poolboot"))).To(Succeed())
		refuse := func() {
			GinkgoHelper()
			before := snapshot(root)
			err := u.Apply(hosttree.Changes(nil, hosttree.Tree{"/home/core/x": file("x")}), false)
			Expect(err).To(MatchError(ContainSubstring("/home/core/.poolboot is not a directory that only root can enter: remove it")))
			Expect(differing(snapshot(root), before)).To(BeEmpty())
		}
		refuse()
		Expect(os.Remove(filepath.Join(home, ".poolboot"))).To(Succeed())
		Expect(os.Mkdir(filepath.Join(home, ".poolboot"), 0o700)).To(Succeed())
		Expect(os.Chown(filepath.Join(home, ".poolboot"), 1000, 1000)).To(Succeed())
		refuse()
	})

	It("writes nothing through a link that is placed at the same moment, and is undone", func() {
		before = snapshot(root)
		u.before = func(call, _, other string) {
			if call == "rename" && other == "opt/x/conf.d/new" {
				Expect(os.RemoveAll(filepath.Join(root, "opt/x"))).To(Succeed())
				Expect(os.Symlink("../etc", filepath.Join(root, "opt/x"))).To(Succeed())
			}
		}
		Expect(os.MkdirAll(filepath.Join(root, "opt/x/conf.d"), 0o755)).To(Succeed())
		Expect(u.Apply(hosttree.Changes(nil, hosttree.Tree{"/opt/x/conf.d/new": file("x")}), false)).To(MatchError(ContainSubstring("the update was undone: /opt/x/conf.d/new: ")))
		Expect(os.Remove(filepath.Join(root, "opt/x"))).To(Succeed())
		Expect(differing(snapshot(root), before)).To(BeEmpty())
	})

	It("because a file system is full, reports the path and what to do", func() {
		data := filepath.Join(root, "data")
		Expect(os.Mkdir(data, 0o755)).To(Succeed())
		mount(data, "tmpfs", "size=64k")
		Expect(os.WriteFile(filepath.Join(data, "old"), []byte("old"), 0o600)).To(Succeed())
		expectRefused(nil, hosttree.Tree{
			"/data/a": file("a"), "/data/b": file(strings.Repeat("x", 100<<10)), "/data/old": file("new"), "/etc/motd": file("new"),
		}, "nothing was changed: /data/b: ")
		Expect(refusal).To(MatchError(ContainSubstring("no space left on device: free some space on its file system")))
		Expect(errors.Is(refusal, unix.ENOSPC)).To(BeTrue())
	})

	It("because a path is on a read-only file system, reports it", func() {
		data := filepath.Join(root, "data")
		Expect(os.Mkdir(data, 0o755)).To(Succeed())
		mount(data, "tmpfs", "")
		Expect(unix.Mount("none", data, "", unix.MS_REMOUNT|unix.MS_RDONLY, "")).To(Succeed())
		expectRefused(nil, hosttree.Tree{"/etc/motd": file("new"), "/data/b": file("b")}, "nothing was changed: /data/b: its file system is read-only: mount it writable")
	})

	It("because the kernel lets nobody create files in a directory, reports the file", func() {
		Expect(os.Mkdir(filepath.Join(root, "proc"), 0o755)).To(Succeed())
		mount(filepath.Join(root, "proc"), "proc", "")
		before = snapshot(filepath.Join(root, "etc"))
		var refused *CheckError
		err := u.Apply(hosttree.Changes(nil, hosttree.Tree{"/etc/motd": file("new"), "/proc/sys/kernel/mytest": file("1")}), false)
		Expect(errors.As(err, &refused)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(HavePrefix("nothing was changed: /proc/sys/kernel/mytest: nothing can be written to /proc/sys/kernel (permission denied): correct it")))
		Expect(snapshot(filepath.Join(root, "etc"))).To(Equal(before))
	})

	DescribeTable("because of the attribute immutable, reports the path and how to remove it",
		func(name, target string) {
			setImmutable := func(sign string) {
				GinkgoHelper()
				output, err := exec.Command("chattr", sign+"i", filepath.Join(root, name)).CombinedOutput()
				if err != nil && sign == "+" {
					Skip("the file system of the temporary directory has no attributes: " + string(output))
				}
				Expect(err).NotTo(HaveOccurred())
			}
			parent, err := os.MkdirTemp(os.TempDir(), "host-") // tmpfs has attributes only in new kernels
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(os.RemoveAll, parent)
			root = parent
			installImage(root)
			u = open(root)
			setImmutable("+")
			DeferCleanup(setImmutable, "-")
			expectRefused(nil, hosttree.Tree{target: file("new")}, "nothing was changed: /"+name+": it is immutable: remove the attribute with chattr -ia /"+name)
		},
		Entry("of the file", "etc/motd", "/etc/motd"),
		Entry("of its directory", "etc/conf.d", "/etc/conf.d/new"),
	)

	It("because a directory that Poolboot did not create is where a file should be, reports it", func() {
		expectRefused(nil, hosttree.Tree{"/etc/conf.d": file("x")}, "nothing was changed: /etc/conf.d: it is a directory that Poolboot did not create: remove it")
	})

	It("because others wrote to a directory that should become a file, reports it", func() {
		a := hosttree.Tree{"/etc/x/y": file("y")}
		apply(u, nil, a)
		Expect(os.WriteFile(filepath.Join(root, "etc/x/foreign"), nil, 0o600)).To(Succeed())
		expectRefused(a, hosttree.Tree{"/etc/x": file("x")}, "nothing was changed: /etc/x: it is a directory with files that Poolboot did not write: move them")
	})

	It("because a path is below a file, reports both", func() {
		expectRefused(nil, hosttree.Tree{"/etc/motd/x/y": file("x")}, "nothing was changed: /etc/motd/x/y: it is below /etc/motd, which is not a directory")
	})

	It("because a hard link leads nowhere, reports its target", func() {
		expectRefused(nil, hosttree.Tree{"/etc/x": hardLink("/etc/none")}, "nothing was changed: /etc/x: the hard link leads to /etc/none, which is not a file: correct its target")
	})

	It("because a name or a path is too long, reports it", func() {
		name := strings.Repeat("/"+strings.Repeat("d", 200), 21)
		expectRefused(nil, hosttree.Tree{name: file("x")}, "nothing was changed: "+name+": it, or a part of it, is longer than the system allows: shorten it")
		name = "/etc/" + strings.Repeat("n", 256)
		expectRefused(nil, hosttree.Tree{name: file("x")}, "nothing was changed: "+name+": it, or a part of it, is longer than the system allows: shorten it")
	})

	It("because links lead in a circle, reports it", func() {
		Expect(os.Symlink("loop", filepath.Join(root, "etc/loop"))).To(Succeed())
		expectRefused(nil, hosttree.Tree{"/etc/loop/x": file("x")}, "nothing was changed: /etc/loop/x: it leads through too many symbolic links")
	})

	It("because two paths lead to the same file, reports both", func() {
		Expect(os.Symlink("etc", filepath.Join(root, "configuration"))).To(Succeed())
		expectRefused(nil, hosttree.Tree{"/configuration/x": file("1"), "/etc/x": file("2")}, "nothing was changed: /etc/x: it leads to the same path as /configuration/x")
	})

	It("because it appends to a file, says what to do instead", func() {
		expectRefused(nil, hosttree.Tree{"/etc/motd": {Type: hosttree.File, Appends: true}}, "nothing was changed: /etc/motd: it appends to a file, which can be neither repeated nor undone")
	})

	It("because paths were changed by hand, reports all of them and never contents, and can be forced", func() {
		a := hosttree.Tree{
			"/etc/content": file("secret"), "/etc/mode": file("x"), "/etc/owner": file("x"), "/etc/type": file("x"), "/etc/missing": file("x"), "/etc/link": link("motd"),
		}
		apply(u, nil, a)
		in := func(name string) string { return filepath.Join(root, "etc", name) }
		Expect(os.WriteFile(in("content"), []byte("SECRET"), 0o600)).To(Succeed())
		Expect(os.Chmod(in("mode"), 0o600)).To(Succeed())
		Expect(os.Chown(in("owner"), 1, 1)).To(Succeed())
		Expect(os.Remove(in("type"))).To(Succeed())
		Expect(os.Symlink("motd", in("type"))).To(Succeed())
		Expect(os.Remove(in("missing"))).To(Succeed())
		Expect(os.Remove(in("link"))).To(Succeed())
		Expect(os.Symlink("hosts", in("link"))).To(Succeed())
		before = snapshot(root)

		err := u.Apply(hosttree.Changes(a, nil), false)
		var refused *CheckError
		Expect(errors.As(err, &refused)).To(BeTrue())
		Expect(refused.Differences).To(ConsistOf(update.Drift{Name: "/etc/content", Kind: update.DriftContent}, update.Drift{Name: "/etc/mode", Kind: update.DriftMode}, update.Drift{Name: "/etc/owner", Kind: update.DriftOwner},
			update.Drift{Name: "/etc/type", Kind: update.DriftType}, update.Drift{Name: "/etc/missing", Kind: update.DriftMissing}, update.Drift{Name: "/etc/link", Kind: update.DriftLinkTarget}))
		Expect(err.Error()).To(ContainSubstring("/etc/mode: it was changed since Poolboot wrote it (Mode): restore it, or run kubectl poolboot rollout retry"))
		Expect(strings.ToLower(err.Error())).NotTo(ContainSubstring("secret"))
		Expect(differing(snapshot(root), before)).To(BeEmpty())

		Expect(u.Apply(hosttree.Changes(a, hosttree.Tree{"/etc/mode": file("y")}), true)).To(Succeed())
		Expect(u.Confirm()).To(Succeed())
		Expect(snapshot(root)).To(HaveKeyWithValue("etc/mode", HavePrefix(`-rw-r--r-- 0:0 "y"`)))
		Expect(snapshot(root)).NotTo(HaveKey("etc/content"))
	})

	It("because a link was placed on the way to a path, writes nothing through it, also if forced", func() {
		outside := newDirectory(GinkgoT())
		a := hosttree.Tree{"/etc/x/y": file("1")}
		apply(u, nil, a)
		Expect(os.Rename(filepath.Join(root, "etc/x"), filepath.Join(root, "etc/moved"))).To(Succeed())
		Expect(os.Symlink("moved", filepath.Join(root, "etc/x"))).To(Succeed())
		before = snapshot(root)
		for _, force := range []bool{false, true} {
			err := u.Apply(hosttree.Changes(a, hosttree.Tree{"/etc/x/y": file("2")}), force)
			Expect(err).To(MatchError(ContainSubstring("/etc/x/y: a symbolic link was placed on the way: it led to /etc/x/y and leads to /etc/moved/y: remove the link")))
			Expect(differing(snapshot(root), before)).To(BeEmpty())
		}

		By("a link out of the root leads to the same path in the root, as with Ignition")
		Expect(os.Symlink(outside, filepath.Join(root, "etc/out"))).To(Succeed())
		Expect(os.Symlink("../../../../../../../.."+outside, filepath.Join(root, "etc/up"))).To(Succeed())
		Expect(u.Apply(hosttree.Changes(nil, hosttree.Tree{"/etc/out/a": file("a"), "/etc/up/b": file("b")}), false)).To(Succeed())
		Expect(os.ReadDir(outside)).To(BeEmpty())
		Expect(filepath.Join(root, outside, "a")).To(BeARegularFile())
		Expect(filepath.Join(root, outside, "b")).To(BeARegularFile())
	})

	It("because another agent is running, says so", func() {
		_, err := tryOpen(root)
		Expect(err).To(MatchError(ErrLocked))
		Expect(u.Close()).To(Succeed())
		u = open(root)
	})

	It("because it fails after its commit is undone", func() {
		before = snapshot(root)
		calls := 0
		u.before = func(call, name, other string) {
			if call == "rename" && other == "etc/new/a" {
				calls++
				Expect(os.RemoveAll(filepath.Join(root, "etc/new"))).To(Succeed())
			}
		}
		err := u.Apply(hosttree.Changes(nil, hosttree.Tree{"/etc/motd": file("new"), "/etc/new/a": file("a")}), false)
		Expect(calls).To(Equal(1))
		Expect(err).To(MatchError(And(ContainSubstring("the update was undone: /etc/new/a: "), ContainSubstring("no such file or directory"))))
		Expect(differing(snapshot(root), before)).To(BeEmpty())
		Expect(slots(root)).To(BeEmpty())
	})
})

var _ = Describe("An update of files that is possible", func() {
	It("replaces a program that runs and a file that is open, without changing what has them open", func() {
		root := newHost()
		u := open(root)
		program := filepath.Join(root, "opt/program")
		shell, err := exec.LookPath("sleep")
		Expect(err).NotTo(HaveOccurred())
		contents, err := os.ReadFile(shell)
		Expect(err).NotTo(HaveOccurred())
		Expect(os.WriteFile(program, contents, 0o755)).To(Succeed())
		running := exec.Command(program, "600")
		Expect(running.Start()).To(Succeed())
		DeferCleanup(func() { _ = running.Process.Kill(); _ = running.Wait() })
		opened, err := os.OpenFile(filepath.Join(root, "etc/motd"), os.O_RDWR, 0)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(opened.Close)

		tree := hosttree.Tree{"/opt/program": file("#!/bin/sh\n", mode(0o755)), "/etc/motd": file("new")}
		apply(u, nil, tree)
		Expect(os.ReadFile(program)).To(BeEquivalentTo("#!/bin/sh\n"))
		old := make([]byte, 7)
		_, err = opened.ReadAt(old, 0)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(old)).To(Equal("welcome"))
		apply(u, tree, nil)
		Expect(os.ReadFile(program)).To(Equal(contents))
	})

	It("keeps the other name of a hard link that the image has", func() {
		root := newHost()
		Expect(os.Link(filepath.Join(root, "etc/motd"), filepath.Join(root, "etc/other"))).To(Succeed())
		before := snapshot(root)
		u := open(root)
		tree := hosttree.Tree{"/etc/motd": file("new")}
		apply(u, nil, tree)
		Expect(os.ReadFile(filepath.Join(root, "etc/other"))).To(BeEquivalentTo("welcome to the image\n"))
		apply(u, tree, nil)
		Expect(differing(snapshot(root), before)).To(BeEmpty())
	})

	It("leads a hard link to the new file when only its target changes", func() {
		root := newHost()
		u := open(root)
		a := hosttree.Tree{"/etc/a": file("1"), "/etc/b": hardLink("/etc/a")}
		b := hosttree.Tree{"/etc/a": file("2"), "/etc/b": hardLink("/etc/a")}
		apply(u, nil, a)
		apply(u, a, b)
		Expect(os.ReadFile(filepath.Join(root, "etc/b"))).To(BeEquivalentTo("2"))
		Expect(filepath.Join(root, "etc/b")).To(BeSameFile(filepath.Join(root, "etc/a")))
	})

	It("writes names of 255 bytes and deep paths", func() {
		root := newHost()
		u := open(root)
		deep := strings.Repeat("/"+strings.Repeat("d", 200), 15)
		tree := hosttree.Tree{"/etc/" + strings.Repeat("n", 255): file("x"), deep: file("deep")}
		before := snapshot(root)
		apply(u, nil, tree)
		Expect(u.Differences()).To(BeEmpty())
		apply(u, tree, nil)
		Expect(differing(snapshot(root), before)).To(BeEmpty())
	})

	It("keeps what others wrote to a directory that Poolboot created, until it is empty", func() {
		root := newHost()
		before := snapshot(root)
		u := open(root)
		a := hosttree.Tree{"/opt/x": directory(mode(0o700), owner(1000, 1000)), "/opt/x/y/z": file("z"), "/opt/other": file("1")}
		apply(u, nil, a)
		foreign := filepath.Join(root, "opt/x/y/foreign")
		Expect(os.WriteFile(foreign, nil, 0o600)).To(Succeed())
		b := hosttree.Tree{"/opt/other": file("2")}
		apply(u, a, b)
		Expect(snapshot(root)).To(And(HaveKey("opt/x/y/foreign"), HaveKeyWithValue("opt/x", HavePrefix("drwxr-xr-x 0:0")), Not(HaveKey("opt/x/y/z"))))
		Expect(os.Remove(foreign)).To(Succeed())
		apply(u, b, nil)
		Expect(differing(snapshot(root), before)).To(BeEmpty())
	})
})
