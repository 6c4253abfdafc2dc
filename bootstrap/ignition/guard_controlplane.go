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

// checkMountUnit refuses a unit that mounts something at, above or below a path of a control plane.
func (g *guard) checkMountUnit(place, unit string) {
	if at := mountPoint(unit); at != "" {
		g.checkMount(place, at)
	}
}

// mountPoint returns the path at which a unit mounts something, which is its name, or "" for other units.
func mountPoint(unit string) string {
	if extension := path.Ext(unit); extension == ".mount" || extension == ".automount" {
		return sdunit.UnitNamePathUnescape(strings.TrimSuffix(unit, extension))
	}
	return ""
}

// VolumeAt returns the volume of a static Pod that an entry at a path would change, or hide by a mount, "" if there is
// none. kubeadm's certificates and etcd's data can be anywhere, and are such volumes.
func VolumeAt(name string, volumes []string) string {
	name = cleanPath(name)
	unit, _ := unitAt(name)
	at := mountPoint(unit)
	for _, volume := range volumes {
		volume = cleanPath(volume)
		if !isShared(volume) && (isIn(name, volume) || at != "" && (isIn(at, volume) || isBelow(volume, at))) {
			return volume
		}
	}
	return ""
}

// sharedPaths are what the operating system has and Pods use: programs, CAs that it trusts, and settings.
var sharedPaths = []string{"/usr", "/etc/ssl", "/etc/pki", "/etc/ca-certificates", "/etc/hosts", "/etc/hostname", "/etc/localtime", "/etc/resolv.conf"}

// isShared reports whether a volume is not what a Pod has for itself. A directory such as /etc, which also has what
// others write, is not.
func isShared(volume string) bool { return containsReserved(volume) || isIn(volume, sharedPaths...) }

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
