package ignition

import (
	"cmp"
	"fmt"
	"path"
	"slices"

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
	path        string
	list, field string // of the entry in the document
	index       int    // in the list
	isA         string // what it is if it is no directory, or ""
	exists      bool   // whether it must exist before Ignition writes files: the directory at which a file system is mounted
}

// place returns the path of the entry in the document.
func (p hostPath) place() string { return fmt.Sprintf("%s[%d]", p.list, p.index) }

// isAbove reports whether another path is below one, or requires that it is a directory.
func (p hostPath) isAbove(other hostPath) bool {
	return isBelow(other.path, p.path) || other.exists && other.path == p.path
}

func (g *guard) checkParents(c Config) {
	var above []hostPath // what is no directory above the current path, each below the one before
	for _, current := range hostPathsOf(c) {
		for len(above) > 0 && !above[len(above)-1].isAbove(current) {
			above = above[:len(above)-1]
		}
		switch {
		case len(above) > 0:
			parent := above[len(above)-1]
			why := fmt.Sprintf("is below %s, which is %s", parent.path, parent.isA)
			if parent.path == current.path {
				why = fmt.Sprintf("must be a directory, but is %s too", parent.isA)
			}
			g.add(Refusal{current.place() + current.field, current.path + " " + why + ": remove one of them, or change its path", []string{parent.place()}})
		case current.isA != "":
			above = append(above, current)
		}
	}
}

// homeOf returns the home directory of a user, as long as the host has no other default.
func homeOf(user types.PasswdUser) string {
	if user.Name == "root" {
		return "/root"
	}
	return cmp.Or(ptr.Deref(user.HomeDir, ""), "/home/"+user.Name)
}

// hostPathsOf returns the paths that a configuration writes, each directory before what is in it. It leaves out
// symbolic links: Ignition itself refuses what is below them.
func hostPathsOf(c Config) (paths []hostPath) {
	paths = make([]hostPath, 0, len(c.Storage.Files)+len(c.Storage.Directories)+len(c.Storage.Links)+2*len(c.Systemd.Units))
	add := func(p hostPath) {
		p.path = path.Clean(p.path)
		paths = append(paths, p)
	}
	for i, file := range c.Storage.Files {
		add(hostPath{path: file.Path, list: "storage.files", index: i, field: ".path", isA: "a file"})
	}
	for i, directory := range c.Storage.Directories {
		add(hostPath{path: directory.Path, list: "storage.directories", index: i, field: ".path"})
	}
	for i, link := range c.Storage.Links {
		isA := ""
		if ptr.Deref(link.Hard, false) {
			isA = "a hard link"
		}
		add(hostPath{path: link.Path, list: "storage.links", index: i, field: ".path", isA: isA})
	}
	for i, filesystem := range c.Storage.Filesystems {
		if at := ptr.Deref(filesystem.Path, ""); at != "" {
			add(hostPath{path: at, list: "storage.filesystems", index: i, field: ".path", exists: true})
		}
	}
	for i, user := range c.Passwd.Users { // Ignition writes keys before files
		if len(user.SSHAuthorizedKeys) > 0 {
			add(hostPath{path: homeOf(user) + "/.ssh/authorized_keys", list: "passwd.users", index: i, field: ".sshAuthorizedKeys"})
		}
	}
	hasPresets := false
	for i, unit := range c.Systemd.Units {
		if isMasked := ptr.Deref(unit.Mask, false); isMasked || ptr.Deref(unit.Contents, "") != "" {
			add(hostPath{path: UnitDirectory + "/" + unit.Name, list: "systemd.units", index: i, field: ".name", isA: "a unit"})
		}
		for j, dropin := range unit.Dropins {
			if dropin.Contents != nil {
				add(hostPath{path: UnitDirectory + "/" + unit.Name + ".d/" + dropin.Name, list: fmt.Sprintf("systemd.units[%d].dropins", i), index: j,
					field: ".name", isA: "a drop-in"})
			}
		}
		if unit.Enabled != nil && !hasPresets {
			hasPresets = true
			add(hostPath{path: PresetPath, list: "systemd.units", index: i, field: ".enabled", isA: "the file that enables units"})
		}
	}
	slices.SortStableFunc(paths, func(a, b hostPath) int {
		if a.path == b.path && a.exists != b.exists {
			if a.exists {
				return 1
			}
			return -1
		}
		return comparePaths(a.path, b.path)
	})
	return paths
}

// comparePaths compares paths in an order in which a directory is followed by what is in it.
func comparePaths(a, b string) int {
	for i := range min(len(a), len(b)) {
		switch {
		case a[i] == b[i]:
		case a[i] == '/':
			return -1
		case b[i] == '/':
			return 1
		default:
			return cmp.Compare(a[i], b[i])
		}
	}
	return cmp.Compare(len(a), len(b))
}
