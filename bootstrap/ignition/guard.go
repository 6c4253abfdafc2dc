package ignition

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"
)

// maxUnpacked is how many bytes of contents Guard unpacks of one configuration.
const maxUnpacked = 64 << 20

// GuardError lists what a configuration would take over.
type GuardError struct {
	// Entries are at least one, in the order of the document.
	Entries []Refusal
}

// Refusal is one entry of a configuration that is refused.
type Refusal struct {
	// Path leads to the entry, for example storage.files[2].contents.
	Path string
	// Why says whose the entry is and what to do instead.
	Why string
}

// Error names every entry that is refused.
func (e *GuardError) Error() string {
	entries := make([]string, len(e.Entries))
	for i, entry := range e.Entries {
		entries[i] = entry.Path + ": " + entry.Why
	}
	return strings.Join(entries, "; ")
}

// Guard refuses a configuration of a user that would take over what carries a Node's name, labels, taints or credential:
// reserved paths, Poolboot's and the kubelet's units, the kubelet flags and settings that say which Node it is, and
// references to other configurations, which can't be checked. It returns nil or a *GuardError that lists every such entry.
//
// Guard stops mistakes. Who writes MachineConfigs can run anything on a host, and is not stopped by it.
func Guard(c Config) error {
	g := guard{left: maxUnpacked}
	g.references(c.Ignition.Config)
	g.directories(c.Storage.Directories)
	g.files(c.Storage.Files)
	g.links(c.Storage.Links)
	g.units(c.Systemd.Units)
	if len(g.refused) > 0 {
		return &GuardError{Entries: g.refused}
	}
	return nil
}

// guard goes through one configuration.
type guard struct {
	refused []Refusal
	left    int64 // how many bytes of contents may still be unpacked
}

func (g *guard) refuse(place, why string, args ...any) {
	g.refused = append(g.refused, Refusal{Path: place, Why: fmt.Sprintf(why, args...)})
}

func (g *guard) references(config types.IgnitionConfig) {
	const why = "another configuration can't be checked, nor is it part of the rendered config's name: " +
		"write what it holds into this one"
	for i := range config.Merge {
		g.refuse(fmt.Sprintf("ignition.config.merge[%d]", i), why)
	}
	if config.Replace.Source != nil {
		g.refuse("ignition.config.replace", why)
	}
}

func (g *guard) directories(directories []types.Directory) {
	for i, directory := range directories {
		if cure := cureFor(cleaned(directory.Path)); cure != "" {
			g.refuse(fmt.Sprintf("storage.directories[%d].path", i), "%s is Poolboot's: %s", directory.Path, cure)
		}
	}
}

func (g *guard) files(files []types.File) {
	for i, file := range files {
		place := fmt.Sprintf("storage.files[%d]", i)
		name := cleaned(file.Path)
		if g.reserved(place+".path", name) {
			continue
		}
		if file.Contents.Source != nil {
			g.contents(place+".contents", name, file.Contents)
		}
		for j, part := range file.Append {
			g.contents(fmt.Sprintf("%s.append[%d]", place, j), name, part)
		}
	}
}

func (g *guard) links(links []types.Link) {
	for i, link := range links {
		place := fmt.Sprintf("storage.links[%d].path", i)
		name := cleaned(link.Path)
		unit, _ := unitAt(name)
		switch {
		case g.reserved(place, name):
		case isBelow(name, KubeletConfigDirectory):
			g.refuse(place, "%s is read by the kubelet, and where a link leads can't be checked: make it a file", name)
		case appliesToKubelet(unit), isOwn(unit), isDropinDirectory(name):
			g.refuse(place, "%s is part of a unit that Poolboot relies on, and where a link leads can't be checked: "+
				"use a drop-in under systemd.units", name)
		}
	}
}

// reserved refuses a file or a link that is at a reserved path or would take the place of a directory above one.
func (g *guard) reserved(place, name string) bool {
	if cure := cureFor(name); cure != "" {
		g.refuse(place, "%s is Poolboot's: %s", name, cure)
		return true
	}
	if leadsToReserved(name) {
		g.refuse(place, "%s must be a directory: Poolboot keeps files below it", name)
		return true
	}
	return false
}

// contents checks what a file holds, by what the file is for.
func (g *guard) contents(place, name string, resource types.Resource) {
	unit, dropin := unitAt(name)
	isKubeletConfig := isBelow(name, KubeletConfigDirectory) && path.Ext(name) == ".conf"
	data, err := contentsOf(resource, g.left)
	switch {
	case errors.Is(err, errRemote) && unit == "" && !isKubeletConfig && !holdsEnvironment(name):
		return // it can hold nothing of Poolboot's
	case err != nil:
		g.refuse(place, "%s: %v", name, err)
		return
	}
	g.left -= int64(len(data))
	switch {
	case isKubeletConfig:
		g.kubeletConfig(place, name, data)
	case unit != "" && dropin == "":
		g.unit(place, unit, string(data))
	case unit != "":
		g.dropin(place, unit, dropin, string(data))
	default:
		g.text(place, name, data)
	}
}

// cleaned is a path without detours. /var/run has long been a link to /run.
func cleaned(name string) string {
	name = path.Clean(name)
	if isBelow(name, "/var/run") {
		name = strings.TrimPrefix(name, "/var")
	}
	return name
}
