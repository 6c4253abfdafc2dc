package service

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fsnotify/fsnotify"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"golang.org/x/sys/unix"
)

// full makes a watcher get no watches: all of the host are in use.
func full(w *watcher, isOver *atomic.Bool) {
	w.add = func(notify *fsnotify.Watcher, directory string) error {
		if isOver.Load() {
			return notify.Add(directory)
		}
		return syscall.ENOSPC
	}
}

var _ = Describe("Changes of files", func() {
	var logged *gbytes.Buffer
	var prepare func(w *watcher)
	BeforeEach(func() { logged, prepare = gbytes.NewBuffer(), nil })
	begin := func(paths ...string) (*watcher, string) {
		directory := GinkgoT().TempDir()
		root, err := os.OpenRoot(directory)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(root.Close)
		Expect(os.MkdirAll(filepath.Join(directory, "etc"), 0o755)).To(Succeed())
		Expect(os.WriteFile(filepath.Join(directory, "etc/f"), []byte("a"), 0o644)).To(Succeed())
		w := newWatcher(root, slog.New(slog.NewTextHandler(logged, nil)))
		DeferCleanup(w.close)
		w.mu.Lock()
		w.settle = 20 * time.Millisecond
		if prepare != nil {
			prepare(w)
		}
		w.mu.Unlock()
		w.watch(paths)
		return w, directory
	}

	DescribeTable("are found", func(change func(directory string) error) {
		w, directory := begin("/etc/f", "/etc/missing/parent/g", "/etc/systemd/system/a.service.d/")
		Expect(change(directory)).To(Succeed())
		Eventually(w.changed(), "5s").Should(Receive())
	},
		Entry("written", func(d string) error { return os.WriteFile(d+"/etc/f", []byte("b"), 0o644) }),
		Entry("removed", func(d string) error { return os.Remove(d + "/etc/f") }),
		Entry("replaced", func(d string) error {
			_ = os.WriteFile(d+"/etc/tmp", nil, 0o644)
			return os.Rename(d+"/etc/tmp", d+"/etc/f")
		}),
		Entry("another mode", func(d string) error { return os.Chmod(d+"/etc/f", 0o600) }),
		Entry("the directory of a file that is missing", func(d string) error { return os.MkdirAll(d+"/etc/missing/parent", 0o755) }),
		Entry("its directory renamed", func(d string) error { return os.Rename(d+"/etc", d+"/other") }),
	)

	It("are found although a user mounted a FUSE file system that does not answer over other paths", func() {
		w, directory := begin()
		server, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
		if err != nil {
			Skip("this host has no FUSE: " + err.Error())
		}
		end := sync.OnceFunc(func() { _ = unix.Close(server) })
		DeferCleanup(end)
		home := filepath.Join(directory, "home/x/.ssh")
		Expect(os.MkdirAll(home, 0o755)).To(Succeed())
		Expect(unix.Mount("none", home, "fuse.test", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=1000,group_id=1000,allow_other", server))).To(Succeed())
		DeferCleanup(func() { _ = unix.Unmount(home, unix.MNT_DETACH) })
		isWatched := make(chan struct{})
		go func() {
			defer close(isWatched)
			w.replace([]string{"/etc/f", "/home/x/.ssh/keys", "/home/x/.ssh/deep/er/keys", "/home/x/.ssh/d/"})
		}()
		Eventually(isWatched, "5s").Should(BeClosed())
		Expect(os.WriteFile(filepath.Join(directory, "etc/f"), []byte("b"), 0o644)).To(Succeed())
		Eventually(w.changed(), "5s").Should(Receive())
	})

	It("are found in directories that are created later, for any name", func() {
		w, directory := begin("/etc/systemd/system/a.service.d/")
		Expect(os.MkdirAll(directory+"/etc/systemd/system/a.service.d", 0o755)).To(Succeed())
		Eventually(w.changed(), "5s").Should(Receive())
		Expect(os.WriteFile(directory+"/etc/systemd/system/a.service.d/any.conf", nil, 0o644)).To(Succeed())
		Eventually(w.changed(), "5s").Should(Receive())
	})

	DescribeTable("are also found while the kernel does not report them, and the log says so once", func(refuse func(w *watcher, isOver *atomic.Bool), change func(directory string) error) {
		var isOver atomic.Bool
		prepare = func(w *watcher) {
			w.interval = 20 * time.Millisecond
			refuse(w, &isOver)
		}
		w, directory := begin("/etc/f", "/etc/missing/parent/g", "/etc/systemd/system/a.service.d/")
		Eventually(logged).Should(gbytes.Say(`level=WARN .*raise the sysctl.* fs.inotify.max_user_watches .*directories=. .*error="(no space left on device|too many open files)"`))
		Consistently(w.changed(), "200ms").ShouldNot(Receive(), "nothing changed")
		Expect(change(directory)).To(Succeed())
		Eventually(w.changed(), "5s").Should(Receive())
		By("looking again for the next change, once for each")
		Expect(os.WriteFile(directory+"/etc/f", []byte("c"), 0o644)).To(Succeed())
		Eventually(w.changed(), "5s").Should(Receive())
		Expect(logged).NotTo(gbytes.Say("level="), "it is logged once")
		By("being reported by the kernel again")
		isOver.Store(true)
		Eventually(logged, "5s").Should(gbytes.Say("level=INFO .*reports changes of all directories again"))
		Expect(os.Chmod(directory+"/etc/f", 0o600)).To(Succeed())
		Eventually(w.changed(), "5s").Should(Receive())
	},
		Entry("without a watch: a file written", full, func(d string) error { return os.WriteFile(d+"/etc/f", []byte("b"), 0o644) }),
		Entry("without a watch: another mode", full, func(d string) error { return os.Chmod(d+"/etc/f", 0o600) }),
		Entry("without a watch: the directory of a file that is missing", full, func(d string) error { return os.MkdirAll(d+"/etc/missing/parent", 0o755) }),
		Entry("without notifications: a drop-in added", func(w *watcher, isOver *atomic.Bool) {
			w.open = func() (*fsnotify.Watcher, error) {
				if isOver.Load() {
					return fsnotify.NewWatcher()
				}
				return nil, syscall.EMFILE
			}
		}, func(d string) error {
			return errors.Join(os.MkdirAll(d+"/etc/systemd/system/a.service.d", 0o755), os.WriteFile(d+"/etc/systemd/system/a.service.d/b.conf", nil, 0o644))
		}),
	)

	It("are looked for when the kernel lost some of them", func() {
		w, _ := begin("/etc/f")
		w.notify.Errors <- fsnotify.ErrEventOverflow
		Eventually(w.changed(), "5s").Should(Receive())
	})

	It("of other files beside them wake nobody", func() {
		w, directory := begin("/etc/f")
		Expect(os.WriteFile(directory+"/etc/other", []byte("b"), 0o644)).To(Succeed())
		Consistently(w.changed(), "200ms").ShouldNot(Receive())
	})

	It("of paths that left the configuration wake nobody", func() {
		w, directory := begin("/etc/f")
		w.watch([]string{"/usr/f"})
		Expect(os.WriteFile(directory+"/etc/f", []byte("b"), 0o644)).To(Succeed())
		Consistently(w.changed(), "200ms").ShouldNot(Receive())
	})
})
