package hostfiles

import (
	"path"
	"strings"
)

// Where images keep what they contain.
const (
	ostreeDirectory = "ostree"
	originalEtc     = "usr/etc"
)

// imageOriginal returns what the image has at a path, as far as a host knows it:
//   - With /usr/etc, as with OSTree, it is the original of /etc.
//   - The rest of an OSTree host, /var, has no files in the image, but directories that systemd creates.
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
	return "", ErrUnknown
}
