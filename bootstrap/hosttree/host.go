package hosttree

import (
	"fmt"
	"path"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"
)

// System is what the entries of a configuration depend on, apart from the configuration.
type System struct {
	Accounts
	// SingleKeysFile is set if Ignition was built to write SSH keys to ~/.ssh/authorized_keys, instead of to
	// ~/.ssh/authorized_keys.d/ignition.
	SingleKeysFile bool
	// Fetch returns the contents of a resource that is not in the document. If it is nil, such contents are an error.
	Fetch func(types.Resource) ([]byte, error)
}

// On returns what a configuration writes to one host. Its users must exist. Errors name the entry.
func (t Tree) On(host System) (Tree, error) {
	on := make(Tree, len(t))
	for _, areHomes := range []bool{true, false} { // as in Ignition, users come first: a file can replace their keys
		for _, name := range t.Paths() {
			if path.IsAbs(name) == areHomes {
				continue
			}
			real, entry, err := host.resolve(name, t[name])
			if err != nil {
				return nil, err
			}
			if real != "" {
				on[real] = entry
			}
		}
	}
	return on, nil
}

// resolve returns the path and the entry on a host, an empty path if the host does not have it.
func (h *System) resolve(name string, entry Entry) (string, Entry, error) {
	real := name
	if home, isHome := strings.CutPrefix(name, "~"); isHome {
		user, below, _ := strings.Cut(home, "/")
		account, exists := h.Users[user]
		switch {
		case !exists:
			return "", Entry{}, fmt.Errorf("passwd.users: user %q does not exist on the host yet: create it before its SSH keys are written", user)
		case h.SingleKeysFile && below == keysDirectory:
			return "", Entry{}, nil
		case h.SingleKeysFile && below == keysFile:
			below = singleFile
		}
		real, entry.UID, entry.GID = path.Join("/", account.Home, below), &account.UID, &account.GID
	}
	if entry.User != "" {
		user, exists := h.Users[entry.User]
		if !exists {
			return "", Entry{}, fmt.Errorf("%s: user %q does not exist on the host: create it in passwd.users", name, entry.User)
		}
		entry.User, entry.UID = "", &user.UID
	}
	if entry.Group != "" {
		gid, exists := h.Groups[entry.Group]
		if !exists {
			return "", Entry{}, fmt.Errorf("%s: group %q does not exist on the host: create it in passwd.groups", name, entry.Group)
		}
		entry.Group, entry.GID = "", &gid
	}
	contents, err := entry.decode(h.Fetch)
	if err != nil {
		return "", Entry{}, fmt.Errorf("file %s: %w", name, err)
	}
	entry.Contents, entry.Sources = contents, nil
	return real, entry, nil
}
