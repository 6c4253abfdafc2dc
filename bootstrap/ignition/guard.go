package ignition

import (
	"bytes"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	"k8s.io/utils/ptr"
)

// maxUnpackedBytes is the maximum number of decompressed bytes that Guard reads from one configuration.
const maxUnpackedBytes = 8 << 20

// maxPathBytes is the maximum length of a path in Linux.
const maxPathBytes = 4095

// maxRefusals is the maximum number of refused entries that are described.
const maxRefusals = 100

// GuardError lists the entries of a configuration that Guard refuses.
type GuardError struct {
	// Entries are the refused entries in the order of the document, at least one.
	Entries []Refusal
}

// Refusal is one entry of a configuration that is refused.
type Refusal struct {
	// Path is the path of the entry, for example storage.files[2].contents.
	Path string
	// Why is why the entry is refused and what to do instead.
	Why string
	// Through are the paths of other entries that this one contradicts, such as a file above it.
	Through []string
}

// Error names every entry that is refused.
func (e *GuardError) Error() string {
	entries := make([]string, len(e.Entries))
	for i, entry := range e.Entries {
		entries[i] = entry.Path + ": " + entry.Why
	}
	return strings.Join(entries, "; ")
}

// Guard refuses a user's configuration that would change the Node's name, labels, taints or credential: reserved paths,
// Poolboot's and the kubelet's units, kubelet flags and settings that identify the Node, kernel arguments with the same
// effect, and references to other configurations, which can't be checked. Reserved lists them. It also refuses what
// Ignition would detect only on the host: paths that no host can create, and what CheckContents and CheckParents
// refuse. It returns nil or a *GuardError with every such entry.
//
// Guard recognizes what people write by mistake. What it does not recognize, such as a mount over a reserved path, the
// check on the host finds: before the host joins, and after an update. Neither prevents what programs do that a
// configuration starts. The API server refuses changes of a Node's labels that a kubelet must not make.
func Guard(c Config) error { return Scope{}.Guard(c) }

// Scope is what a configuration is, on which depends what it can have.
type Scope struct {
	// Rendered is set for a rendered config, which can also have what its pools set for the kubelet: drop-ins for
	// kubelet configuration and autoSizingReserved, and the command of the kubelet wrapper.
	Rendered bool
	// ControlPlane is set for a configuration of hosts of a control plane, which can't have entries at, above or below
	// what kubeadm and etcd have there, nor mounts there.
	ControlPlane bool
}

// Guard is the function Guard for a configuration with this scope.
func (s Scope) Guard(c Config) error {
	return (&guard{Scope: s, remainingBytes: maxUnpackedBytes}).check(c)
}

// guard checks one configuration.
type guard struct {
	Scope
	refusals       []Refusal
	remainingBytes int64 // how many more bytes of contents can be decompressed
	more           int   // refused entries that are not described
}

func (g *guard) check(c Config) error {
	g.checkReferences(c.Ignition.Config)
	g.checkKeys(c)
	g.checkArguments("kernelArguments.shouldExist", toStrings(c.KernelArguments.ShouldExist))
	g.checkArguments("kernelArguments.shouldNotExist", toStrings(c.KernelArguments.ShouldNotExist))
	g.checkDirectories(c.Storage.Directories)
	g.checkFiles(c.Storage.Files)
	g.checkLinks(c.Storage.Links)
	g.checkUnits(c.Systemd.Units)
	g.checkControlPlane(c)
	g.checkParents(c)
	return g.err()
}

func (g *guard) refuse(place, why string, args ...any) {
	g.add(Refusal{Path: place, Why: fmt.Sprintf(why, args...)})
}

func (g *guard) add(refusal Refusal) {
	if len(g.refusals) >= maxRefusals {
		g.more++
		return
	}
	g.refusals = append(g.refusals, refusal)
}

// err returns nil or a *GuardError with the refused entries.
func (g *guard) err() error {
	if len(g.refusals) == 0 {
		return nil
	}
	if g.more > 0 {
		g.refusals[len(g.refusals)-1].Why += fmt.Sprintf("; and %d more", g.more)
	}
	return &GuardError{Entries: g.refusals}
}

func (g *guard) checkReferences(config types.IgnitionConfig) {
	const why = "another configuration can't be checked, and is not part of the rendered config's hash: " +
		"copy its content into this one"
	for i := range config.Merge {
		g.refuse(fmt.Sprintf("ignition.config.merge[%d]", i), why)
	}
	if config.Replace.Source != nil {
		g.refuse("ignition.config.replace", why)
	}
}

// item returns the path of an item of a list.
func item(list string, i int) string { return list + "[" + strconv.Itoa(i) + "]" }

// checkPath refuses a path that no host can create.
func (g *guard) checkPath(place, path string) {
	if len(path) > maxPathBytes {
		g.refuse(place, "the path has %d bytes, and Linux allows %d: shorten it", len(path), maxPathBytes)
	}
	if strings.Contains(path, "\x00") {
		g.refuse(place, "%q contains a NUL, which is not valid in a path: leave it out", path)
	}
}

// checkKernelPath refuses a path in a file system in which nothing is kept: Ignition would write below its mount, where
// no program sees it, and an agent could not.
func (g *guard) checkKernelPath(place, name string) {
	if isIn(name, "/dev", "/proc", "/sys") {
		g.refuse(place, "%s is in a file system of the kernel, which keeps no files: use /etc/sysctl.d, /etc/tmpfiles.d or /etc/udev/rules.d", name)
	}
}

func (g *guard) checkDirectories(directories []types.Directory) {
	for i, directory := range directories {
		place := item("storage.directories", i)
		g.checkPath(place+".path", directory.Path)
		name := cleanPath(directory.Path)
		g.checkKernelPath(place+".path", name)
		unit, dropin := unitAt(name)
		whom, remedy := g.reservation(name)
		switch {
		case remedy != "":
			g.refuse(place+".path", "%s is reserved for %s: %s", name, whom, remedy)
		case dropin == "" && (unit == KubeletUnit || isOwnUnit(unit) && path.Ext(unit) != ".d"):
			g.refuse(place+".path", "%s is the path of a unit that Poolboot depends on: leave it out", name)
		case ptr.Deref(directory.Overwrite, false) && (containsReserved(name) || isDropinDirectory(name)):
			g.refuse(place+".overwrite", "overwriting %s would delete files of Poolboot or of the image: leave overwrite out", name)
		}
	}
}

func (g *guard) checkFiles(files []types.File) {
	for i, file := range files {
		place := item("storage.files", i)
		g.checkPath(place+".path", file.Path)
		name := cleanPath(file.Path)
		g.checkKernelPath(place+".path", name)
		isOfPool := g.Rendered && slices.Contains([]string{WorkerKubeletPath, PoolKubeletPath, ReservedScriptPath}, name)
		if !isOfPool && g.refuseReservedPath(place+".path", name) {
			continue
		}
		before := len(g.refusals)
		var whole []byte
		if file.Contents.Source != nil {
			whole = g.checkContents(place+".contents", name, file.Contents)
		}
		for j, part := range file.Append {
			whole = append(whole, g.checkContents(fmt.Sprintf("%s.append[%d]", place, j), name, part)...)
		}
		if len(file.Append) > 0 && len(g.refusals) == before {
			g.checkFile(place, name, whole) // the parts can be harmless, and the whole not
		}
		if isKubeletConfig(name) && file.Contents.Source != nil && len(g.refusals) == before {
			g.checkKubeletType(place+".contents", name, whole)
		}
	}
}

func (g *guard) checkLinks(links []types.Link) {
	for i, link := range links {
		place := fmt.Sprintf("storage.links[%d].path", i)
		name, target := cleanPath(link.Path), ptr.Deref(link.Target, "")
		g.checkPath(place, link.Path)
		g.checkKernelPath(place, name)
		g.checkPath(fmt.Sprintf("storage.links[%d].target", i), target)
		unit, _ := unitAt(name)
		switch {
		case g.Rendered && (name == WorkerReservedPath || name == PoolReservedPath) && target == ReservedOutputPath:
		case g.refuseReservedPath(place, name):
		case appliesToKubelet(unit), isOwnUnit(unit), isDropinDirectory(name):
			g.refuse(place, "%s is part of a unit that Poolboot depends on, and the target of a link can't be checked: "+
				"use a drop-in under systemd.units", name)
		}
	}
}

// refuseReservedPath refuses a file or a link at a reserved path, or at the path of a directory above one.
func (g *guard) refuseReservedPath(place, name string) bool {
	if whom, remedy := g.reservation(name); remedy != "" {
		g.refuse(place, "%s is reserved for %s: %s", name, whom, remedy)
		return true
	}
	if containsReserved(name) {
		g.refuse(place, "%s must be a directory: Poolboot has files below it", name)
		return true
	}
	return false
}

// checkContents checks the contents of a file, or a part of them, and returns them.
func (g *guard) checkContents(place, name string, resource types.Resource) []byte {
	unit, _ := unitAt(name)
	data, err := g.readContents(place, name, resource)
	if err != nil {
		canStayRemote := unit == "" && !isKubeletConfig(name) && !isPreset(name)
		if IsRemote(err) && !canStayRemote {
			g.refuse(place, "%s: %v", name, err)
		}
		return nil
	}
	g.checkFile(place, name, data)
	return data
}

// checkFile checks the contents of a file, depending on its purpose.
func (g *guard) checkFile(place, name string, data []byte) {
	unit, dropin := unitAt(name)
	if isUnitName(unit) && (dropin == "" || path.Ext(dropin) == ".conf") {
		g.checkInstall(place, unit, name, string(data))
	}
	switch {
	case isKubeletConfig(name):
		g.checkKubeletConfig(place, name, data)
	case unit != "" && dropin == "":
		g.checkUnit(place, unit, string(data))
	case unit != "":
		g.checkDropin(place, unit, dropin, string(data))
	case isPreset(name):
		g.checkPreset(place, name, data)
	case name == fstabPath:
		g.checkFstab(place, data)
	case bytes.HasPrefix(data, []byte("\x7fELF")): // a program, whose strings can contain any flag
	default:
		g.checkText(place, name, data)
	}
}
