package hostfiles

import (
	"path"
	"slices"
	"strings"
)

// Where images keep what they contain.
const (
	ostreeDirectory = "ostree"
	originalEtc     = "usr/etc"
)

// localDirectories are for the files of a host (FHS: "local" and users' files): images have none there.
var localDirectories = []string{"home", "opt", "root", "srv", "usr/local"}

// standardDirectories are those in which images have nothing, but which they have (FHS 3.0, section 4.9).
var standardDirectories = map[string]bool{
	"usr/local/bin": true, "usr/local/etc": true, "usr/local/games": true, "usr/local/include": true, "usr/local/lib": true, "usr/local/lib64": true,
	"usr/local/libexec": true, "usr/local/man": true, "usr/local/sbin": true, "usr/local/share": true, "usr/local/share/man": true, "usr/local/src": true,
}

// ignitionKeys is the end of the path of the file for SSH keys that only Ignition writes, in the home of a user.
const ignitionKeys = "/.ssh/authorized_keys.d/ignition"

// isLocal reports whether an image has nothing at a path, because it is for the files of a host or of Ignition.
func isLocal(real string) bool {
	return strings.HasSuffix(real, ignitionKeys) || !standardDirectories[real] &&
		slices.ContainsFunc(localDirectories, func(directory string) bool { return strings.HasPrefix(real, directory+"/") })
}

// imageOriginal returns where the image has its own version of a path that Ignition wrote, such as /usr/etc/motd for
// /etc/motd, "" if the image has nothing there, and errUnknown if a host does not know it:
//   - With /usr/etc, as with OSTree, it is the original of /etc.
//   - The rest of an OSTree host, /var, has no files in the image, but directories that systemd creates.
//   - The image has nothing but standardDirectories in the directories that are for the files of a host.
//
// Nothing else is known. That no package contains a path is no proof: scripts of packages create files, such as the
// links in /etc/alternatives and the aliases of units, and so do the programs that build images.
func (u *Updater) imageOriginal(name string) (string, error) {
	real, err := u.follow(name)
	if err != nil {
		return "", err
	}
	etc, err := u.stat(originalEtc)
	if err != nil {
		return "", err
	}
	if below, isInEtc := strings.CutPrefix(real, "etc/"); isInEtc && isDirectory(etc) {
		found, err := u.stat(path.Join(originalEtc, below))
		if err != nil || found == nil {
			return "", err
		}
		return path.Join("/", originalEtc, below), nil
	}
	if ostree, err := u.stat(ostreeDirectory); err != nil {
		return "", err
	} else if isDirectory(ostree) {
		if found, err := u.stat(real); err != nil || !isDirectory(found) {
			return "", err
		}
	}
	if isLocal(real) {
		return "", nil
	}
	return "", errUnknown
}
