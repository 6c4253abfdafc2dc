package hostfiles

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"syscall"

	"k8s.io/utils/ptr"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// CheckError is why an update is not possible. Nothing was changed.
type CheckError struct {
	// Differences are paths that were changed since Poolboot wrote them.
	Differences []update.Drift
	// Obstacles are paths that can't be changed as the configuration wants.
	Obstacles []Obstacle
}

func (e *CheckError) Error() string {
	var parts []string
	for _, d := range e.Differences {
		parts = append(parts, fmt.Sprintf("%s: it was changed since Poolboot wrote it (%s): restore it, or run kubectl poolboot rollout retry", d.Name, d.Kind))
	}
	for _, o := range e.Obstacles {
		parts = append(parts, o.Error())
	}
	return "nothing was changed: " + strings.Join(parts, "; ")
}

// plan is an update that was not begun yet.
type plan struct {
	*Updater
	goals []*goal
	// next are the records after the update.
	next map[string]record
	// gone and made are the paths that are removed before others are written, and the directories that are created.
	gone, made map[string]bool
	// sources are those of the slots.
	sources map[string]*goal
	steps   []step
	refused CheckError
}

// newPlan returns an update, or a *CheckError.
func (u *Updater) newPlan(changes []hosttree.Change, force bool) (*plan, error) {
	switch {
	case u.isInterrupted():
		return nil, ErrInterrupted
	case u.IsUnconfirmed():
		return nil, ErrUnconfirmed
	}
	u.mounts.forget()
	p := &plan{Updater: u, next: maps.Clone(u.managed()), gone: map[string]bool{}, made: map[string]bool{}, sources: map[string]*goal{}}
	if p.next == nil {
		p.next = map[string]record{}
	}
	u.ownLinks = map[string]bool{}
	for _, r := range u.managed() {
		// If the update is forced, it replaces links that were placed where its directories should be.
		u.ownLinks[r.Real] = r.Type == hosttree.Link || force && r.Type == hosttree.Directory && !r.Implied
	}
	targets := map[string]string{}
	for _, change := range changes {
		if change.To != nil {
			if err := checkResolved(change.Path, *change.To); err != nil {
				return nil, err
			}
		}
		g, err := p.newGoal(change, force)
		if err := p.refuse(pathError(change.Path, err)); err != nil {
			return nil, fmt.Errorf("%s: %w", change.Path, err)
		}
		if g == nil {
			continue
		}
		if other, exists := targets[g.real]; exists {
			p.refused.Obstacles = append(p.refused.Obstacles, Obstacle{g.path, "it leads to the same path as " + other, "remove one of them from the configuration"})
			continue
		}
		targets[g.real] = g.path
		p.goals = append(p.goals, g)
		delete(p.next, g.path)
		if g.record != nil {
			p.next[g.path] = *g.record
		}
	}
	if p.isRefused() {
		return nil, &p.refused
	}
	slices.SortFunc(p.goals, func(a, b *goal) int { return hosttree.CompareDepth(a.real, b.real) })
	for _, build := range []func() error{p.removeFiles, p.removeDirectories, p.write, p.checkLeftOver, p.checkWritable} {
		if err := build(); err != nil {
			return nil, err
		}
	}
	if p.isRefused() {
		return nil, &p.refused
	}
	return p, nil
}

func (p *plan) isRefused() bool { return len(p.refused.Differences)+len(p.refused.Obstacles) > 0 }

// refuse collects an error that is an obstacle, and returns any other error.
func (p *plan) refuse(err error) error {
	if obstacle, ok := errors.AsType[*Obstacle](err); ok {
		p.refused.Obstacles = append(p.refused.Obstacles, *obstacle)
		return nil
	}
	return err
}

// newGoal returns the goal of a change, nil if there is nothing to do.
func (p *plan) newGoal(change hosttree.Change, force bool) (*goal, error) {
	var r *record
	if managed, exists := p.managed()[change.Path]; exists {
		r = &managed
	}
	if r == nil && change.To == nil {
		return nil, nil
	}
	g := &goal{path: change.Path}
	var err error
	if g.real, err = p.resolve(change.Path, p.isOwnLink); err != nil {
		return nil, err
	}
	if obstacle := p.leftOver(g.real); obstacle != nil {
		return nil, obstacle
	}
	if g.now, err = p.stat(g.real); err != nil {
		return nil, err
	}
	if r != nil && !r.Implied {
		if r.Real != g.real {
			return nil, &Obstacle{change.Path, fmt.Sprintf("a symbolic link was placed on the way: it led to /%s and leads to /%s", r.Real, g.real), "remove the link"}
		}
		kinds, err := p.differences(g.real, &r.state, p.contents)
		if _, isObstacle := errors.AsType[*Obstacle](err); err != nil && (!force || isObstacle) {
			return nil, err
		} else if err != nil {
			kinds = []update.DriftKind{update.DriftUnreadable}
		}
		if !force {
			for _, kind := range kinds {
				p.refused.Differences = append(p.refused.Differences, update.Drift{Name: change.Path, Kind: kind})
			}
		}
		if want := change.To; want != nil && len(kinds) == 0 && want.Type != hosttree.HardLink && isSameState(r.state, stateOf(*want)) {
			return nil, nil
		}
	}
	if change.To == nil {
		return g, p.release(g, *r, force)
	}
	return g, p.configure(g, *change.To, r, force)
}

// leftOver returns an obstacle if a path is left over from an update that was undone: its original is in a slot.
func (u *Updater) leftOver(real string) error {
	for _, left := range u.LeftOver() {
		if left.Path == "/"+real {
			return &Obstacle{left.Path, "the undo of an earlier update could not restore it", left.Why}
		}
	}
	return nil
}

// checkLeftOver refuses steps at paths that are left over, such as those of parents.
func (p *plan) checkLeftOver() error {
	for _, s := range p.steps {
		if err := p.refuse(p.leftOver(s.Path)); err != nil {
			return err
		}
	}
	return nil
}

// isSameState reports whether two states are the same.
func isSameState(a, b state) bool {
	return a.Type == b.Type && a.Size == b.Size && a.Sum == b.Sum && a.Target == b.Target &&
		ptr.Equal(a.Mode, b.Mode) && ptr.Equal(a.UID, b.UID) && ptr.Equal(a.GID, b.GID)
}

// pathError returns an obstacle for an error of one path. Errors of the process say nothing about the path.
func pathError(name string, err error) error {
	_, isObstacle := errors.AsType[*Obstacle](err)
	switch {
	case err == nil || isObstacle || isOfProcess(err):
		return err
	case errors.Is(err, syscall.ENAMETOOLONG):
		return &Obstacle{name, "it, or a part of it, is longer than the system allows", "shorten it"}
	case errors.Is(err, syscall.ELOOP):
		return &Obstacle{name, "it leads through too many symbolic links", "remove the loop of links on the host"}
	}
	return &Obstacle{name, "what is there can't be read: " + reasonOf(err), "correct it on the host, or remove the path from the configuration"}
}

// isOfProcess reports whether an error says nothing about a path: it comes from the lack of something in the process.
func isOfProcess(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) || errors.Is(err, syscall.ENOMEM)
}

// newSlot returns the name of a slot for a path, without its ending.
func (p *plan) newSlot(real string) (string, error) {
	directory, err := p.slotDirectory(real, p.state)
	return path.Join(directory, fmt.Sprintf("%d-%d", p.journal.Sequence+1, len(p.steps))), err
}

// keepOriginal records that a step keeps the original of its path.
func (p *plan) keepOriginal(g *goal, s *step) {
	if g.keep && g.record != nil {
		g.record.Origin.Kind, g.record.Origin.Slot = kept, s.old()
		p.next[g.path] = *g.record
	}
}

// removeFiles adds the steps that remove files, the deepest first.
func (p *plan) removeFiles() error {
	for _, g := range slices.Backward(p.goals) {
		if g.now == nil || isDirectory(g.now) || g.want != wantNothing && g.want != wantDirectory {
			continue
		}
		slot, err := p.newSlot(g.real)
		if err != nil {
			return err
		}
		s := step{Do: remove, Path: g.real, Slot: slot, Old: true}
		p.keepOriginal(g, &s)
		p.steps = append(p.steps, s)
		p.gone[g.real] = true
	}
	return nil
}

// write adds the steps that create directories, put files and change modes and owners, parents first, and hard links
// after what they lead to.
func (p *plan) write() error {
	slices.SortStableFunc(p.goals, func(a, b *goal) int { return boolToInt(a.source.hardLink != "") - boolToInt(b.source.hardLink != "") })
	for _, g := range p.goals {
		if g.want != wantFile && g.want != wantDirectory && g.want != wantMeta {
			continue
		}
		fits, err := p.makeParents(g)
		if err != nil {
			return err
		}
		if !fits {
			continue
		}
		if g.want == wantFile {
			err = p.put(g)
		} else {
			p.setDirectory(g)
		}
		if err := p.refuse(err); err != nil {
			return err
		}
	}
	return nil
}

func boolToInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// put adds the step that puts a file.
func (p *plan) put(g *goal) error {
	if g.source.hardLink != "" {
		if done, err := p.checkHardLink(g); err != nil || done {
			return err
		}
	}
	slot, err := p.newSlot(g.real)
	if err != nil {
		return err
	}
	s := step{Do: put, Path: g.real, Slot: slot, Old: g.now != nil && !p.gone[g.real]}
	p.keepOriginal(g, &s)
	p.steps = append(p.steps, s)
	p.sources[slot] = g
	return nil
}

// checkHardLink reports whether a hard link is already as configured, and replaces the path that it leads to by the
// slot that the path is put from.
func (p *plan) checkHardLink(g *goal) (done bool, err error) {
	for slot, other := range p.sources {
		if other.real == g.source.hardLink {
			g.source.hardLink = slot + ".new"
			return false, nil
		}
	}
	found, err := p.stat(g.source.hardLink)
	if err != nil {
		return false, err
	}
	if found == nil || isDirectory(found) || p.gone[g.source.hardLink] {
		return false, &Obstacle{g.path, "the hard link leads to /" + g.source.hardLink + ", which is not a file", "correct its target"}
	}
	if g.keep {
		return false, nil
	}
	return p.isSame(g.source.hardLink, g.real)
}
