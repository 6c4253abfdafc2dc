package hostfiles

import (
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"
)

// shadow is what the disk of a host has after a power failure: a model of the host's files that follows each system
// call. What is synced is on the disk. What is not can be there or be missing, in any combination, but a rename is
// there in both directories or in none of them, as in every file system with a journal. Contents that are not synced
// are missing.
type shadow struct {
	root string
	// names are the files that the running host sees, by path.
	names map[string]*inode
	// pending are changes of directories that are not synced, in order.
	pending []change
	// disk are the files on the disk, by directory and name.
	disk map[entry]*inode
}

// inode is a file, directory or link as it is on the disk.
type inode struct {
	kind     uint32
	meta     meta
	contents []byte
	target   string
	label    string
}

type entry struct {
	directory *inode
	name      string
}

// change is one system call: it sets or removes names in directories.
type change map[entry]*inode

// newShadow returns the model of a host all of whose files are on the disk.
func newShadow(root string) *shadow {
	GinkgoHelper()
	s := &shadow{root: root, names: map[string]*inode{}, disk: map[entry]*inode{}}
	known := map[uint64]*inode{}
	Expect(filepath.WalkDir(root, func(name string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		number := inodeOf(root, relative)
		file := known[number]
		if file == nil {
			file = &inode{}
			s.read(relative, file)
			known[number] = file
		}
		s.names[relative] = file
		if relative != "." {
			s.disk[entry{s.names[path.Dir(relative)], path.Base(relative)}] = file
		}
		return nil
	})).To(Succeed())
	return s
}

// read reads a file as it is now.
func (s *shadow) read(name string, file *inode) {
	GinkgoHelper()
	full := filepath.Join(s.root, name)
	var stat syscall.Stat_t
	Expect(syscall.Lstat(full, &stat)).To(Succeed())
	file.kind, file.meta = stat.Mode&syscall.S_IFMT, metaOf(&stat)
	label := make([]byte, 256)
	if size, err := unix.Lgetxattr(full, selinuxLabel, label); err == nil {
		file.label = string(label[:size])
	}
	var err error
	switch file.kind {
	case syscall.S_IFREG:
		file.contents, err = os.ReadFile(full)
	case syscall.S_IFLNK:
		file.target, err = os.Readlink(full)
	}
	Expect(err).NotTo(HaveOccurred())
}

// at returns the entry of a path.
func (s *shadow) at(name string) entry { return entry{s.names[path.Dir(name)], path.Base(name)} }

// before follows a system call that is about to happen.
func (s *shadow) before(call, name, other string) {
	GinkgoHelper()
	switch call {
	case "create":
		s.add(name, &inode{kind: syscall.S_IFREG, meta: meta{Mode: 0o600}})
	case "mkdir":
		if s.names[name] == nil {
			s.add(name, &inode{kind: syscall.S_IFDIR, meta: meta{Mode: 0o700}})
		}
	case "symlink":
		s.add(other, &inode{kind: syscall.S_IFLNK, target: name, meta: meta{Mode: 0o777}})
	case "link":
		s.add(other, s.names[name])
	case "remove":
		s.pending = append(s.pending, change{s.at(name): nil})
		delete(s.names, name)
	case "rename":
		s.pending = append(s.pending, change{s.at(name): nil, s.at(other): s.names[name]})
		s.names[other] = s.names[name]
		delete(s.names, name)
	case "sync":
		file := s.names[name]
		s.read(name, file)
		s.settle(func(c change) bool {
			for e := range c {
				if e.directory == file {
					return true
				}
			}
			return false
		})
		for name, link := range s.names {
			if link.kind == syscall.S_IFLNK && s.names[path.Dir(name)] == file {
				s.read(name, link) // links can't be synced on their own
			}
		}
	}
}

func (s *shadow) add(name string, file *inode) {
	s.pending = append(s.pending, change{s.at(name): file})
	s.names[name] = file
}

// settle writes pending changes to the disk, with all earlier ones of the same names.
func (s *shadow) settle(isChosen func(change) bool) {
	needed := map[entry]bool{}
	var chosen, rest []change
	for _, c := range slices.Backward(s.pending) {
		choose := isChosen(c)
		for e := range c {
			choose = choose || needed[e]
		}
		if !choose {
			rest = append(rest, c)
			continue
		}
		for e := range c {
			needed[e] = true
		}
		chosen = append(chosen, c)
	}
	for _, c := range slices.Backward(chosen) {
		for e, file := range c {
			if file == nil {
				delete(s.disk, e)
			} else {
				s.disk[e] = file
			}
		}
	}
	slices.Reverse(rest)
	s.pending = rest
}

// fail returns a new host with what is on the disk after a power failure now. Of what is not synced, it has what chance
// decides, or nothing.
func (s *shadow) fail(chance *rand.Rand) string {
	GinkgoHelper()
	after := &shadow{pending: slices.Clone(s.pending), disk: map[entry]*inode{}}
	for e, file := range s.disk {
		after.disk[e] = file
	}
	after.settle(func(change) bool { return chance != nil && chance.IntN(2) == 0 })
	children := map[*inode][]entry{}
	for e := range after.disk {
		children[e.directory] = append(children[e.directory], e)
	}
	root, written := newDirectory(GinkgoT()), map[*inode]string{}
	var write func(name string, file *inode)
	write = func(name string, file *inode) {
		full := filepath.Join(root, name)
		if first, exists := written[file]; exists {
			Expect(os.Link(first, full)).To(Succeed())
			return
		}
		written[file] = full
		switch file.kind {
		case syscall.S_IFDIR:
			if name != "." {
				Expect(os.Mkdir(full, 0o700)).To(Succeed())
			}
		case syscall.S_IFLNK:
			Expect(os.Symlink(file.target, full)).To(Succeed())
		default:
			Expect(os.WriteFile(full, file.contents, 0o600)).To(Succeed())
		}
		Expect(os.Lchown(full, file.meta.UID, file.meta.GID)).To(Succeed())
		if file.kind != syscall.S_IFLNK {
			Expect(unix.Chmod(full, file.meta.Mode)).To(Succeed())
		}
		if file.label != "" {
			Expect(unix.Lsetxattr(full, selinuxLabel, []byte(file.label), 0)).To(Succeed())
		}
		for _, e := range children[file] {
			write(path.Join(name, e.name), after.disk[e])
		}
	}
	write(".", s.names["."])
	return root
}
