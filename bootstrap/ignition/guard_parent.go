package ignition

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	"k8s.io/utils/ptr"
)

const (
	// UnitDirectory has the units and drop-ins that Ignition writes.
	UnitDirectory = "/etc/systemd/system"
	// PresetPath is the file in which Ignition enables and disables units.
	PresetPath = "/etc/systemd/system-preset/" + ignitionPreset
)

// CheckParents refuses entries for which a host would need a directory where the configuration has something else:
// Ignition detects this only on the host, which then never boots. Guard includes this. The error is nil or a
// *GuardError.
func CheckParents(c Config) error {
	g := &guard{}
	g.checkParents(c)
	return g.err()
}

// hostPath is what a configuration writes to one path of a host.
type hostPath struct {
	key    string // the path with NUL for each slash: in this order, a directory is followed by what is in it
	place  string // of the entry in the document
	field  string // in the entry
	isA    string // what it is if it is no directory, or ""
	exists bool   // whether it must exist before Ignition writes files: the directory at which a file system is mounted
}

func (g *guard) checkParents(c Config) {
	var above []hostPath // what is no directory above the current path, each below the one before
	for _, current := range hostPathsOf(c) {
		isAbove := func(p hostPath) bool {
			return strings.HasPrefix(current.key, p.key) && (len(current.key) > len(p.key) && current.key[len(p.key)] == 0 || current.exists && current.key == p.key)
		}
		for len(above) > 0 && !isAbove(above[len(above)-1]) {
			above = above[:len(above)-1]
		}
		switch name := current.path(); {
		case len(above) > 0:
			parent := above[len(above)-1]
			why := fmt.Sprintf("is below %s, which is %s", parent.path(), parent.isA)
			if parent.key == current.key {
				why = fmt.Sprintf("must be a directory, but is %s too", parent.isA)
			}
			g.add(Refusal{current.place + current.field, name + " " + why + ": remove one of them, or change its path", []string{parent.place}})
		case current.isA != "":
			above = append(above, current)
		}
	}
}

func (p hostPath) path() string { return strings.ReplaceAll(p.key, "\x00", "/") }

// homeOf returns the home directory of a user, as long as the host has no other default.
func homeOf(user types.PasswdUser) string {
	if user.Name == "root" {
		return "/root"
	}
	return cmp.Or(ptr.Deref(user.HomeDir, ""), "/home/"+user.Name)
}

// hostPathsOf returns the paths that a configuration writes, in the order of their keys. It leaves out symbolic links:
// Ignition itself refuses what is below them.
func hostPathsOf(c Config) (paths []hostPath) {
	add := func(name, place, field, isA string) {
		paths = append(paths, hostPath{key: strings.ReplaceAll(path.Clean(name), "/", "\x00"), place: place, field: field, isA: isA})
	}
	for i, file := range c.Storage.Files {
		add(file.Path, fmt.Sprintf("storage.files[%d]", i), ".path", "a file")
	}
	for i, directory := range c.Storage.Directories {
		add(directory.Path, fmt.Sprintf("storage.directories[%d]", i), ".path", "")
	}
	for i, link := range c.Storage.Links {
		isA := ""
		if ptr.Deref(link.Hard, false) {
			isA = "a hard link"
		}
		add(link.Path, fmt.Sprintf("storage.links[%d]", i), ".path", isA)
	}
	for i, filesystem := range c.Storage.Filesystems {
		if at := ptr.Deref(filesystem.Path, ""); at != "" {
			add(at, fmt.Sprintf("storage.filesystems[%d]", i), ".path", "")
			paths[len(paths)-1].exists = true
		}
	}
	for i, user := range c.Passwd.Users { // Ignition writes keys before files
		if len(user.SSHAuthorizedKeys) > 0 {
			add(homeOf(user)+"/.ssh/authorized_keys", fmt.Sprintf("passwd.users[%d]", i), ".sshAuthorizedKeys", "")
		}
	}
	hasPresets := false
	for i, unit := range c.Systemd.Units {
		place := fmt.Sprintf("systemd.units[%d]", i)
		if isMasked := ptr.Deref(unit.Mask, false); isMasked || ptr.Deref(unit.Contents, "") != "" {
			add(UnitDirectory+"/"+unit.Name, place, ".name", "a unit")
		}
		for j, dropin := range unit.Dropins {
			if dropin.Contents != nil {
				add(UnitDirectory+"/"+unit.Name+".d/"+dropin.Name, fmt.Sprintf("%s.dropins[%d]", place, j), ".name", "a drop-in")
			}
		}
		if unit.Enabled != nil && !hasPresets {
			hasPresets = true
			add(PresetPath, place, ".enabled", "the file that enables units")
		}
	}
	slices.SortStableFunc(paths, func(a, b hostPath) int {
		switch order := strings.Compare(a.key, b.key); {
		case order != 0:
			return order
		case a.exists == b.exists:
			return 0
		case a.exists:
			return 1
		default:
			return -1
		}
	})
	return paths
}
