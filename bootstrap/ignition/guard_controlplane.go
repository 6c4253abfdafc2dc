package ignition

import (
	"path"
	"slices"
	"strings"

	sdunit "github.com/coreos/go-systemd/v22/unit"
	"k8s.io/utils/ptr"
)

// checkControlPlane refuses what writes to the paths of a control plane without having them as the path of a file,
// directory or link: file systems and units that mount something at, above or below them, hard links to them, and the
// SSH keys of users whose homes are there.
func (g *guard) checkControlPlane(c Config) {
	if !g.ControlPlane {
		return
	}
	for i, filesystem := range c.Storage.Filesystems {
		if at := ptr.Deref(filesystem.Path, ""); at != "" {
			g.checkMount(item("storage.filesystems", i)+".path", at)
		}
	}
	for i, unit := range c.Systemd.Units {
		g.checkMountUnit(item("systemd.units", i)+".name", unit.Name)
	}
	for i, file := range c.Storage.Files {
		unit, _ := unitAt(cleanPath(file.Path))
		g.checkMountUnit(item("storage.files", i)+".path", unit)
	}
	for i, link := range c.Storage.Links {
		place, target := item("storage.links", i), ptr.Deref(link.Target, "")
		unit, _ := unitAt(cleanPath(link.Path))
		g.checkMountUnit(place+".path", unit)
		if ptr.Deref(link.Hard, false) && IsOfControlPlane(target) {
			g.refuse(place+".target", "%s is reserved for the control plane: %s", target, remedyControlPlane)
		}
	}
	for i, user := range c.Passwd.Users {
		if home := homeOf(user); len(user.SSHAuthorizedKeys) > 0 && IsOfControlPlane(home) {
			g.refuse(item("passwd.users", i)+".sshAuthorizedKeys", "%s, where they are written, is reserved for the control plane: use another user", home)
		}
	}
}

// checkMountUnit refuses a unit that mounts something at, above or below a path of a control plane. The name of such a
// unit is that path.
func (g *guard) checkMountUnit(place, unit string) {
	if extension := path.Ext(unit); extension == ".mount" || extension == ".automount" {
		g.checkMount(place, sdunit.UnitNamePathUnescape(strings.TrimSuffix(unit, extension)))
	}
}

// fstabPath has mounts, one in a line, of which the second field is the path.
const fstabPath = "/etc/fstab"

// checkFstab refuses mounts as checkControlPlane does.
func (g *guard) checkFstab(place string, data []byte) {
	if !g.ControlPlane {
		return
	}
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) > 1 && !strings.HasPrefix(fields[0], "#") && path.Clean(fields[1]) != "/" {
			g.checkMount(place, fields[1])
		}
	}
}

// checkMount refuses a mount at, above or below a path of a control plane, which would hide it.
func (g *guard) checkMount(place, at string) {
	at = cleanPath(at)
	if IsOfControlPlane(at) || slices.ContainsFunc(controlPlanePaths, func(name string) bool { return isBelow(name, at) }) {
		g.refuse(place, "a mount at %s would hide what is reserved for the control plane: %s", at, remedyControlPlane)
	}
}
