package ignition

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"k8s.io/utils/ptr"
)

// maxHops is the number of links that Linux follows for one path.
const maxHops = 40

// redirects are the links and bind mounts of a configuration. tmpfiles.d can create links too.
type redirects struct {
	byPath map[string]redirect
	// steps are those that resolving took, in units of short path components.
	steps int
	// protected are the paths of redirects that lead to a protected path or to a directory above one, in order.
	protected    []string
	hasProtected bool // whether protected is known
	// followed are the places in the document of those that paths were resolved through, since it was last reset.
	followed []string
}

const (
	// maxPathBytes is the maximum length of a path in Linux.
	maxPathBytes = 4095
	// maxSteps is the maximum number of steps to resolve the paths of one configuration.
	maxSteps = 2_000_000
	// maxRedirectBytes is the maximum size of the files of a configuration that can define links and mounts, after
	// decompression.
	maxRedirectBytes = 2 << 20
)

// errExhausted is the error for a configuration whose paths take too long to be resolved.
var errExhausted = &GuardError{Entries: []Refusal{{Path: "storage", Why: fmt.Sprintf("its paths lead through more than %d directories and links in all, or its files of tmpfiles.d "+
	"and its fstab have more than %d bytes, which takes too long to check: use fewer or shorter paths there and in links and mounts", maxSteps, maxRedirectBytes)}}}

// isExhausted reports whether there were more than maxSteps. Nothing is resolved then.
func (r *redirects) isExhausted() bool { return r.steps > maxSteps }

// redirect leads from one path to another.
type redirect struct {
	target string // can be relative
	isBind bool   // whether it is a bind mount, over which another file system can be mounted
	place  string // of the entry in the document that defines it
}

// redirectsOf returns the redirects of a configuration. Contents that can't be read are refused by other checks.
func redirectsOf(c Config) *redirects {
	found := &redirects{byPath: map[string]redirect{}}
	limit := int64(maxRedirectBytes)
	for i, link := range c.Storage.Links {
		if link.Target != nil {
			found.add(link.Path, redirect{target: *link.Target, place: fmt.Sprintf("storage.links[%d]", i)})
		}
	}
	for i, file := range c.Storage.Files {
		name := cleanPath(file.Path)
		if name != fstab && !isTmpfiles(name) && mountPoint(path.Base(name)) == "" {
			continue
		}
		for _, text := range readableContents(file, &limit) {
			found.addFromText(fmt.Sprintf("storage.files[%d]", i), name, text)
		}
	}
	for i, unit := range c.Systemd.Units {
		if mountPoint(unit.Name) == "" {
			continue
		}
		text := ptr.Deref(unit.Contents, "")
		for _, dropin := range unit.Dropins {
			text += "\n" + ptr.Deref(dropin.Contents, "")
		}
		found.addFromText(fmt.Sprintf("systemd.units[%d]", i), "/"+unit.Name, text)
	}
	if limit < 0 {
		found.steps = maxSteps + 1
	}
	found.followed = nil
	return found
}

// addFromText adds the links and bind mounts that a file of systemd defines.
func (r *redirects) addFromText(place, name, text string) {
	switch {
	case name == fstab:
		for _, line := range fstabLines(text) {
			if isBind(line.kind, line.options) {
				r.add(line.where, redirect{target: line.what, isBind: true, place: place})
			}
		}
	case isTmpfiles(name):
		for _, line := range tmpfilesLines(text) {
			if line.kind == 'L' && line.argument != "" {
				r.add(line.path, redirect{target: line.argument, place: place})
			}
		}
	default:
		if what := bindSource(text); what != "" {
			r.add(mountPoint(path.Base(name)), redirect{target: what, isBind: true, place: place})
		}
	}
}

func (r *redirects) add(from string, leads redirect) {
	if !path.IsAbs(from) || leads.target == "" {
		return
	}
	directory, base := path.Split(path.Clean(from))
	parent, _ := r.resolve(directory)
	if at := path.Join(parent, base); at != "/" {
		r.byPath[at] = leads
	}
}

// resolve returns the path that a path resolves to, as in Linux: component by component, through the links of the
// configuration and of the images, each .. from the directory that was reached. It is not ok if there is a loop.
func (r *redirects) resolve(name string) (at string, ok bool) { return r.follow(name, false) }

// resolveMount returns the path at which a mount takes effect: a bind mount at the end of the path is covered, not
// followed.
func (r *redirects) resolveMount(name string) (at string, ok bool) { return r.follow(name, true) }

func (r *redirects) follow(name string, isMount bool) (at string, ok bool) {
	const unit = 64 // bytes of a path that are as expensive as one step
	at = "/"
	hops := 0
	rest := strings.Split(name, "/")
	r.steps += len(name) / unit
	for len(rest) > 0 {
		if r.isExhausted() {
			return at, false
		}
		r.steps += 1 + len(at)/unit
		part := rest[0]
		rest = rest[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			at = path.Dir(at)
			continue
		}
		next := strings.TrimSuffix(at, "/") + "/" + part
		leads, isLink := r.byPath[next]
		if !isLink || isMount && leads.isBind && len(rest) == 0 {
			at = next
			if direct := cleanPath(next); direct != next {
				at = direct
			}
			continue
		}
		r.followed = append(r.followed, leads.place)
		if hops++; hops > maxHops {
			return next, false
		}
		if path.IsAbs(leads.target) {
			at = "/"
		}
		r.steps += (len(leads.target) + len(rest)) / unit
		rest = append(strings.Split(leads.target, "/"), rest...)
	}
	return at, true
}

// reachProtected reports whether a redirect leads to a protected path or to a directory above one.
func (r *redirects) reachProtected() bool { return len(r.findProtected()) > 0 }

// findProtected returns the paths of such redirects, in order.
func (r *redirects) findProtected() []string {
	if r.hasProtected {
		return r.protected
	}
	before := r.followed
	for from := range r.byPath {
		r.followed = nil
		if at, ok := r.resolve(from); !ok || isProtected(at) || containsReserved(at) || at == "/" {
			r.protected = append(r.protected, from)
		}
	}
	r.followed, r.hasProtected = before, true
	slices.Sort(r.protected)
	return r.protected
}

// isProtected reports whether a file is protected: it belongs to Poolboot, or the kubelet or systemd reads it for the
// units that Poolboot depends on.
func isProtected(name string) bool {
	unit, _ := unitAt(name)
	return remedyFor(name) != "" || appliesToKubelet(unit) || isOwnUnit(unit) || isDropinDirectory(name) || isBelow(name, KubeletConfigDirectory) ||
		isEnablementOfOwn(name)
}

// enablements are the suffixes of directories with links by which one unit enables another.
var enablements = []string{".wants", ".requires", ".upholds"}

// isEnablementDirectory reports whether a path is such a directory.
func isEnablementDirectory(name string) bool {
	unit, dropin := unitAt(name)
	return dropin == "" && slices.Contains(enablements, path.Ext(unit))
}

// isEnablementOfOwn reports whether a path is a link that enables the kubelet or a unit of Poolboot.
func isEnablementOfOwn(name string) bool {
	base := path.Base(name)
	return (base == KubeletUnit || isOwnUnit(base)) && isEnablementDirectory(path.Dir(name))
}
