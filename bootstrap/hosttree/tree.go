package hosttree

import (
	"path"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	"k8s.io/utils/ptr"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// Modes of files and directories that Ignition creates.
const (
	fileMode    uint32 = 0o644
	privateFile uint32 = 0o600
	privateDir  uint32 = 0o700
	// modeBits are the bits that Ignition sets: it ignores setuid, setgid and sticky bits before spec 3.6.
	modeBits = 0o777
)

// Where Ignition writes SSH keys, in the home of a user: to a file of its own or, if it was built so, to the file that
// users edit, too.
const (
	sshDirectory  = ".ssh"
	keysDirectory = ".ssh/authorized_keys.d"
	keysFile      = ".ssh/authorized_keys.d/ignition"
	singleFile    = ".ssh/authorized_keys"
)

// homeOf returns the path of something in the home of a user, before Tree.On.
func homeOf(user, name string) string { return "~" + user + "/" + name }

// New returns what a configuration writes to any host.
func New(config ignition.Config) Tree {
	tree := Tree{}
	tree.addUsers(config.Passwd.Users)
	for _, directory := range config.Storage.Directories {
		tree.addNode(directory.Node, Entry{Type: Directory, Mode: posixMode(directory.Mode)})
	}
	for _, file := range config.Storage.Files {
		tree.addNode(file.Node, newFile(file))
	}
	for _, link := range config.Storage.Links {
		tree.addNode(link.Node, newLink(link))
	}
	tree.addUnits(config.Systemd.Units)
	return tree
}

// addNode adds an entry with its owner.
func (t Tree) addNode(node types.Node, entry Entry) {
	entry.Replaces = ptr.Deref(node.Overwrite, false)
	if entry.Type == HardLink {
		node.User, node.Group = types.NodeUser{}, types.NodeGroup{} // they are those of the file
	}
	if entry.UID = node.User.ID; entry.UID == nil {
		entry.User = ptr.Deref(node.User.Name, "")
	}
	if entry.GID = node.Group.ID; entry.GID == nil {
		entry.Group = ptr.Deref(node.Group.Name, "")
	}
	if entry.Sources != nil {
		if entry.UID == nil && entry.User == "" {
			entry.UID = ptr.To(0)
		}
		if entry.GID == nil && entry.Group == "" {
			entry.GID = ptr.To(0)
		}
	}
	t[path.Clean(node.Path)] = entry
}

// posixMode returns the bits of a mode that Ignition sets.
func posixMode(mode *int) *uint32 {
	if mode == nil {
		return nil
	}
	return ptr.To(uint32(*mode) & modeBits)
}

// newFile returns a file without its owner. Ignition replaces a file with contents, and so its owner and mode.
func newFile(file types.File) Entry {
	entry := Entry{Type: File, Mode: posixMode(file.Mode)}
	if file.Contents.Source == nil {
		entry.Appends = len(file.Append) > 0
		return entry
	}
	if entry.Mode == nil {
		entry.Mode = ptr.To(fileMode)
	}
	entry.Sources = append([]types.Resource{file.Contents}, file.Append...)
	return entry
}

// newLink returns a link without its owner.
func newLink(link types.Link) Entry {
	entry := Entry{Type: Link, Target: ptr.Deref(link.Target, "")}
	if ptr.Deref(link.Hard, false) {
		entry.Type = HardLink
		entry.Target = path.Join("/", entry.Target)
	}
	return entry
}

// addUsers adds the SSH keys of users, and the directories that Ignition creates for them.
func (t Tree) addUsers(users []types.PasswdUser) {
	for _, user := range users {
		if len(user.SSHAuthorizedKeys) == 0 || !ptr.Deref(user.ShouldExist, true) {
			continue
		}
		keys := make([]string, len(user.SSHAuthorizedKeys))
		for i, key := range user.SSHAuthorizedKeys {
			keys[i] = string(key)
		}
		for _, directory := range []string{sshDirectory, keysDirectory} {
			t[homeOf(user.Name, directory)] = Entry{Type: Directory, Mode: ptr.To(privateDir), OnlyIfMissing: true}
		}
		text := strings.TrimSuffix(strings.Join(keys, "\n"), "\n") + "\n"
		t[homeOf(user.Name, keysFile)] = Entry{Type: File, Mode: ptr.To(privateFile), Contents: []byte(text), Replaces: true}
	}
}
