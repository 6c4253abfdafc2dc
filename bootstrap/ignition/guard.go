package ignition

import (
	"bytes"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	"k8s.io/utils/ptr"
)

// maxUnpackedBytes is the maximum number of decompressed bytes that Guard reads from one configuration.
const maxUnpackedBytes = 8 << 20

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
	// Through are the paths of the entries, such as links, through which this one leads to what Guard protects.
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
// Guard only checks what the configuration contains. Users who can write MachineConfigs can run programs on a host, and
// Guard does not prevent what these do. The API server refuses changes of a Node's labels that a kubelet must not make.
func Guard(c Config) error { return (&guard{remainingBytes: maxUnpackedBytes}).check(c) }

// HasRedirects reports whether a configuration has links or bind mounts through which its other entries, or those of a
// configuration that it is merged with, can reach what Guard protects. Then the merged configuration must be guarded as
// a whole, not only its parts.
func HasRedirects(c Config) bool { return redirectsOf(c).reachProtected() }

// GuardRendered is Guard for a rendered config, which can also have what its pools set for the kubelet: drop-ins for
// kubelet configuration and autoSizingReserved, and the command of the kubelet wrapper.
func GuardRendered(c Config) error {
	return (&guard{remainingBytes: maxUnpackedBytes, rendered: true}).check(c)
}

// guard checks one configuration.
type guard struct {
	refusals       []Refusal
	remainingBytes int64 // how many more bytes of contents can be decompressed
	rendered       bool  // whether it is a rendered config
	redirects      redirects
	more           int // refused entries that are not described
}

func (g *guard) check(c Config) error {
	g.redirects = *redirectsOf(c)
	if g.redirects.isExhausted() {
		return errExhausted
	}
	g.checkReferences(c.Ignition.Config)
	g.checkKeys(c)
	g.checkArguments("kernelArguments.shouldExist", toStrings(c.KernelArguments.ShouldExist))
	g.checkArguments("kernelArguments.shouldNotExist", toStrings(c.KernelArguments.ShouldNotExist))
	g.checkFilesystems(c.Storage.Filesystems)
	g.checkDirectories(c.Storage.Directories)
	g.checkFiles(c.Storage.Files)
	g.checkLinks(c.Storage.Links)
	g.checkUnits(c.Systemd.Units)
	g.checkParents(c)
	if g.redirects.isExhausted() {
		return errExhausted
	}
	return g.err()
}

func (g *guard) refuse(place, why string, args ...any) {
	if len(g.refusals) >= maxRefusals {
		g.more++
		return
	}
	g.refusals = append(g.refusals, Refusal{Path: place, Why: fmt.Sprintf(why, args...), Through: slices.Clone(g.redirects.followed)})
}

// err returns nil or a *GuardError with the refused entries.
func (g *guard) err() error {
	if len(g.refusals) == 0 {
		return nil
	}
	if g.more > 0 {
		g.refusals[len(g.refusals)-1].Why += fmt.Sprintf("; and %d more entries are refused", g.more)
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

func (g *guard) checkFilesystems(filesystems []types.Filesystem) {
	for i, filesystem := range filesystems {
		g.redirects.followed = nil
		if filesystem.Path == nil {
			continue
		}
		if where, ok := g.redirects.resolveMount(*filesystem.Path); !ok || hidesReserved(where) {
			g.refuse(fmt.Sprintf("storage.filesystems[%d].path", i), "a file system at %s would hide files of Poolboot: "+
				"mount it at another path", *filesystem.Path)
		}
	}
}

// checkPath refuses a path that no host can create.
func (g *guard) checkPath(place, path string) {
	if len(path) > maxPathBytes {
		g.refuse(place, "the path has %d bytes, and Linux allows %d: shorten it", len(path), maxPathBytes)
	}
	if strings.Contains(path, "\x00") {
		g.refuse(place, "%q contains a NUL, which is not valid in a path: leave it out", path)
	}
}

func (g *guard) checkDirectories(directories []types.Directory) {
	for i, directory := range directories {
		place := fmt.Sprintf("storage.directories[%d]", i)
		g.checkPath(place+".path", directory.Path)
		name := cleanPath(directory.Path)
		unit, dropin := unitAt(name)
		switch {
		case remedyFor(name) != "":
			g.refuse(place+".path", "%s is reserved for Poolboot: %s", name, remedyFor(name))
		case g.refuseUncheckedPath(place+".path", name):
		case dropin == "" && (unit == KubeletUnit || isOwnUnit(unit) && path.Ext(unit) != ".d"):
			g.refuse(place+".path", "%s is the path of a unit that Poolboot depends on: leave it out", name)
		case ptr.Deref(directory.Overwrite, false) && (containsReserved(name) || isDropinDirectory(name)):
			g.refuse(place+".overwrite", "overwriting %s would delete files of Poolboot or of the image: leave overwrite out", name)
		}
	}
}

func (g *guard) checkFiles(files []types.File) {
	for i, file := range files {
		g.redirects.followed = nil
		place := fmt.Sprintf("storage.files[%d]", i)
		g.checkPath(place+".path", file.Path)
		name := cleanPath(file.Path)
		isOfPool := g.rendered && slices.Contains([]string{WorkerKubeletPath, PoolKubeletPath, ReservedScriptPath}, name)
		if !isOfPool && g.refuseReservedPath(place+".path", name) {
			continue
		}
		if g.refuseUncheckedPath(place+".path", name) {
			continue
		}
		if isEnablementOfOwn(name) {
			g.refuse(place+".path", "%s must be a link to the unit: leave it out", name)
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
		g.checkPath(fmt.Sprintf("storage.links[%d].target", i), target)
		if !path.IsAbs(target) {
			target = path.Join(path.Dir(name), target)
		}
		target = cleanPath(target)
		unit, dropin := unitAt(name)
		targetUnit, targetDropin := unitAt(target)
		switch {
		case g.rendered && (name == WorkerReservedPath || name == PoolReservedPath) && target == ReservedOutputPath:
		case g.refuseReservedPath(place, name):
		case isEnablementDirectory(name):
			g.refuse(place, "%s must be a directory: systemd enables units in it", name)
		case isEnablementOfOwn(name):
			if targetUnit != path.Base(name) || targetDropin != "" {
				g.refuse(place, "without %s the host does not join its pool: link to the unit, or leave it out", path.Base(name))
			}
		case isBelow(name, KubeletConfigDirectory), isEnvironmentFile(name):
			g.refuse(place, "the kubelet can read %s, and the target of a link can't be checked: use a file", name)
		case appliesToKubelet(unit), isOwnUnit(unit), isDropinDirectory(name):
			g.refuse(place, "%s is part of a unit that Poolboot depends on, and the target of a link can't be checked: "+
				"use a drop-in under systemd.units", name)
		case target == "/dev/null" && !isSystemCredential(name): // disables a file of the image
		case isPreset(name), isTmpfiles(name), isManagerConfig(name), name == fstab, isGenerator(name):
			g.refuse(place, "systemd reads %s, and the target of a link can't be checked: use a file", name)
		case g.refuseUncheckedPath(place, name):
		case unit != "" && targetUnit == "":
			g.refuse(place, "%s belongs to a unit, and the target of a link can't be checked: define the unit under systemd.units", name)
		case unit != "" && dropin == "" && targetDropin == "" && (targetUnit == KubeletUnit || isOwnUnit(targetUnit)):
			g.refuse(place, "%s would be another name of %s, with drop-ins of its own: use its own name", name, targetUnit)
		}
	}
}

// refuseReservedPath refuses a file or a link at a reserved path, or at the path of a directory above one.
func (g *guard) refuseReservedPath(place, name string) bool {
	if remedy := remedyFor(name); remedy != "" {
		g.refuse(place, "%s is reserved for Poolboot: %s", name, remedy)
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
		canStayRemote := unit == "" && !isKubeletConfig(name) && !isEnvironmentFile(name) && !isPreset(name) && !isTmpfiles(name) &&
			name != fstab && !isQuadlet(name) && !isManagerConfig(name) // only the user's own programs read it
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
	if made, of := quadletUnit(name); made != "" {
		unit, dropin = made, of
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
	case isManagerConfig(name):
		g.checkManagerConfig(place, name, string(data))
	case isTmpfiles(name):
		g.checkTmpfiles(place, name, string(data))
	case name == fstab:
		g.checkFstab(place, name, string(data))
	case bytes.HasPrefix(data, []byte("\x7fELF")) && !isEnvironmentFile(name): // a program, whose strings can contain any flag
	default:
		g.checkText(place, name, data)
	}
}

func isQuadlet(name string) bool { unit, _ := quadletUnit(name); return unit != "" }

// readableContents returns the contents of a file and what is appended to it, without what is at another URL or larger
// than the limit, which it reduces by what it returns. The limit is negative if something was larger.
func readableContents(file types.File, limit *int64) (texts []string) {
	for _, part := range append([]types.Resource{file.Contents}, file.Append...) {
		data, err := Contents(part, *limit)
		*limit -= int64(len(data))
		switch {
		case err == nil:
			texts = append(texts, string(data))
		case errors.Is(err, errTooLarge):
			*limit = -1
		}
	}
	return texts
}
