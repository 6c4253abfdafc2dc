package hostfiles

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sys/unix"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// program is the Ignition program, which `make binaries` builds.
const program = "../../../bin/ignition"

// pristine has a copy of the image in every host, as OSTree has in /usr/etc.
const pristine = "usr/image"

// originals finds files of the image in the copy.
func originals(root string) func(name string) (string, error) {
	return func(name string) (string, error) {
		copied := filepath.Join("/", pristine, name)
		_, err := os.Lstat(filepath.Join(root, copied))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
			return "", nil
		}
		return copied, err
	}
}

// newPlainHost returns a host with the image and a copy of it, and without labels, which this Ignition does not set.
func newPlainHost() string {
	GinkgoHelper()
	root := newDirectory(GinkgoT())
	for _, at := range []string{root, filepath.Join(root, pristine)} {
		installImage(at)
		for _, name := range []string{"etc", "etc/image.conf"} {
			Expect(unix.Lremovexattr(filepath.Join(at, name), selinuxLabel)).To(Succeed())
		}
	}
	return root
}

// runIgnition runs Ignition on a host, as in its first boot.
func runIgnition(root string, document []byte) {
	GinkgoHelper()
	if _, err := os.Stat(program); err != nil {
		Skip(program + " does not exist: run make binaries")
	}
	state := newDirectory(GinkgoT())
	config := filepath.Join(state, "config.ign")
	Expect(os.WriteFile(config, document, 0o600)).To(Succeed())
	for _, stage := range []string{"fetch", "files"} {
		run := exec.Command(program, "-platform", "file", "-stage", stage, "-root", root, "-log-to-stdout",
			"-config-cache", filepath.Join(state, "cache"), "-state-file", filepath.Join(state, "state"), "-neednet", filepath.Join(state, "neednet"))
		run.Env = append(os.Environ(), "IGNITION_CONFIG_FILE="+config)
		output, err := run.CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(output))
	}
	Expect(os.Remove(filepath.Join(root, "etc/.ignition-result.json"))).To(Succeed())
	Expect(os.RemoveAll(state)).To(Succeed())
}

// treeOf returns what a document writes to a host.
func treeOf(root string, document []byte) hosttree.Tree {
	GinkgoHelper()
	config, err := ignition.Parse(document)
	Expect(err).NotTo(HaveOccurred(), string(document))
	tree, err := hosttree.New(config).On(hostOf(root))
	Expect(err).NotTo(HaveOccurred())
	return tree
}

// hostOf returns the host below a directory.
func hostOf(root string) hosttree.System {
	GinkgoHelper()
	passwd, err := os.ReadFile(filepath.Join(root, "etc/passwd"))
	Expect(err).NotTo(HaveOccurred())
	group, err := os.ReadFile(filepath.Join(root, "etc/group"))
	Expect(err).NotTo(HaveOccurred())
	return hosttree.System{Accounts: hosttree.ParseAccounts(passwd, group)}
}

// object is a JSON object.
type object map[string]any

// randomDocument returns a valid Ignition document for the image, with paths of a small set, so that two documents have
// many in common.
func randomDocument(chance *rand.Rand) []byte {
	GinkgoHelper()
	pick := func(n int) bool { return chance.IntN(n) == 0 }
	one := func(options ...string) string { return options[chance.IntN(len(options))] }
	owned := func(node object) object {
		switch chance.IntN(4) {
		case 0:
			node["user"], node["group"] = object{"id": chance.IntN(3)}, object{"id": 4}
		case 1:
			node["user"], node["group"] = object{"name": "core"}, object{"name": "adm"}
		}
		return node
	}
	var files, directories, links []object
	regular := []string{}
	addFile := func(name string) {
		node := owned(object{"path": name, "overwrite": strings.Contains(name, "image") || strings.Contains(name, "motd") || strings.Contains(name, "a.conf") || pick(2)})
		if !pick(3) {
			node["mode"] = []int{0o600, 0o644, 0o755, 0o4750, 0o2711, 0o1777}[chance.IntN(6)]
		}
		if !pick(5) {
			node["contents"] = object{"source": "data:," + one("", "1", "2", "%0Alines%0A")}
			regular = append(regular, name)
			if pick(4) {
				node["append"] = []object{{"source": "data:,more"}}
			}
		} else {
			node["overwrite"] = false
		}
		files = append(files, node)
	}
	addDirectory := func(name string) {
		node := owned(object{"path": name})
		if pick(2) {
			node["mode"] = []int{0o700, 0o755, 0o1777}[chance.IntN(3)]
		}
		directories = append(directories, node)
	}
	for _, name := range []string{"/etc/f0", "/etc/f1", "/etc/motd", "/etc/image.conf", "/etc/conf.d/a.conf", "/etc/conf.d/b.conf", "/etc/n/a", "/etc/n/m/b", "/opt/p/q"} {
		if pick(2) {
			addFile(name)
		}
	}
	for _, name := range []string{"/etc/n", "/etc/n/m", "/opt/p", "/opt/e", "/etc/conf.d", "/etc/cron"} {
		if pick(3) {
			addDirectory(name)
		}
	}
	for _, name := range []string{"/etc/l0", "/etc/l1/l", "/etc/issue"} {
		if pick(2) {
			links = append(links, object{"path": name, "target": one("motd", "/etc/hosts", "../none"), "overwrite": true})
		}
	}
	if len(regular) > 0 && pick(2) {
		links = append(links, object{"path": "/etc/h0", "target": regular[chance.IntN(len(regular))], "hard": true, "overwrite": true})
	}
	switch chance.IntN(6) { // one path with any type
	case 0:
		addFile("/etc/t")
	case 1:
		addDirectory("/etc/t")
	case 2:
		addFile("/etc/t/x")
	case 3:
		links = append(links, object{"path": "/etc/t", "target": "conf.d", "overwrite": true})
	case 4:
		links = append(links, object{"path": "/etc/t/y", "target": "z", "overwrite": true})
		addDirectory("/etc/t")
	}
	var units []object
	for _, name := range []string{"a.service", "b@.service", "b@1.service", "b@2.service", "c.socket"} {
		if pick(2) {
			continue
		}
		unit := object{"name": name}
		if pick(2) && !strings.Contains(name, "@") { // for instances, Ignition needs a running systemd
			unit["enabled"] = true
		}
		if pick(2) {
			unit["contents"] = "[Unit]\nDescription=" + one("1", "2") + "\n"
		}
		if pick(3) {
			unit["dropins"] = []object{{"name": "10.conf", "contents": one("", "[Unit]\n")}, {"name": "20.conf", "contents": "[Service]\n"}}[:1+chance.IntN(2)]
		}
		if pick(3) {
			unit["mask"] = pick(2)
		}
		units = append(units, unit)
	}
	document, err := json.Marshal(object{
		"ignition": object{"version": "3.5.0"},
		"storage":  object{"files": files, "directories": directories, "links": links},
		"systemd":  object{"units": units},
	})
	Expect(err).NotTo(HaveOccurred())
	return document
}

// withoutLinkOwners removes the owners of symbolic links from a snapshot: Ignition gives a link the owner of what it
// leads to, if that exists already. It has no effect.
func withoutLinkOwners(entries map[string]string) map[string]string {
	for name, text := range entries {
		if kind, rest, _ := strings.Cut(text, " "); strings.HasPrefix(kind, "L") {
			_, target, _ := strings.Cut(rest, " ")
			entries[name] = kind + " " + target
		}
	}
	return entries
}

var _ = Describe("A host that Ignition installed", func() {
	// expectSame checks that a host that changes from one configuration to the next ones is like one that Ignition just
	// installed, and that everything can be undone.
	expectSame := func(documents ...[]byte) {
		GinkgoHelper()
		root := newPlainHost()
		image := snapshot(root)
		runIgnition(root, documents[0])
		u := open(root)
		u.original = originals(root)
		tree := treeOf(root, documents[0])
		Expect(u.Adopt(tree)).To(Succeed())
		Expect(u.Differences()).To(BeEmpty(), "%s", documents[0])
		for _, document := range documents[1:] {
			fresh := newPlainHost()
			runIgnition(fresh, document)
			before, next := snapshot(root), treeOf(root, document)
			context := fmt.Sprintf("from %s\nto %s", documents[0], document)
			changes, err := u.ChangesTo(next)
			Expect(err).NotTo(HaveOccurred())
			Expect(u.Apply(changes, false)).To(Succeed(), "%s", context)
			Expect(differing(withoutLinkOwners(snapshot(root)), withoutLinkOwners(snapshot(fresh)))).To(BeEmpty(), "%s", context)
			Expect(u.RollBack()).To(Succeed(), "%s", context)
			Expect(differing(snapshot(root), before)).To(BeEmpty(), "%s", context)
			apply(u, tree, next)
			Expect(differing(withoutLinkOwners(snapshot(root)), withoutLinkOwners(snapshot(fresh)))).To(BeEmpty(), "%s", context)
			Expect(u.Differences()).To(BeEmpty(), "%s", context)
			tree = next
			Expect(os.RemoveAll(fresh)).To(Succeed())
		}
		apply(u, tree, nil)
		Expect(differing(snapshot(root), image)).To(BeEmpty(), "%s", documents[0])
		Expect(slots(root)).To(BeEmpty())
		Expect(u.Close()).To(Succeed())
		Expect(os.RemoveAll(root)).To(Succeed())
	}

	It("is the same after an update as a host that was installed with the new configuration", func() {
		chance := rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 1))
		for range 5 {
			expectSame(randomDocument(chance), randomDocument(chance), randomDocument(chance))
		}
	})

	It("has the SSH keys of its users", func() {
		document := []byte(`{"ignition":{"version":"3.5.0"},"passwd":{"users":[{"name":"core","sshAuthorizedKeys":["ssh-ed25519 1","ssh-ed25519 2"]}]}}`)
		root := newPlainHost()
		home := filepath.Join(root, "home/core")
		Expect(os.MkdirAll(filepath.Join(home, ".ssh/authorized_keys.d"), 0o755)).To(Succeed())
		u := open(root)
		apply(u, nil, treeOf(root, document))
		Expect(snapshot(root)).To(And(
			HaveKeyWithValue("home/core/.ssh", "drwxr-xr-x 0:0"),
			HaveKeyWithValue("home/core/.ssh/authorized_keys.d/ignition", `-rw------- 1000:1000 "ssh-ed25519 1\nssh-ed25519 2\n"`),
		))
		apply(u, treeOf(root, document), nil)
		Expect(os.RemoveAll(filepath.Join(home, ".ssh"))).To(Succeed())
		before := snapshot(root)
		apply(u, nil, treeOf(root, document))
		Expect(snapshot(root)).To(And(
			HaveKeyWithValue("home/core/.ssh", "drwx------ 1000:1000"),
			HaveKeyWithValue("home/core/.ssh/authorized_keys.d", "drwx------ 1000:1000"),
		))
		apply(u, treeOf(root, document), nil)
		Expect(differing(snapshot(root), before)).To(BeEmpty())
	})

	It("has presets without the lines that Ignition leaves out", func() {
		documents := []string{
			`{"ignition":{"version":"3.5.0"},"systemd":{"units":[{"name":"a.service","enabled":false},{"name":"b.service","enabled":true},{"name":"c.service","enabled":false}]}}`,
			`{"ignition":{"version":"3.5.0"},"systemd":{"units":[{"name":"a.service","enabled":false}]}}`,
		}
		for _, document := range documents {
			root := newPlainHost()
			runIgnition(root, []byte(document))
			u := open(root)
			Expect(u.Adopt(treeOf(root, []byte(document)))).To(Succeed())
			Expect(u.Differences()).To(BeEmpty())
			Expect(u.Adopt(nil)).To(MatchError(ContainSubstring("already recorded")))
		}
	})

	// installed returns a host that Ignition installed with a configuration that replaces a file of the image, and an
	// updater that recorded this, with the tree.
	installed := func(prepare func(root string)) (string, *Updater, hosttree.Tree) {
		GinkgoHelper()
		document := []byte(`{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/motd","overwrite":true,"contents":{"source":"data:,x"}},
			{"path":"/etc/new/file","overwrite":true,"contents":{"source":"data:,x"}},{"path":"/opt/file","overwrite":true,"contents":{"source":"data:,x"}}]}}`)
		root := newPlainHost()
		prepare(root)
		runIgnition(root, document)
		u := open(root)
		tree := treeOf(root, document)
		Expect(u.Adopt(tree)).To(Succeed())
		return root, u, tree
	}

	It("with OSTree gets back what it replaced", func() {
		var image map[string]string
		root, u, tree := installed(func(root string) {
			for _, directory := range []string{"ostree", "usr/etc"} {
				Expect(os.Mkdir(filepath.Join(root, directory), 0o755)).To(Succeed())
			}
			Expect(os.CopyFS(filepath.Join(root, "usr/etc"), os.DirFS(filepath.Join(root, pristine, "etc")))).To(Succeed())
			image = snapshot(root)
		})
		apply(u, tree, nil)
		Expect(differing(snapshot(root), image)).To(BeEmpty())
	})

	It("with packages keeps everything that it replaced, also what no package contains: a link of alternatives, an alias, a path through a link", func() {
		document := []byte(`{"ignition":{"version":"3.5.0"},"storage":{"files":[{"path":"/etc/alternatives/editor","overwrite":true,"contents":{"source":"data:,x"}},
			{"path":"/lib/program","overwrite":true,"contents":{"source":"data:,x"}},{"path":"/etc/new","contents":{"source":"data:,x"}},
			{"path":"/usr/local/bin/new","overwrite":true,"contents":{"source":"data:,x"}}]},
			"systemd":{"units":[{"name":"sshd.service","contents":"[Service]\n"}]}}`)
		root := newPlainHost()
		for name, target := range map[string]string{"etc/alternatives/editor": "/usr/bin/nano", "etc/systemd/system/sshd.service": "/usr/lib/systemd/system/ssh.service", "lib": "usr/lib"} {
			Expect(os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o755)).To(Succeed())
			Expect(os.Symlink(target, filepath.Join(root, name))).To(Succeed())
		}
		info := filepath.Join(root, "var/lib/dpkg/info")
		Expect(os.MkdirAll(info, 0o755)).To(Succeed())
		Expect(os.WriteFile(filepath.Join(info, "base-files.list"), []byte("/.\n/etc\n/usr/lib/program\n"), 0o600)).To(Succeed())
		runIgnition(root, document)
		u := open(root)
		tree := treeOf(root, document)
		Expect(u.Adopt(tree)).To(Succeed())
		before := snapshot(root)
		for name := range tree {
			if path.Base(name) == "new" {
				continue
			}
			without := maps.Clone(tree)
			delete(without, name)
			Expect(u.Apply(hosttree.Changes(tree, without), false)).To(MatchError(And(HavePrefix("nothing was changed: "+name+": "), ContainSubstring(errUnknown.Error()))))
			Expect(u.Apply(hosttree.Changes(tree, without), true)).To(Succeed())
			Expect(differing(snapshot(root), before)).To(BeEmpty())
			Expect(u.RollBack()).To(Succeed())
		}
		without := maps.Clone(tree)
		delete(without, "/etc/new")
		delete(without, "/usr/local/bin/new")
		apply(u, tree, without)
		Expect(filepath.Join(root, "etc/new")).NotTo(BeAnExistingFile())
		Expect(filepath.Join(root, "usr/local/bin/new")).NotTo(BeAnExistingFile(), "it is a directory for the files of a host")

		By("a copy of /etc in the image tells what it had")
		Expect(os.MkdirAll(filepath.Join(root, "usr/etc/alternatives"), 0o755)).To(Succeed())
		Expect(os.Symlink("/usr/bin/nano", filepath.Join(root, "usr/etc/alternatives/editor"))).To(Succeed())
		apply(u, without, hosttree.Tree{"/lib/program": tree["/lib/program"]})
		Expect(os.Readlink(filepath.Join(root, "etc/alternatives/editor"))).To(Equal("/usr/bin/nano"))
		Expect(filepath.Join(root, "etc/systemd/system/sshd.service")).NotTo(BeAnExistingFile())
	})

	It("keeps the directories in /usr/local that images have, although they are empty, and removes others", func() {
		document := []byte(`{"ignition":{"version":"3.5.0"},"storage":{"directories":[{"path":"/usr/local/lib/pool"},{"path":"/usr/local/share/man/pool"},{"path":"/usr/local/pool/own"}]}}`)
		root := newPlainHost()
		for _, name := range []string{"usr/local/lib", "usr/local/share/man"} {
			Expect(os.MkdirAll(filepath.Join(root, name), 0o755)).To(Succeed())
		}
		u := open(root)
		image := snapshot(root)
		runIgnition(root, document)
		tree := treeOf(root, document)
		Expect(u.Adopt(tree)).To(Succeed())
		apply(u, tree, nil)
		Expect(differing(snapshot(root), image)).To(BeEmpty())
	})

	It("keeps what nobody knows, and says so", func() {
		document := []byte(`{"ignition":{"version":"3.5.0"},"storage":{"files":[
			{"path":"/etc/motd","overwrite":true,"contents":{"source":"data:,x"}},{"path":"/etc/new","contents":{"source":"data:,x"}}],"directories":[{"path":"/etc/conf.d","mode":448}]}}`)
		root := newPlainHost()
		runIgnition(root, document)
		u := open(root)
		tree := treeOf(root, document)
		Expect(u.Adopt(tree)).To(Succeed())
		before := snapshot(root)
		Expect(u.Apply(hosttree.Changes(tree, nil), false)).To(MatchError(And(HavePrefix("nothing was changed: /etc/motd: "),
			ContainSubstring("it is not known what the image has at this path: replace the Machine, keep the entry, or run kubectl poolboot rollout retry"))))
		Expect(differing(snapshot(root), before)).To(BeEmpty())
		rest := hosttree.Tree{"/etc/motd": tree["/etc/motd"]}
		apply(u, tree, rest)
		Expect(snapshot(root)).To(And(Not(HaveKey("etc/new")), HaveKeyWithValue("etc/conf.d", HavePrefix("drwx------"))))
		Expect(u.Apply(hosttree.Changes(rest, nil), true)).To(Succeed())
		Expect(u.Confirm()).To(Succeed())
		Expect(snapshot(root)).To(HaveKeyWithValue("etc/motd", HaveSuffix(` "x"`)), "it is not deleted, because it can be what the image needs")
		Expect(u.ChangesTo(nil)).To(BeEmpty(), "the host follows the configuration again")
	})
})
