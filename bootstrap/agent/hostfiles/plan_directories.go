package hostfiles

import (
	"errors"
	"maps"
	"path"
	"slices"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
)

// removeDirectories adds the steps that remove directories that Poolboot created and that are empty then, the deepest
// first. Others stay, with the mode and owner of a directory that is created as a parent.
func (p *plan) removeDirectories() error {
	needed := map[string]bool{}
	for _, r := range p.next {
		if !r.Implied {
			for parent := path.Dir(r.Real); parent != "."; parent = path.Dir(parent) {
				needed[parent] = true
			}
		}
	}
	goals := map[string]*goal{}
	for _, g := range p.goals {
		goals[g.path] = g
	}
	managed := p.managed()
	names := slices.SortedFunc(maps.Keys(managed), func(a, b string) int { return hosttree.CompareDepth(b, a) })
	for _, name := range names {
		r, g := managed[name], goals[name]
		isReleased := r.Implied && g == nil || g != nil && (g.want == wantNothing || g.want == wantFile && isDirectory(g.now))
		if r.Type != hosttree.Directory || !isReleased {
			continue
		}
		if err := p.releaseDirectory(name, r, g, needed[r.Real]); err != nil {
			return err
		}
	}
	return nil
}

func (p *plan) releaseDirectory(name string, r record, g *goal, isNeeded bool) error {
	switch r.Origin.Kind {
	case nothing, unreplaced, kept:
	case unknown:
		if original, err := p.original(name); errors.Is(err, errUnknown) || original != "" {
			return nil
		} else if err != nil {
			return err
		}
	default:
		return nil
	}
	found, err := p.stat(r.Real)
	if err != nil {
		return err
	}
	if !isDirectory(found) {
		delete(p.next, name)
		return nil
	}
	if isEmpty, err := p.willBeEmpty(r.Real); err != nil {
		return err
	} else if isEmpty && !isNeeded {
		before := metaOf(found)
		p.steps = append(p.steps, step{Do: rmdir, Path: r.Real, Before: &before})
		p.gone[r.Real] = true
		if g == nil || g.record == nil {
			delete(p.next, name)
		}
		return nil
	}
	if g != nil && g.want == wantFile {
		return p.refuse(&Obstacle{name, "it is a directory with files that Poolboot did not write", "move them, or change the path in the configuration"})
	}
	p.next[name] = record{state: state{Type: hosttree.Directory}, Real: r.Real, Origin: r.Origin, Implied: true}
	if g != nil {
		g.want, g.meta = wantMeta, defaultMeta(hosttree.Directory)
	}
	return nil
}

// willBeEmpty reports whether nothing is left in a directory.
func (p *plan) willBeEmpty(real string) (bool, error) {
	names, err := p.list(real)
	return !slices.ContainsFunc(names, func(name string) bool { return !p.gone[path.Join(real, name)] }), err
}

// makeParents adds the steps that create the parents of a path, and reports whether it can have all of them.
func (p *plan) makeParents(g *goal) (bool, error) {
	for end := range g.real {
		if g.real[end] != '/' || p.made[g.real[:end]] {
			continue
		}
		parent := g.real[:end]
		found, err := p.stat(parent)
		if err != nil {
			return false, err
		}
		switch {
		case isDirectory(found) && !p.gone[parent]:
		case found != nil && !p.gone[parent]:
			return false, p.refuse(&Obstacle{g.path, "it is below /" + parent + ", which is not a directory", "remove that, or change the path in the configuration"})
		default:
			p.makeDirectory(parent, defaultMeta(hosttree.Directory))
			p.next["/"+parent] = record{state: state{Type: hosttree.Directory}, Real: parent, Implied: true}
		}
	}
	return true, nil
}

func (p *plan) makeDirectory(real string, m meta) {
	p.steps = append(p.steps, step{Do: mkdir, Path: real, After: &m})
	p.made[real] = true
}

// setDirectory adds the steps that create a directory, or set the mode and owner of what is there.
func (p *plan) setDirectory(g *goal) {
	if g.now == nil || p.gone[g.real] {
		if g.want == wantDirectory {
			p.makeDirectory(g.real, g.meta)
		}
		return
	}
	if before := metaOf(g.now); before != g.meta {
		p.steps = append(p.steps, step{Do: setMeta, Path: g.real, Before: &before, After: &g.meta})
	}
}
