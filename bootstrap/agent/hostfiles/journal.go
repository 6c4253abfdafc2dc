package hostfiles

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/durable"
)

// Names in the state directory, and of slots on other mounts.
const (
	journalName      = "files.journal"
	lockName         = "files.lock"
	slotsName        = "slots"
	foreignSlotsName = ".poolboot"
)

// maxJournal is the maximum size of a journal in bytes. One of 10,000 paths has some megabytes.
const maxJournal = 1 << 30

// journalVersion is the version of the format of the journal.
const journalVersion = 1

// phase is how far an update is.
type phase string

const (
	// idle: there is no update.
	idle phase = "Idle"
	// staging: slots are being prepared, or were prepared for an update that was undone; the host has the old files.
	staging phase = "Staging"
	// committed: all slots are prepared; steps are being done.
	committed phase = "Committed"
	// applied: all steps are done; the update can be undone or confirmed.
	applied phase = "Applied"
	// undoing: steps are being undone.
	undoing phase = "Undoing"
	// confirming: slots that are not needed any more are being removed.
	confirming phase = "Confirming"
)

// journal is everything that is recorded.
type journal struct {
	// Sequence is the number of the last update. Names of slots begin with it.
	Sequence uint64 `json:"sequence"`
	Phase    phase  `json:"phase"`
	// Managed are the paths of the confirmed configuration.
	Managed map[string]record `json:"managed,omitempty"`
	// Next are the paths after the update.
	Next map[string]record `json:"next,omitempty"`
	// Steps are the steps of the update.
	Steps []step `json:"steps,omitempty"`
	// LeftOver are steps of earlier updates that could not be undone, in their order.
	LeftOver []leftOver `json:"leftOver,omitempty"`
	// Stale are slots that could not be removed when they were not needed any more.
	Stale []string `json:"stale,omitempty"`
}

// slots returns all slots that the journal knows.
func (j *journal) slots() map[string]bool {
	slots := map[string]bool{}
	add := func(s *step) {
		if s.Slot != "" {
			slots[s.new()], slots[s.old()], slots[s.temporary()] = true, true, true
		}
	}
	for _, s := range j.Steps {
		add(&s)
	}
	for _, l := range j.LeftOver {
		add(&l.step)
	}
	for _, records := range []map[string]record{j.Managed, j.Next} {
		for _, r := range records {
			slots[r.Origin.Slot] = true
		}
	}
	for _, slot := range j.Stale {
		slots[slot] = true
	}
	delete(slots, "")
	return slots
}

// record is what is known about a path that Poolboot manages.
type record struct {
	state
	// Real is where the path leads, relative to the root.
	Real   string `json:"real"`
	Origin origin `json:"origin,omitzero"`
	// Implied is set for a directory that is not configured, but was created as a parent of what is.
	Implied bool `json:"implied,omitempty"`
}

// origin is what was at a path before Poolboot changed it.
type origin struct {
	Kind originKind `json:"kind,omitempty"`
	// Slot has the original, for kept.
	Slot string `json:"slot,omitempty"`
	// Meta is the original mode and owner, for inPlace, and for kept if they differ from those of the slot.
	Meta *meta `json:"meta,omitempty"`
}

type originKind string

const (
	// nothing: there was nothing.
	nothing originKind = ""
	// kept: the original is in a slot.
	kept originKind = "Kept"
	// inPlace: a directory or a file of which only mode and owner changed.
	inPlace originKind = "InPlace"
	// untouched: what is there is the original.
	untouched originKind = "Untouched"
	// unknown: Ignition wrote the path before the journal existed, and maybe replaced something.
	unknown originKind = "Unknown"
	// unreplaced: Ignition wrote the path before the journal existed, and did not replace anything.
	unreplaced originKind = "Unreplaced"
)

// step is one change of an update.
type step struct {
	Do   action `json:"do"`
	Path string `json:"path"`
	// Slot is the name of the slot without its ending.
	Slot string `json:"slot,omitempty"`
	// Old is set if the slot keeps what is at the path before the step.
	Old bool `json:"old,omitempty"`
	// Before and After are mode and owner of a directory, or of a file that changes in place.
	Before *meta `json:"before,omitempty"`
	After  *meta `json:"after,omitempty"`
	// Label is the SELinux label of what the step, or its undo, creates.
	Label string `json:"label,omitempty"`
}

type action string

const (
	put     action = "Put"
	remove  action = "Remove"
	mkdir   action = "Mkdir"
	rmdir   action = "Rmdir"
	setMeta action = "SetMeta"
)

func (s *step) new() string       { return s.Slot + ".new" }
func (s *step) old() string       { return s.Slot + ".old" }
func (s *step) temporary() string { return s.Slot + ".tmp" }

// readJournal returns the journal of a state directory, an empty one if there is none.
func (d *disk) readJournal(stateDirectory string) (*journal, error) {
	name := path.Join(stateDirectory, journalName)
	data, err := d.read(name, maxJournal)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &journal{Phase: idle}, nil
	case err != nil:
		return nil, err
	}
	return durable.DecodeJournal[journal]("/"+name, journalVersion, data)
}

// errUncertain means that it is not known whether the journal was replaced.
var errUncertain = errors.New("it is not known whether the disk has it")

// writeJournal replaces the journal and syncs it.
func (d *disk) writeJournal(stateDirectory string, j *journal) error {
	data, err := durable.EncodeJournal(journalVersion, j)
	if err != nil {
		return err
	}
	name := path.Join(stateDirectory, journalName)
	if err := d.remove(name + ".new"); err != nil {
		return err
	}
	if err := d.create(name+".new", bytes.NewReader(data), meta{Mode: 0o600}, nil); err != nil {
		return err
	}
	if err := d.syncAll(name + ".new"); err != nil {
		return err
	}
	if err := d.rename(name+".new", name); err != nil {
		return err
	}
	if err := d.syncAll(stateDirectory); err != nil {
		return fmt.Errorf("%w: %w", errUncertain, err)
	}
	return nil
}
