package systemd

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// presetDirs are the directories of preset files, the strongest first.
var presetDirs = []string{"etc/systemd/system-preset", "run/systemd/system-preset", "usr/lib/systemd/system-preset"}

// preset is a line of a preset file.
type preset struct {
	enable  bool
	pattern string
}

// presets returns the lines of all preset files, in the order of the files' names. The first matching line applies.
func presets(root string) ([]preset, error) {
	strongest := map[string]string{}
	var names []string
	for _, dir := range presetDirs {
		files, err := filepath.Glob(filepath.Join(root, dir, "*.preset"))
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			if name := filepath.Base(file); strongest[name] == "" {
				strongest[name] = file
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	var lines []preset
	for _, name := range names {
		raw, err := os.ReadFile(strongest[name])
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(raw)) {
			words := strings.Fields(line)
			if len(words) == 0 || strings.HasPrefix(words[0], "#") {
				continue
			}
			if len(words) != 2 || words[0] != "enable" && words[0] != "disable" {
				return nil, fmt.Errorf("preset %s: %q: not understood", name, strings.TrimSpace(line))
			}
			lines = append(lines, preset{enable: words[0] == "enable", pattern: words[1]})
		}
	}
	return lines, nil
}

// wants maps a unit to those that its start pulls in: by a link below name.wants or name.requires, or by a preset that
// enables a unit with an [Install] section, as the first boot makes such links for it.
func wants(root string) (map[string][]string, error) {
	pulled := map[string][]string{}
	for _, dir := range unitDirs {
		for _, suffix := range []string{".wants", ".requires"} {
			links, err := filepath.Glob(filepath.Join(root, dir, "*"+suffix, "*"))
			if err != nil {
				return nil, err
			}
			for _, link := range links {
				by := strings.TrimSuffix(filepath.Base(filepath.Dir(link)), suffix)
				pulled[by] = append(pulled[by], filepath.Base(link))
			}
		}
	}
	lines, err := presets(root)
	if err != nil {
		return nil, err
	}
	all, err := unitFiles(root)
	if err != nil {
		return nil, err
	}
	for _, name := range all {
		by := slices.IndexFunc(lines, func(line preset) bool { fits, _ := path.Match(line.pattern, name); return fits })
		if by < 0 || !lines[by].enable {
			continue
		}
		u, err := Load(root, name)
		if err != nil {
			return nil, err
		}
		if !u.Masked && len(u.installedIn()) == 0 {
			return nil, fmt.Errorf("unit %s: a preset enables it but it has no [Install] section: nothing would start it",
				name)
		}
		for _, installer := range u.installedIn() {
			pulled[installer] = append(pulled[installer], name)
		}
	}
	return pulled, nil
}

// installedIn returns the units that start this unit.
func (u *Unit) installedIn() []string {
	return append(u.words("Install", "WantedBy"), u.words("Install", "RequiredBy")...)
}

// unitFiles returns the names of all units in the root.
func unitFiles(root string) ([]string, error) {
	var names []string
	for _, dir := range unitDirs {
		entries, err := os.ReadDir(filepath.Join(root, dir))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		for _, entry := range entries {
			if !entry.IsDir() && kind(entry.Name()) != "" && kind(entry.Name()) != "target" {
				names = append(names, entry.Name())
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}
