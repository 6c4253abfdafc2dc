package ignition

import (
	"path"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_5/types"
)

// maxHops is how many links in a row Linux follows.
const maxHops = 40

// redirects are what a configuration has of links, by links of its own, lines of tmpfiles.d and bind mounts, by their
// paths.
type redirects map[string]redirect

// redirect leads from one path to another.
type redirect struct {
	to     string // may be relative
	isBind bool   // whether it is a bind mount, over which something else may be mounted
}

// redirectsOf collects them. What can't be read is refused elsewhere.
func redirectsOf(c Config) redirects {
	found := redirects{}
	for _, link := range c.Storage.Links {
		if link.Target != nil {
			found.add(link.Path, redirect{to: *link.Target})
		}
	}
	for _, file := range c.Storage.Files {
		name := cleaned(file.Path)
		if name != fstab && !isTmpfiles(name) && mountPoint(path.Base(name)) == "" {
			continue
		}
		for _, text := range textsOfFile(file) {
			found.inText(name, text)
		}
	}
	for _, unit := range c.Systemd.Units {
		if mountPoint(unit.Name) == "" {
			continue
		}
		var whole strings.Builder
		for _, text := range append([]*string{unit.Contents}, contentsOfDropins(unit.Dropins)...) {
			if text != nil {
				whole.WriteString(*text + "\n")
			}
		}
		found.inText("/"+unit.Name, whole.String())
	}
	return found
}

func contentsOfDropins(dropins []types.Dropin) (contents []*string) {
	for _, dropin := range dropins {
		contents = append(contents, dropin.Contents)
	}
	return contents
}

// inText adds what a file of systemd's makes of links and bind mounts.
func (r redirects) inText(name, text string) {
	switch {
	case name == fstab:
		for _, line := range fstabLines(text) {
			if line.isBind() {
				r.add(line.where, redirect{to: line.what, isBind: true})
			}
		}
	case isTmpfiles(name):
		for _, line := range tmpfilesLines(text) {
			if line.kind == 'L' && line.argument != "" {
				r.add(line.path, redirect{to: line.argument})
			}
		}
	default:
		if what := bindSource(text); what != "" {
			r.add(mountPoint(path.Base(name)), redirect{to: what, isBind: true})
		}
	}
}

func (r redirects) add(from string, leads redirect) {
	if !path.IsAbs(from) || leads.to == "" {
		return
	}
	directory, base := path.Split(path.Clean(from))
	parent, _ := r.resolve(directory)
	if at := path.Join(parent, base); at != "/" {
		r[at] = leads
	}
}

// resolve is where a path leads, as Linux goes: one component after the other, over the links of the configuration and
// those of the images, each .. from where the way has led so far. It is not ok when it goes round in circles.
func (r redirects) resolve(name string) (at string, ok bool) { return r.follow(name, false) }

// mountedAt is where a mount at a path is: over a bind mount that is there, and not over what that shows.
func (r redirects) mountedAt(name string) (at string, ok bool) { return r.follow(name, true) }

func (r redirects) follow(name string, isMount bool) (at string, ok bool) {
	at = "/"
	hops := 0
	rest := strings.Split(name, "/")
	for len(rest) > 0 {
		part := rest[0]
		rest = rest[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			at = path.Dir(at)
			continue
		}
		next := path.Join(at, part)
		leads, isLink := r[next]
		if !isLink || isMount && leads.isBind && len(rest) == 0 {
			at = next
			if direct := cleaned(next); direct != next {
				at = direct
			}
			continue
		}
		if hops++; hops > maxHops {
			return next, false
		}
		if path.IsAbs(leads.to) {
			at = "/"
		}
		rest = append(strings.Split(leads.to, "/"), rest...)
	}
	return at, true
}

// leadsIn says whether a redirect leads to what is Poolboot's or above it, from where a path could go on to it.
func (r redirects) leadsIn() bool {
	for from := range r {
		if at, ok := r.resolve(from); !ok || isKept(at) || leadsToReserved(at) || at == "/" {
			return true
		}
	}
	return false
}

// isKept says whether a file is Poolboot's or read by the kubelet or by systemd for the units that Poolboot relies on.
func isKept(name string) bool {
	unit, _ := unitAt(name)
	return cureFor(name) != "" || appliesToKubelet(unit) || isOwn(unit) || isDropinDirectory(name) || isBelow(name, KubeletConfigDirectory) ||
		isEnablementOfOwn(name)
}

// enablements are the ends of directories of links by which one unit pulls in another.
var enablements = []string{".wants", ".requires", ".upholds"}

// isEnablementDirectory says whether a path is such a directory.
func isEnablementDirectory(name string) bool {
	unit, dropin := unitAt(name)
	for _, end := range enablements {
		if unit != "" && dropin == "" && strings.HasSuffix(unit, end) {
			return true
		}
	}
	return false
}

// isEnablementOfOwn says whether a path is a link that pulls in the kubelet or a unit of Poolboot's.
func isEnablementOfOwn(name string) bool {
	base := path.Base(name)
	return (base == KubeletUnit || isOwn(base)) && isEnablementDirectory(path.Dir(name))
}
