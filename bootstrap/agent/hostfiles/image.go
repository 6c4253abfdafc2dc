package hostfiles

import (
	"path"
	"strings"
)

// Where images keep what they contain.
const (
	ostreeDirectory  = "ostree"
	originalEtc      = "usr/etc"
	packageDirectory = "var/lib/dpkg/info"
)

// imageOriginal returns what the image has at a path, as far as a host knows it:
//   - With /usr/etc, as with OSTree, it is the original of /etc. The rest of an OSTree host, /var, has no files in the
//     image, but directories that systemd creates.
//   - On Debian, a path that no package contains is not in the image. The contents of the others are not known.
func (u *Updater) imageOriginal(name string) (string, error) {
	if etc, err := u.stat(originalEtc); err != nil {
		return "", err
	} else if below, isInEtc := strings.CutPrefix(name, "/etc/"); isInEtc && isDirectory(etc) {
		found, err := u.stat(path.Join(originalEtc, below))
		if err != nil || found == nil {
			return "", err
		}
		return path.Join("/", originalEtc, below), nil
	}
	if ostree, err := u.stat(ostreeDirectory); err != nil {
		return "", err
	} else if isDirectory(ostree) {
		if found, err := u.stat(strings.TrimPrefix(name, "/")); err != nil || !isDirectory(found) {
			return "", err
		}
		return "", ErrUnknown
	}
	if err := u.readPackages(); err != nil {
		return "", err
	}
	// Packages can contain /lib/a where the path is /usr/lib/a.
	if len(u.packaged) == 0 || u.packaged[name] || u.packaged[strings.TrimPrefix(name, "/usr")] {
		return "", ErrUnknown
	}
	return "", nil
}

// readPackages reads which paths the packages of a Debian host contain, once.
func (u *Updater) readPackages() error {
	if u.packaged != nil {
		return nil
	}
	u.packaged = map[string]bool{}
	if found, err := u.stat(packageDirectory); err != nil || !isDirectory(found) {
		return err
	}
	names, err := u.list(packageDirectory)
	if err != nil {
		return err
	}
	for _, name := range names {
		if path.Ext(name) != ".list" {
			continue
		}
		paths, err := u.read(path.Join(packageDirectory, name))
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(paths)) {
			u.packaged[strings.TrimSuffix(line, "\n")] = true
		}
	}
	return nil
}
