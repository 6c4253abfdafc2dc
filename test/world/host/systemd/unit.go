// Package systemd reads unit files as systemd does and runs what they say: enough of it for the units of a
// simulated host, and no less strict than systemd where that decides whether a real host would join. A setting that
// the package does not know is an error, so that no unit passes here and fails on real hardware. Source of the rules:
// the manual pages systemd.unit, systemd.service, systemd.path, systemd.exec, systemd.preset (version 257).
//
// The package knows a root folder and how to run a command in it, nothing of hosts or Kubernetes.
package systemd

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/coreos/go-systemd/v22/unit"
)

// unitDirs are the folders that hold unit files, the strongest first.
var unitDirs = []string{"etc/systemd/system", "run/systemd/system", "usr/lib/systemd/system"}

// Unit is a unit file with its drop-ins applied.
type Unit struct {
	// Name is the file's name, like kubelet.service.
	Name string
	// Masked units are never started.
	Masked bool

	// fragment is the path of the unit file on the host.
	fragment string
	options  []*unit.UnitOption
}

// NotFoundError says that no unit file has that name.
type NotFoundError struct{ Name string }

func (e *NotFoundError) Error() string {
	return fmt.Sprintf("unit %s: no such file in any of /%s", e.Name, strings.Join(unitDirs, ", /"))
}

// Load reads the unit of that name below root. It returns *NotFoundError when there is no such file, and an error for
// every setting that is not understood.
func Load(root, name string) (*Unit, error) {
	u := &Unit{Name: name}
	path, err := find(root, name)
	if err != nil {
		return nil, err
	}
	if target, err := os.Readlink(path); err == nil && target == "/dev/null" {
		u.Masked = true
		return u, nil
	}
	u.fragment = strings.TrimPrefix(path, filepath.Clean(root))
	files := []string{path}
	dropIns, err := dropIns(root, name)
	if err != nil {
		return nil, err
	}
	for _, file := range append(files, dropIns...) {
		raw, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("unit %s: %w", name, err)
		}
		options, err := unit.DeserializeOptions(bytes.NewReader(raw))
		if err != nil {
			return nil, fmt.Errorf("unit %s: %s: %w", name, filepath.Base(file), err)
		}
		u.options = append(u.options, options...)
	}
	return u, u.check()
}

func find(root, name string) (string, error) {
	for _, dir := range unitDirs {
		path := filepath.Join(root, dir, name)
		if _, err := os.Lstat(path); err == nil {
			return path, nil
		}
	}
	return "", &NotFoundError{Name: name}
}

// dropIns are the files name.d/*.conf of all unit folders in the order of their names; of two with the same name the
// stronger folder's counts.
func dropIns(root, name string) ([]string, error) {
	strongest := map[string]string{}
	for _, dir := range unitDirs {
		matches, err := filepath.Glob(filepath.Join(root, dir, name+".d", "*.conf"))
		if err != nil {
			return nil, err
		}
		for _, match := range matches {
			if _, taken := strongest[filepath.Base(match)]; !taken {
				strongest[filepath.Base(match)] = match
			}
		}
	}
	files := make([]string, 0, len(strongest))
	for _, file := range strongest {
		files = append(files, file)
	}
	slices.SortFunc(files, func(a, b string) int { return strings.Compare(filepath.Base(a), filepath.Base(b)) })
	return files, nil
}

// list are the values of a setting that may be given several times; an empty value drops those before it.
func (u *Unit) list(section, name string) []string {
	var values []string
	for _, option := range u.options {
		if option.Section != section || option.Name != name {
			continue
		}
		if option.Value == "" {
			values = nil
			continue
		}
		values = append(values, option.Value)
	}
	return values
}

// words are the values of a setting that is a list of names.
func (u *Unit) words(section, name string) []string {
	return strings.Fields(strings.Join(u.list(section, name), " "))
}

// last is the value of a setting that is given once: the last one wins.
func (u *Unit) last(section, name, otherwise string) string {
	if values := u.list(section, name); len(values) > 0 {
		return values[len(values)-1]
	}
	return otherwise
}

// kind is the unit's type: service, path, target.
func kind(name string) string { return strings.TrimPrefix(filepath.Ext(name), ".") }

// exists says whether an absolute path exists in the root. Links are not followed out of the root.
func exists(root, path string) (bool, error) {
	_, err := os.Lstat(filepath.Join(root, path))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
