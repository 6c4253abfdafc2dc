package hostfiles

import (
	"errors"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Where images keep what they contain.
const (
	ostreeDirectory  = "ostree"
	originalEtc      = "usr/etc"
	packageDirectory = "var/lib/dpkg/info"
	ucfHashes        = "var/lib/ucf/hashfile"
)

// ofBuilders are files that no package has, and that the programs write with which images are built.
var ofBuilders = []string{"/etc/adjtime", "/etc/crypttab", "/etc/default/grub", "/etc/fstab", "/etc/hostname", "/etc/hosts", "/etc/localtime", "/etc/machine-id",
	"/etc/network/interfaces", "/etc/resolv.conf", "/etc/timezone"}

// mentioned matches paths in scripts of packages, also without the first slash.
var mentioned = regexp.MustCompile(`/?\b(?:boot|etc|home|lib|media|mnt|opt|root|srv|usr|var)(?:/[\w.@+:-]*[\w@+-])*`)

// imageOriginal returns what the image has at a path, as far as a host knows it:
//   - With /usr/etc, as with OSTree, it is the original of /etc. The rest of an OSTree host, /var, has no files in the
//     image, but directories that systemd creates.
//   - On Debian, a path that no package contains is not in the image, unless a script of a package mentions it, or
//     images are built with it. The contents of the others are not known.
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
	isPackaged, err := u.isPackaged(name)
	if isPackaged && err == nil {
		err = ErrUnknown
	}
	return "", err
}

// isPackaged reports whether a path can be that of a package, and true if the host has no packages.
func (u *Updater) isPackaged(name string) (bool, error) {
	if path.Dir(name) == "/" || slices.Contains(ofBuilders, name) {
		return true, nil
	}
	if _, isKnown := u.packaged[name]; !isKnown {
		if err := u.readPackages(name); err != nil {
			return false, err
		}
	}
	return u.packaged[name], nil
}

// readPackages finds out whether packages can contain a path and those of the configuration. A host has the names of
// many other files, so these are not kept.
func (u *Updater) readPackages(name string) error {
	u.packaged = map[string]bool{name: false}
	for managed := range u.managed() {
		u.packaged[managed] = false
	}
	hasPackages := false
	found := func(name string) {
		// Packages can contain /lib/a where the path is /usr/lib/a.
		for _, name := range []string{name, "/usr" + name} {
			if _, isWanted := u.packaged[name]; isWanted {
				u.packaged[name] = true
			}
		}
	}
	var names []string
	directory, err := u.stat(packageDirectory)
	if err == nil && isDirectory(directory) {
		names, err = u.list(packageDirectory)
	}
	if err != nil {
		return err
	}
	for _, name := range names {
		isList := path.Ext(name) == ".list"
		if !isList && !slices.Contains([]string{".postinst", ".preinst", ".config"}, path.Ext(name)) {
			continue
		}
		contents, err := u.read(path.Join(packageDirectory, name), 1<<30)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(contents)) {
			if isList {
				found(strings.TrimSuffix(line, "\n"))
				hasPackages = true
				continue
			}
			for _, text := range mentioned.FindAllString(line, -1) {
				found("/" + strings.TrimPrefix(text, "/"))
			}
		}
	}
	hashes, err := u.read(ucfHashes, 1<<30)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for line := range strings.Lines(string(hashes)) {
		if fields := strings.Fields(line); len(fields) == 2 {
			found(fields[1])
		}
	}
	for name := range u.packaged {
		u.packaged[name] = u.packaged[name] || !hasPackages
	}
	return nil
}
