package hostfiles

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
)

var _ = Describe("Files that their owner wrote as the configuration has them, or otherwise", func() {
	for _, undo := range []bool{false, true} {
		how := map[bool]string{false: "the configuration drops them", true: "the update is undone"}[undo]
		It("are the same files again, with their attributes, when "+how, func() {
			root := newHost()
			at := func(name string) string { return filepath.Join(root, name) }
			write := func(name, contents string, mode os.FileMode, uid, gid int) {
				Expect(os.WriteFile(at(name), []byte(contents), 0o600)).To(Succeed())
				Expect(os.Chown(at(name), uid, gid)).To(Succeed())
				Expect(os.Chmod(at(name), mode)).To(Succeed())
			}
			names := []string{"etc/same", "etc/owner", "etc/cap", "etc/link", "etc/samelink", "etc/xattr", "etc/hard", "etc/sub", "etc/sub/f", "etc/target"}
			write("etc/same", "same", 0o644, 0, 0)
			write("etc/owner", "same", 0o600, 1000, 4)
			write("etc/cap", "same", 0o755, 0, 0)
			Expect(unix.Lsetxattr(at("etc/cap"), "security.capability", []byte("\x01\x00\x00\x02\x00\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00"), 0)).To(Succeed())
			write("etc/xattr", "owner", 0o644, 0, 0)
			Expect(unix.Lsetxattr(at("etc/xattr"), "trusted.owner", []byte("1"), 0)).To(Succeed())
			write("etc/target", "same", 0o644, 0, 0)
			Expect(os.Symlink("target", at("etc/link"))).To(Succeed())
			Expect(os.Symlink("target", at("etc/samelink"))).To(Succeed())
			Expect(os.Link(at("etc/hosts"), at("etc/hard"))).To(Succeed())
			Expect(os.Mkdir(at("etc/sub"), 0o711)).To(Succeed())
			write("etc/sub/f", "owner", 0o4755, 1000, 1000)
			state := func() map[string]string {
				result := map[string]string{}
				for _, name := range names {
					var stat syscall.Stat_t
					Expect(syscall.Lstat(at(name), &stat)).To(Succeed())
					value := make([]byte, 64)
					n, _ := unix.Lgetxattr(at(name), "security.capability", value)
					m, _ := unix.Lgetxattr(at(name), "trusted.owner", value)
					if stat.Mode&syscall.S_IFMT == syscall.S_IFDIR {
						stat.Mtim = syscall.Timespec{}
					}
					result[name] = fmt.Sprint(stat.Ino, stat.Mode, stat.Uid, stat.Gid, stat.Nlink, stat.Mtim, n, m)
				}
				return result
			}
			before, contents := state(), snapshot(root)
			tree := hosttree.Tree{
				"/etc/same": file("same"), "/etc/owner": file("same", mode(0o644), owner(0, 0)), "/etc/cap": file("same", mode(0o755)),
				"/etc/xattr": file("pool"), "/etc/link": file("same"), "/etc/samelink": link("target"), "/etc/hard": file("pool"),
				"/etc/sub": directory(mode(0o700)), "/etc/sub/f": file("pool"),
			}
			u := open(root)
			Expect(u.Apply(hosttree.Changes(nil, tree), true)).To(Succeed())
			Expect(state()["etc/same"]).To(Equal(before["etc/same"]))
			Expect(state()["etc/samelink"]).To(Equal(before["etc/samelink"]))
			if undo {
				Expect(u.RollBack()).To(Succeed())
			} else {
				Expect(u.Confirm()).To(Succeed())
				apply(u, tree, nil)
			}
			Expect(state()).To(Equal(before))
			Expect(differing(snapshot(root), contents)).To(BeEmpty())
			Expect(slots(root)).To(BeEmpty())
		})
	}
})
