package hostfiles

import (
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

var _ = Describe("A difference between a host and its configuration", func() {
	var (
		root string
		u    *Updater
	)
	tree := hosttree.Tree{
		"/etc/dir/sub/file":                 file("sub"),
		"/etc/dir/file":                     file("file", mode(0o640), owner(1000, 4)),
		"/etc/dir":                          directory(mode(0o750)),
		"/etc/link":                         link("motd"),
		"/etc/hard":                         hardLink("/etc/dir/file"),
		"/etc/kept":                         keptFile(),
		"/etc/systemd/system/a.service":     file("a"),
		"/etc/systemd/system/b.service.d/x": file("not a drop-in"),
		"/etc/systemd/system/b.service.d/10-b.conf": file("b"),
		"/etc/systemd/system/m.service":             unmasked(),
	}
	BeforeEach(func() {
		root = newHost()
		u = open(root)
		apply(u, nil, tree)
	})
	in := func(name string) string { return filepath.Join(root, "etc", name) }
	write := func(name, contents string) {
		GinkgoHelper()
		Expect(os.MkdirAll(filepath.Dir(in(name)), 0o755)).To(Succeed())
		Expect(os.WriteFile(in(name), []byte(contents), 0o644)).To(Succeed())
	}
	symlink := func(target, name string) {
		GinkgoHelper()
		Expect(os.RemoveAll(in(name))).To(Succeed())
		Expect(os.Symlink(target, in(name))).To(Succeed())
	}

	It("is not reported while there is none", func() {
		Expect(u.Differences()).To(BeEmpty())
		write("kept", "others can change its contents")
		write("systemd/system/c.service.d/10.conf", "a drop-in of a unit that is not configured")
		write("systemd/system/b.service.d/y", "not a drop-in")
		Expect(u.Differences()).To(BeEmpty())
	})

	It("is reported as far as it is known if the path can't be read, and not if the process can't read any", func() {
		Expect(addDrift(nil, "/etc/a", []update.DriftKind{update.DriftMode}, unix.EIO)).To(Equal([]update.Drift{{Name: "/etc/a", Kind: update.DriftMode}, {Name: "/etc/a", Kind: update.DriftUnreadable}}))
		_, err := addDrift(nil, "/etc/a", nil, unix.EMFILE)
		Expect(err).To(MatchError(unix.EMFILE))
	})

	DescribeTable("is reported with path and kind, and can be repaired",
		func(change func(), want ...update.Drift) {
			before := snapshot(root)
			Expect(u.Differences()).To(BeEmpty())
			Expect(u.ChangesTo(tree)).To(BeEmpty())
			change()
			Expect(u.Differences("image.service")).To(Equal(want))
			Expect(u.Differences("image.service")).To(Equal(want))

			By("it can be repaired, apart from what Poolboot does not manage")
			changes, err := u.ChangesTo(tree)
			Expect(err).NotTo(HaveOccurred())
			if want[0].Kind == update.DriftAdditionalDropIn {
				Expect(changes).To(BeEmpty())
				return
			}
			Expect(u.Apply(changes, true)).To(Succeed())
			Expect(u.Confirm()).To(Succeed())
			Expect(u.Differences()).To(BeEmpty())
			Expect(os.RemoveAll(in("moved"))).To(Succeed())
			Expect(differing(snapshot(root), before)).To(BeEmpty())
		},
		Entry("contents of another size", func() { write("systemd/system/a.service", "other") }, update.Drift{Name: "/etc/systemd/system/a.service", Kind: update.DriftContent}),
		Entry("contents of the same size", func() { write("systemd/system/a.service", "b") }, update.Drift{Name: "/etc/systemd/system/a.service", Kind: update.DriftContent}),
		Entry("contents and time", func() {
			before, err := os.Stat(in("systemd/system/a.service"))
			Expect(err).NotTo(HaveOccurred())
			write("systemd/system/a.service", "b")
			Expect(os.Chtimes(in("systemd/system/a.service"), before.ModTime(), before.ModTime())).To(Succeed())
		}, update.Drift{Name: "/etc/systemd/system/a.service", Kind: update.DriftContent}),
		Entry("a mode", func() { Expect(os.Chmod(in("dir/file"), 0o641)).To(Succeed()) }, update.Drift{Name: "/etc/dir/file", Kind: update.DriftMode}),
		Entry("capabilities", func() {
			Expect(unix.Lsetxattr(in("systemd/system/a.service"), capabilities, []byte("\x01\x00\x00\x02\x00\x20\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"), 0)).To(Succeed())
		}, update.Drift{Name: "/etc/systemd/system/a.service", Kind: update.DriftCapabilities}),
		Entry("an owner", func() { Expect(os.Chown(in("dir/file"), 1000, 5)).To(Succeed()) }, update.Drift{Name: "/etc/dir/file", Kind: update.DriftOwner}),
		Entry("all of them", func() {
			write("dir/file", "other")
			Expect(os.Chmod(in("dir/file"), 0o604)).To(Succeed())
			Expect(os.Chown(in("dir/file"), 0, 4)).To(Succeed())
		}, update.Drift{Name: "/etc/dir/file", Kind: update.DriftMode}, update.Drift{Name: "/etc/dir/file", Kind: update.DriftOwner}, update.Drift{Name: "/etc/dir/file", Kind: update.DriftContent}),
		Entry("a missing file", func() { Expect(os.Remove(in("systemd/system/a.service"))).To(Succeed()) }, update.Drift{Name: "/etc/systemd/system/a.service", Kind: update.DriftMissing}),
		Entry("a missing directory", func() { Expect(os.RemoveAll(in("systemd/system/b.service.d"))).To(Succeed()) },
			update.Drift{Name: "/etc/systemd/system/b.service.d/10-b.conf", Kind: update.DriftMissing}, update.Drift{Name: "/etc/systemd/system/b.service.d/x", Kind: update.DriftMissing}),
		Entry("a type", func() { symlink("motd", "systemd/system/a.service") }, update.Drift{Name: "/etc/systemd/system/a.service", Kind: update.DriftType}),
		Entry("a pipe, without waiting for it", func() {
			Expect(os.Remove(in("systemd/system/a.service"))).To(Succeed())
			Expect(unix.Mkfifo(in("systemd/system/a.service"), 0o644)).To(Succeed())
		}, update.Drift{Name: "/etc/systemd/system/a.service", Kind: update.DriftType}),
		Entry("a link on the way", func() {
			Expect(os.Rename(in("dir"), in("moved"))).To(Succeed())
			symlink("moved", "dir")
		}, update.Drift{Name: "/etc/dir", Kind: update.DriftType}),
		Entry("a link that leads elsewhere", func() { symlink("hosts", "link") }, update.Drift{Name: "/etc/link", Kind: update.DriftLinkTarget}),
		Entry("a hard link that leads elsewhere", func() {
			Expect(os.Remove(in("hard"))).To(Succeed())
			Expect(os.Link(in("motd"), in("hard"))).To(Succeed())
		}, update.Drift{Name: "/etc/hard", Kind: update.DriftLinkTarget}),
		Entry("a unit that is masked", func() { symlink("/dev/null", "systemd/system/m.service") }, update.Drift{Name: "/etc/systemd/system/m.service", Kind: update.DriftType}),
		Entry("an additional drop-in of a configured unit", func() { write("systemd/system/a.service.d/50.conf", "") },
			update.Drift{Name: "/etc/systemd/system/a.service.d/50.conf", Kind: update.DriftAdditionalDropIn}),
		Entry("beside a configured one", func() { write("systemd/system/b.service.d/50.conf", "") },
			update.Drift{Name: "/etc/systemd/system/b.service.d/50.conf", Kind: update.DriftAdditionalDropIn}),
		Entry("of a unit of the image", func() { write("systemd/system/image.service.d/50.conf", "") },
			update.Drift{Name: "/etc/systemd/system/image.service.d/50.conf", Kind: update.DriftAdditionalDropIn}),
	)

	It("costs no reading of contents that did not change", func() {
		old := time.Now().Add(-time.Hour)
		Expect(os.Chtimes(in("dir/file"), old, old)).To(Succeed())
		Expect(u.Differences()).To(BeEmpty())
		Expect(u.sums).To(BeEmpty(), "a file that just changed is read again")
		Eventually(func() int {
			Expect(u.Differences()).To(BeEmpty())
			return len(u.sums)
		}, "10s", "100ms").Should(Equal(5), "the files are older than a second")
		write("dir/file", "FILE")
		Expect(os.Chtimes(in("dir/file"), old, old)).To(Succeed())
		Expect(u.Differences()).To(ConsistOf(update.Drift{Name: "/etc/dir/file", Kind: update.DriftContent}), "the change hides its time")
		write("dir/file", "file")
		Eventually(func() int {
			Expect(u.Differences()).To(BeEmpty())
			return len(u.sums)
		}, "10s", "100ms").Should(Equal(5), "the files are older than a second again")
		for name, known := range u.sums {
			known.sum = "remembered"
			u.sums[name] = known
		}
		Expect(u.Differences()).To(HaveLen(5))
		write("dir/file", "FILE")
		Expect(u.Differences()).To(ContainElement(update.Drift{Name: "/etc/dir/file", Kind: update.DriftContent}))
		write("dir/file", "file")
		Expect(u.Differences()).NotTo(ContainElement(update.Drift{Name: "/etc/dir/file", Kind: update.DriftContent}))
	})
})
