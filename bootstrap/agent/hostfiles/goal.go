package hostfiles

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
)

// goal is what an update wants at a path.
type goal struct {
	path, real string
	// now is what is there, nil if nothing is.
	now  *syscall.Stat_t
	want wanted
	// source is what is put, for wantFile.
	source source
	// meta is the mode and the owner, of a directory, or of what is put and is not a link to an existing file.
	meta meta
	// metaAfter is set if mode and owner change after a link to an existing file was put.
	metaAfter *meta
	// record is what is known about the path after the update, nil if it is not managed any more.
	record *record
	// keep is set if what is at the path is kept as the original.
	keep bool
}

type wanted int

const (
	// wantAsIs leaves the path alone.
	wantAsIs wanted = iota
	wantNothing
	wantFile
	wantDirectory
	// wantMeta changes mode and owner in place.
	wantMeta
)

// source is where a new file comes from: one of its fields is set.
type source struct {
	contents []byte
	symlink  string
	// link is a file to link to: an original in a slot.
	link string
	// hardLink is the path that a configured hard link leads to.
	hardLink string
	// copy is a file to copy, with its attributes.
	copy string
}

// Obstacle is why an update is not possible. Nothing was changed.
type Obstacle struct {
	Path        string
	Why, Remedy string
}

func (o *Obstacle) Error() string { return o.Path + ": " + o.Why + ": " + o.Remedy }

// defaultMeta returns the mode and owner of what did not exist.
func defaultMeta(t hosttree.Type) meta {
	if t == hosttree.Directory {
		return meta{Mode: 0o755}
	}
	return meta{Mode: 0o644}
}

// overlay returns a mode and owner with those that an entry sets.
func overlay(base meta, entry hosttree.Entry) meta {
	if entry.Mode != nil {
		base.Mode = *entry.Mode
	}
	if entry.UID != nil {
		base.UID = *entry.UID
	}
	if entry.GID != nil {
		base.GID = *entry.GID
	}
	return base
}

// release sets the goal to what was at the path before Poolboot changed it.
func (u *Updater) release(g *goal, r record, force bool) error {
	switch r.Origin.Kind {
	case nothing, unreplaced:
		g.want = wantNothing
	case kept:
		g.want, g.source, g.metaAfter = wantFile, source{link: r.Origin.Slot}, r.Origin.Meta
	case inPlace:
		if g.now != nil {
			g.want, g.meta = wantMeta, *r.Origin.Meta
		}
	case unknown:
		return u.releaseUnknown(g, r, force)
	}
	return nil
}

// releaseUnknown sets the goal to what the image has at a path that Ignition wrote.
func (u *Updater) releaseUnknown(g *goal, r record, force bool) error {
	original, err := u.original(g.path)
	switch {
	case errors.Is(err, errUnknown) && (force || r.Type == hosttree.Directory || r.Type == hosttree.Unmasked || r.Type == hosttree.File && r.Sum == ""):
		return nil // it stays
	case errors.Is(err, errUnknown):
		return &Obstacle{g.path, "the configuration that replaced it when the host was installed does not contain it any more, and " + errUnknown.Error(),
			"replace the Machine, keep the entry, or run kubectl poolboot rollout retry, which leaves the path as it is. An image with a copy of its /etc in /usr/etc has no such paths in /etc"}
	case err == nil && original == "":
		g.want = wantNothing
		return nil
	case err != nil:
		return err
	}
	return u.putOriginal(g, original)
}

// putOriginal sets the goal to a copy of what the image has elsewhere.
func (u *Updater) putOriginal(g *goal, original string) error {
	real, found, err := u.find(original)
	switch {
	case err != nil:
		return err
	case isDirectory(found) && isDirectory(g.now):
		g.want, g.meta = wantMeta, metaOf(found)
	case isRegular(found):
		g.want, g.source, g.meta = wantFile, source{copy: real}, metaOf(found)
	case isLink(found):
		target, err := u.readlink(real)
		if err != nil {
			return err
		}
		g.want, g.source, g.meta = wantFile, source{symlink: target}, metaOf(found)
	default:
		return &Obstacle{g.path, "the configuration replaced more than a file when the host was installed", "replace the Machine, or keep the entry"}
	}
	return nil
}

// configure sets the goal to an entry. r is the record of the path, if it is managed.
func (u *Updater) configure(g *goal, entry hosttree.Entry, r *record, force bool) error {
	g.record = &record{state: stateOf(entry), Real: g.real}
	switch {
	case entry.Appends:
		return &Obstacle{g.path, "it appends to a file, which can be neither repeated nor undone", "write the whole contents instead, or replace the Machine"}
	case entry.Type == hosttree.Unmasked:
		return u.configureUnmasked(g, r, force)
	case entry.Type == hosttree.Directory:
		return u.configureDirectory(g, entry, r)
	case entry.Type == hosttree.File && entry.Contents == nil:
		return u.configureMeta(g, entry, r, force)
	case r == nil && g.now != nil && entry.Type != hosttree.HardLink:
		kinds, err := u.differences(g.real, &g.record.state, u.contents)
		if err == nil && len(kinds) == 0 { // it is there already
			g.record.Origin.Kind = untouched
			return nil
		}
	}
	if err := u.replace(g, r); err != nil {
		return err
	}
	g.want, g.meta = wantFile, overlay(defaultMeta(entry.Type), entry)
	switch entry.Type {
	case hosttree.Link:
		g.source.symlink = entry.Target
	case hosttree.HardLink:
		target, err := u.resolve(entry.Target, u.isOwnLink)
		if err != nil {
			return err
		}
		g.source.hardLink = target
	default:
		g.source.contents = entry.Contents
	}
	return nil
}

// replace decides what is the original of a path where something else will be.
func (u *Updater) replace(g *goal, r *record) error {
	switch {
	case r != nil && r.Origin.Kind == untouched && isSameState(r.state, g.record.state): // the original was the same
		g.record.Origin = r.Origin
	case r == nil || r.Origin.Kind == untouched:
		g.keep = g.now != nil
	case r.Origin.Kind == inPlace && r.Type == hosttree.File:
		g.keep = g.now != nil
		g.record.Origin.Meta = r.Origin.Meta
	default:
		g.record.Origin = r.Origin
	}
	if !isDirectory(g.now) || g.record.Type == hosttree.Directory {
		return nil
	}
	if r != nil && r.Origin.Kind == unknown {
		if original, err := u.original(g.path); err == nil && original == "" {
			return nil
		}
	} else if r != nil && r.Type == hosttree.Directory && r.Origin.Kind != inPlace && r.Origin.Kind != untouched {
		return nil
	}
	return &Obstacle{g.path, "it is a directory that Poolboot did not create", "remove it, or change the path in the configuration"}
}

// originalMeta returns the mode and owner of a path before Poolboot changed it, and those that it has now if nobody
// knows.
func (u *Updater) originalMeta(r *record, name string, now meta) (meta, error) {
	switch r.Origin.Kind {
	case inPlace:
		return *r.Origin.Meta, nil
	case unknown:
	default:
		return defaultMeta(r.Type), nil
	}
	original, err := u.original(name)
	switch {
	case errors.Is(err, errUnknown):
		return now, nil
	case err != nil || original == "":
		return defaultMeta(r.Type), err
	}
	_, found, err := u.find(original)
	if err != nil || found == nil {
		return defaultMeta(r.Type), err
	}
	return metaOf(found), nil
}

func (u *Updater) configureDirectory(g *goal, entry hosttree.Entry, r *record) (err error) {
	g.want = wantDirectory
	if !isDirectory(g.now) {
		g.meta = overlay(defaultMeta(entry.Type), entry)
		return u.replace(g, r)
	}
	base := metaOf(g.now)
	switch {
	case r == nil || r.Type != hosttree.Directory || r.Origin.Kind == untouched:
		g.record.Origin = origin{Kind: inPlace, Meta: &base}
	default:
		g.record.Origin = r.Origin
		if base, err = u.originalMeta(r, g.path, base); err != nil {
			return err
		}
	}
	if entry.OnlyIfMissing {
		g.want = wantAsIs
		if g.record.Origin.Kind == inPlace {
			g.record.Origin = origin{Kind: untouched}
		}
	}
	g.meta = overlay(base, entry)
	return nil
}

// configureMeta sets the goal to a file without contents of its own.
func (u *Updater) configureMeta(g *goal, entry hosttree.Entry, r *record, force bool) error {
	hasContents := r != nil && (r.Type != hosttree.File || r.Sum != "") && r.Origin.Kind != untouched
	switch {
	case hasContents:
		return u.dropContents(g, entry, *r, force)
	case g.now == nil:
		g.want, g.source, g.meta = wantFile, source{contents: []byte{}}, overlay(defaultMeta(entry.Type), entry)
		if r != nil && r.Origin.Kind != untouched && r.Origin.Kind != inPlace {
			g.record.Origin = r.Origin
		}
		return nil
	case !isRegular(g.now):
		return &Obstacle{g.path, "it is not a regular file", "remove it, or write contents to the path"}
	}
	base := metaOf(g.now)
	switch {
	case r == nil || r.Origin.Kind == untouched:
		g.record.Origin = origin{Kind: inPlace, Meta: &base}
	default:
		g.record.Origin = r.Origin
		var err error
		if base, err = u.originalMeta(r, g.path, base); err != nil {
			return err
		}
	}
	g.want, g.meta = wantMeta, overlay(base, entry)
	return nil
}

// dropContents sets the goal to the original contents of a file that was configured with contents, with the mode and
// the owner of an entry.
func (u *Updater) dropContents(g *goal, entry hosttree.Entry, r record, force bool) error {
	if err := u.replace(g, &r); err != nil {
		return err
	}
	g.keep = false
	released := *g
	if err := u.release(&released, r, force); err != nil {
		return err
	}
	from := released.source.copy + released.source.link
	if from == "" {
		g.want, g.source, g.meta = wantFile, source{contents: []byte{}}, overlay(defaultMeta(entry.Type), entry)
		g.record.Origin = origin{}
		return nil
	}
	found, err := u.stat(from)
	if err != nil {
		return err
	}
	if !isRegular(found) {
		return &Obstacle{g.path, "it was not a regular file before Poolboot changed it", "write contents to the path"}
	}
	base := metaOf(found)
	if released.metaAfter != nil {
		base = *released.metaAfter
	}
	g.want, g.source, g.meta = wantFile, source{copy: from}, overlay(base, entry)
	g.record.Origin = origin{Kind: inPlace, Meta: &base}
	return nil
}

// configureUnmasked sets the goal to what was at the path, unless that is a link that masks the unit.
func (u *Updater) configureUnmasked(g *goal, r *record, force bool) error {
	g.record.Origin.Kind = untouched
	if r == nil || r.Type == hosttree.Unmasked || r.Origin.Kind == untouched {
		isMask, err := u.isMask(g.now, g.real)
		if isMask {
			g.want, g.keep = wantNothing, true
		}
		if r != nil && !isMask {
			g.record.Origin = r.Origin
		}
		return err
	}
	if err := u.release(g, *r, force); err != nil {
		return err
	}
	if g.want != wantFile {
		return nil
	}
	original := g.source.link + g.source.copy
	if g.source.symlink == hosttree.MaskTarget {
		g.want = wantNothing
		return nil
	}
	if original == "" {
		return nil
	}
	found, err := u.stat(original)
	if err != nil {
		return fmt.Errorf("%s: %w", g.path, err)
	}
	isMask, err := u.isMask(found, original)
	if isMask {
		g.want, g.record.Origin = wantNothing, r.Origin
	}
	return err
}

// isMask reports whether a path is a link that masks a unit.
func (d *disk) isMask(found *syscall.Stat_t, real string) (bool, error) {
	if !isLink(found) {
		return false, nil
	}
	target, err := d.readlink(real)
	return target == hosttree.MaskTarget, err
}

// isOwnLink reports whether a path is a link that Poolboot wrote.
func (u *Updater) isOwnLink(real string) bool { return u.ownLinks[real] }
