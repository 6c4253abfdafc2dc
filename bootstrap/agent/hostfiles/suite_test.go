package hostfiles

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"
	"k8s.io/utils/ptr"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
)

func TestHostFiles(t *testing.T) {
	if err := unix.Lsetxattr(newDirectory(t), selinuxLabel, []byte("x"), 0); os.Geteuid() != 0 || err != nil {
		t.Skip("changing owners and labels needs root:", err)
	}
	RegisterFailHandler(Fail)
	RunSpecs(t, "Files of a host")
}

// newHost returns the directory of a host with the files of an image. It is in memory if possible: the specs sync a
// lot.
func newHost() string {
	GinkgoHelper()
	directory := newDirectory(GinkgoT())
	installImage(directory)
	return directory
}

type cleaner interface {
	Helper()
	Fatal(args ...any)
	Cleanup(func())
}

func newDirectory(t cleaner) string {
	t.Helper()
	parent := "/dev/shm"
	if _, err := os.Stat(parent); err != nil {
		parent = ""
	}
	directory, err := os.MkdirTemp(parent, "host-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(directory) })
	return directory
}

// installImage writes the files of an image.
func installImage(root string) {
	GinkgoHelper()
	for _, directory := range []string{"etc/systemd/system", "etc/selinux", "etc/conf.d", "usr/lib", "var/lib", "home/core", "opt"} {
		Expect(os.MkdirAll(filepath.Join(root, directory), 0o755)).To(Succeed())
	}
	for name, contents := range map[string]string{
		"etc/passwd":         "root:x:0:0::/root:/bin/sh\ncore:x:1000:1000::/home/core:/bin/sh\n",
		"etc/group":          "root:x:0:\ncore:x:1000:\nadm:x:4:\n",
		"etc/selinux/config": "SELINUX=disabled\n",
		"etc/motd":           "welcome to the image\n",
		"etc/image.conf":     "image\n",
		"etc/conf.d/a.conf":  "a of the image\n",
		"etc/hosts":          "127.0.0.1 localhost\n",
	} {
		Expect(os.WriteFile(filepath.Join(root, name), []byte(contents), 0o644)).To(Succeed())
	}
	Expect(os.Symlink("motd", filepath.Join(root, "etc/issue"))).To(Succeed())
	Expect(os.Chmod(filepath.Join(root, "etc/image.conf"), 0o640)).To(Succeed())
	Expect(os.Chown(filepath.Join(root, "etc/image.conf"), 1000, 4)).To(Succeed())
	Expect(unix.Lsetxattr(filepath.Join(root, "etc/image.conf"), selinuxLabel, []byte("system_u:object_r:image_t:s0"), 0)).To(Succeed())
	Expect(unix.Lsetxattr(filepath.Join(root, "etc"), selinuxLabel, []byte("system_u:object_r:etc_t:s0"), 0)).To(Succeed())
	Expect(os.Chmod(filepath.Join(root, "home/core"), 0o700)).To(Succeed())
	Expect(os.Chown(filepath.Join(root, "home/core"), 1000, 1000)).To(Succeed())
}

// open opens the files of a host, and closes them after the spec.
func open(directory string) *Updater {
	GinkgoHelper()
	u, err := tryOpen(directory)
	Expect(err).NotTo(HaveOccurred())
	return u
}

func tryOpen(directory string) (*Updater, error) {
	root, err := os.OpenRoot(directory)
	if err != nil {
		return nil, err
	}
	DeferCleanup(root.Close)
	u, err := Open(root)
	if err == nil {
		u.Labels = policyOf
		DeferCleanup(func() { _ = u.Close() })
	}
	return u, err
}

// policyOf returns the labels of a policy that has none for most paths.
func policyOf(class string, paths []string) (labels []string, err error) {
	for _, name := range paths {
		label := ""
		switch class + " " + name {
		case "file /etc/a/b/c", "file /etc/policy.conf", "file /etc/usr.conf", "dir /etc/new", "dir /etc/typed", "lnk_file /etc/systemd/system/m.socket":
			label = "system_u:object_r:policy_" + class + "_t:s0"
		}
		labels = append(labels, label)
	}
	return labels, nil
}

// update applies and confirms the update from one tree to another.
func apply(u *Updater, from, to hosttree.Tree) {
	GinkgoHelper()
	Expect(u.Apply(hosttree.Changes(from, to), false)).To(Succeed())
	Expect(u.Confirm()).To(Succeed())
}

// snapshot describes everything below a directory but Poolboot's own state, by path.
func snapshot(root string) map[string]string {
	GinkgoHelper()
	links := map[uint64]string{}
	entries := map[string]string{}
	Expect(filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		if relative == "var/lib/poolboot" || entry.Name() == foreignSlotsName {
			return fs.SkipDir
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		stat := info.Sys().(*syscall.Stat_t)
		text := fmt.Sprintf("%s %d:%d", info.Mode(), stat.Uid, stat.Gid)
		switch {
		case info.Mode().IsRegular():
			contents, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			text += fmt.Sprintf(" %q", contents)
			if len(contents) > 200 {
				text = fmt.Sprintf("%s %x", text[:200], sha256.Sum256(contents))
			}
			if first, exists := links[stat.Ino]; exists {
				text += " = " + first
			} else if links[stat.Ino] = relative; stat.Nlink == 0 {
				text += " unlinked"
			}
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := os.Readlink(name)
			if err != nil {
				return err
			}
			text += " -> " + target
		}
		label := make([]byte, 256)
		if size, err := unix.Lgetxattr(name, selinuxLabel, label); err == nil {
			text += " " + string(label[:size])
		}
		entries[relative] = text
		return nil
	})).To(Succeed())
	return entries
}

// differing returns what differs between two snapshots.
func differing(got, want map[string]string) (lines []string) {
	for name, text := range got {
		if want[name] != text {
			lines = append(lines, fmt.Sprintf("%s: got %q, want %q", name, text, want[name]))
		}
	}
	for name, text := range want {
		if _, exists := got[name]; !exists {
			lines = append(lines, fmt.Sprintf("%s: got nothing, want %q", name, text))
		}
	}
	return lines
}

// slots returns what is left in the slots of a host.
func slots(root string) (names []string) {
	GinkgoHelper()
	Expect(filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && (strings.Contains(name, "/"+slotsName+"/") || strings.Contains(name, "/"+foreignSlotsName+"/")) {
			names = append(names, name)
		}
		return err
	})).To(Succeed())
	return names
}

// Entries of trees.

func file(contents string, more ...func(*hosttree.Entry)) hosttree.Entry {
	return with(hosttree.Entry{Type: hosttree.File, Contents: []byte(contents), Mode: ptr.To[uint32](0o644), UID: ptr.To(0), GID: ptr.To(0)}, more)
}

func keptFile(more ...func(*hosttree.Entry)) hosttree.Entry {
	return with(hosttree.Entry{Type: hosttree.File}, more)
}

func directory(more ...func(*hosttree.Entry)) hosttree.Entry {
	return with(hosttree.Entry{Type: hosttree.Directory}, more)
}

func link(target string) hosttree.Entry { return hosttree.Entry{Type: hosttree.Link, Target: target} }

func hardLink(target string) hosttree.Entry {
	return hosttree.Entry{Type: hosttree.HardLink, Target: target}
}

func unmasked() hosttree.Entry { return hosttree.Entry{Type: hosttree.Unmasked} }

func with(entry hosttree.Entry, more []func(*hosttree.Entry)) hosttree.Entry {
	for _, change := range more {
		change(&entry)
	}
	return entry
}

func mode(bits uint32) func(*hosttree.Entry) { return func(e *hosttree.Entry) { e.Mode = &bits } }

func owner(uid, gid int) func(*hosttree.Entry) {
	return func(e *hosttree.Entry) { e.UID, e.GID = &uid, &gid }
}
