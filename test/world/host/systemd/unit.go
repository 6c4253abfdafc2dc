// Package systemd reads and runs unit files as systemd does. It supports the settings that the units of a simulated
// host use, and is as strict as systemd in all that decides whether a real host joins. An unsupported setting is an
// error, therefore no unit passes here and fails on real hardware. The rules are from the manual pages systemd.unit,
// systemd.service, systemd.path, systemd.exec and systemd.preset (version 257).
//
// The package runs commands in a root directory. It is independent of hosts and Kubernetes.
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

// unitDirs are the directories of unit files, the strongest first.
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

// NotFoundError is the error for a missing unit file.
type NotFoundError struct{ Name string }

func (e *NotFoundError) Error() string {
	return fmt.Sprintf("unit %s: no such file in any of /%s", e.Name, strings.Join(unitDirs, ", /"))
}

// Load reads a unit in root. It returns *NotFoundError if the file does not exist, and an error for each unsupported
// setting.
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

// dropIns returns the files name.d/*.conf of all unit directories in the order of their names. Of two files with the
// same name it returns that of the stronger directory.
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

// list returns the values of a setting that can occur several times. An empty value clears the previous values.
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

// words returns the values of a setting that is a list of names.
func (u *Unit) words(section, name string) []string {
	return strings.Fields(strings.Join(u.list(section, name), " "))
}

// last returns the last value of a setting.
func (u *Unit) last(section, name, otherwise string) string {
	if values := u.list(section, name); len(values) > 0 {
		return values[len(values)-1]
	}
	return otherwise
}

// kind returns the unit's type: service, path, target.
func kind(name string) string { return strings.TrimPrefix(filepath.Ext(name), ".") }

// exists reports whether an absolute path exists in the root. It does not follow links out of the root.
func exists(root, path string) (bool, error) {
	_, err := os.Lstat(filepath.Join(root, path))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}
