package update

import (
	"path"
	"reflect"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	"k8s.io/utils/ptr"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

const (
	unitDirectory = "/etc/systemd/system"
	maskTarget    = "/dev/null"
	fileMode      = 0o644
	// modeBits are the bits of a mode that Ignition sets: it ignores setuid, setgid and sticky bits before spec 3.6.
	modeBits = 0o777
)

// node is the state of a path, with contents that are not decoded yet.
type node struct {
	Path
	contents types.Resource
}

// tree returns the paths of a configuration, as Ignition writes them: units after everything else. It leaves out files
// that are appended to: their contents depend on the host, and findObstacles refuses to change them.
func tree(config ignition.Config) map[string]node {
	nodes := map[string]node{}
	for _, directory := range config.Storage.Directories {
		nodes[directory.Path] = node{Path: Path{Type: TypeDirectory, Mode: permissions(directory.Mode), User: directory.User, Group: directory.Group}}
	}
	for _, file := range config.Storage.Files {
		if len(file.Append) == 0 {
			nodes[file.Path] = newFile(file)
		}
	}
	for _, link := range config.Storage.Links {
		nodes[link.Path] = newLink(link)
	}
	for _, unit := range config.Systemd.Units {
		for _, dropin := range unit.Dropins {
			if dropin.Contents != nil {
				nodes[path.Join(unitDirectory, unit.Name+".d", dropin.Name)] = newText(*dropin.Contents)
			}
		}
		switch name := unitPath(unit.Name); {
		case isMasked(&unit):
			nodes[name] = node{Path: Path{Type: TypeLink, Target: maskTarget}}
		case ptr.Deref(unit.Contents, "") != "":
			nodes[name] = newText(*unit.Contents)
		case unit.Mask != nil:
			nodes[name] = node{Path: Path{Type: TypeUnmasked}}
		}
	}
	return nodes
}

func unitPath(name string) string { return path.Join(unitDirectory, name) }

// newLink returns the state of a link. The target of a hard link is an absolute path.
func newLink(link types.Link) node {
	n := node{Path: Path{Type: TypeLink, Target: ptr.Deref(link.Target, ""), User: link.User, Group: link.Group}}
	if ptr.Deref(link.Hard, false) {
		n.Type = TypeHardLink
		n.Target = path.Join("/", n.Target)
	}
	return n
}

// newFile returns the state of a file. Ignition replaces a file with contents, and so its owner and mode.
func newFile(file types.File) node {
	n := node{Path: Path{Type: TypeFile, Mode: permissions(file.Mode), User: file.User, Group: file.Group}, contents: file.Contents}
	if file.Contents.Source == nil {
		return n
	}
	if n.Mode == nil {
		n.Mode = ptr.To(fileMode)
	}
	if n.User == (types.NodeUser{}) {
		n.User.ID = ptr.To(0)
	}
	if n.Group == (types.NodeGroup{}) {
		n.Group.ID = ptr.To(0)
	}
	return n
}

// permissions returns the bits of a mode that Ignition sets, nil for none.
func permissions(mode *int) *int {
	if mode == nil {
		return nil
	}
	return ptr.To(*mode & modeBits)
}

// newText returns the state of a file of a unit.
func newText(text string) node {
	n := newFile(types.File{FileEmbedded1: types.FileEmbedded1{Contents: types.Resource{Source: ptr.To("")}}})
	n.contents = types.Resource{}
	n.Contents = &Contents{Data: []byte(text)}
	return n
}

// state returns the state of a path with its contents. It ignores contents that can't be decoded: findObstacles refuses
// to write them, and it does not matter if they are replaced.
func (n node) state() *Path {
	state := n.Path
	if state.Contents == nil {
		state.Contents, _ = decode(n.contents)
	}
	return &state
}

// changedPaths returns the states before and after of the paths that differ, by path.
func changedPaths(before, after ignition.Config) map[string][2]*Path {
	from, to := tree(before), tree(after)
	paths := map[string][2]*Path{}
	for name, old := range from {
		now, stays := to[name]
		switch {
		case !stays:
			paths[name] = [2]*Path{old.state(), nil}
		case !reflect.DeepEqual(old, now):
			if states := [2]*Path{old.state(), now.state()}; !reflect.DeepEqual(states[0], states[1]) {
				paths[name] = states
			}
		}
	}
	for name, now := range to {
		if _, existed := from[name]; !existed {
			paths[name] = [2]*Path{nil, now.state()}
		}
	}
	addHardLinks(paths, from, to)
	return paths
}

// addHardLinks adds the hard links to files that are replaced: they would still lead to the old file.
func addHardLinks(paths map[string][2]*Path, from, to map[string]node) {
	for name, now := range to {
		_, isReplaced := paths[now.Target]
		if _, differs := paths[name]; now.Type == TypeHardLink && isReplaced && !differs {
			paths[name] = [2]*Path{from[name].state(), now.state()}
		}
	}
}
