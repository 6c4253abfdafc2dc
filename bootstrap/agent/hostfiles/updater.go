package hostfiles

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
)

// StateDirectory is where the journal and the slots are.
const StateDirectory = "/var/lib/poolboot"

// errUnknown means that it is not known what the image has at a path.
var errUnknown = errors.New("it is not known what the image has at this path")

// ErrLocked means that another process changes the files of this host.
var ErrLocked = errors.New("another agent changes the files of this host: stop it, and try again")

// ErrInterrupted means that an update was interrupted: call Complete or RollBack first.
var ErrInterrupted = errors.New("an update of the files was interrupted: complete it or undo it before anything else")

// ErrUnconfirmed means that an update was applied and neither confirmed nor undone.
var ErrUnconfirmed = errors.New("the last update of the files was neither confirmed nor undone: do one of them first")

// Updater changes the files of a host. Only one can be open at a time. It is not safe for concurrent use.
type Updater struct {
	disk
	// Labels returns the SELinux labels that the policy of the host has for files of a class at paths, empty ones where
	// it has none. It can be nil.
	Labels func(class string, paths []string) ([]string, error)
	// original is imageOriginal.
	original func(path string) (source string, err error)
	// state is the state directory, relative to the root.
	state   string
	lock    *os.File
	journal *journal
	// sums are the hashes of files that Differences read.
	sums map[string]fingerprint
	// ownLinks are the symbolic links that Poolboot wrote, while an update is planned.
	ownLinks map[string]bool
}

// Open locks the files of a host and reads the journal. If the journal is damaged or from a newer agent, it returns a
// *durable.JournalError, and ErrLocked if another Updater is open.
func Open(root *os.Root) (*Updater, error) {
	handle, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	u := &Updater{disk: disk{root: handle}}
	u.original = u.imageOriginal
	if err := u.begin(root); err != nil {
		return nil, errors.Join(err, u.Close())
	}
	return u, nil
}

// CheckJournal returns the error with which Open would refuse the journal of a host. It needs no lock and changes
// nothing.
func CheckJournal(root *os.Root) error {
	handle, err := root.Open(".")
	if err != nil {
		return err
	}
	d := &disk{root: handle}
	defer d.root.Close()
	state, err := d.follow(StateDirectory)
	if err != nil {
		return err
	}
	_, err = d.readJournal(state)
	return err
}

// begin locks the files and reads the journal.
func (u *Updater) begin(root *os.Root) (err error) {
	if err := u.makeState(root); err != nil {
		return err
	}
	if u.lock, err = u.open(path.Join(u.state, lockName), unix.O_RDWR|unix.O_CREAT); err != nil {
		return err
	}
	if err := syscall.Flock(int(u.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return ErrLocked
		}
		return err
	}
	u.journal, err = u.readJournal(u.state)
	return err
}

// makeState creates the state directory and that of slots. Only root can enter them.
func (u *Updater) makeState(root *os.Root) (err error) {
	if err := root.MkdirAll(strings.TrimPrefix(path.Dir(StateDirectory), "/"), 0o755); err != nil {
		return err
	}
	if u.state, err = u.follow(StateDirectory); err != nil {
		return err
	}
	for _, directory := range []string{u.state, path.Join(u.state, slotsName)} {
		if err := u.mkdir(directory, meta{Mode: 0o700, UID: os.Geteuid(), GID: os.Getegid()}); err != nil {
			return err
		}
	}
	return nil
}

// Close releases the lock.
func (u *Updater) Close() error {
	err := u.root.Close()
	if u.lock != nil {
		err = errors.Join(err, u.lock.Close())
	}
	return err
}

// isInterrupted reports whether an update was interrupted.
func (u *Updater) isInterrupted() bool {
	return u.journal.Phase != idle && u.journal.Phase != applied
}

// IsUnconfirmed reports whether an update was applied that can be confirmed or undone.
func (u *Updater) IsUnconfirmed() bool { return u.journal.Phase == applied }

// IsNew reports whether nothing is recorded yet: call Adopt first.
func (u *Updater) IsNew() bool { return u.journal.Sequence == 0 }

// managed returns the records of the configuration that the host has.
func (u *Updater) managed() map[string]record {
	if u.journal.Phase == applied {
		return u.journal.Next
	}
	return u.journal.Managed
}

// Links returns the symbolic links of the configuration that the host has, by path, with their targets. Programs of the
// host can remove them, such as systemctl disable.
func (u *Updater) Links() map[string]string {
	links := map[string]string{}
	for name, r := range u.managed() {
		if r.Type == hosttree.Link {
			links[name] = r.Target
		}
	}
	return links
}

// Adopt records the configuration that Ignition wrote when the host was installed. It changes no file of it.
func (u *Updater) Adopt(tree hosttree.Tree) error {
	if !u.IsNew() {
		return errors.New("the files of this host are already recorded")
	}
	managed := map[string]record{}
	for name, entry := range tree {
		if err := checkResolved(name, entry); err != nil {
			return err
		}
		real := u.followed(name)
		if name == hosttree.PresetPath && !u.adoptPresets(real, &entry) {
			continue
		}
		r := record{state: stateOf(entry), Real: real, Origin: origin{Kind: unknown}}
		if entry.Type == hosttree.File && entry.Contents != nil && !entry.Replaces {
			r.Origin.Kind = unreplaced
		}
		managed[name] = r
	}
	for name := range maps.Clone(managed) {
		for parent := path.Dir(name); parent != "/"; parent = path.Dir(parent) {
			if _, exists := managed[parent]; !exists {
				managed[parent] = record{state: state{Type: hosttree.Directory}, Real: u.followed(parent), Origin: origin{Kind: unknown}, Implied: true}
			}
		}
	}
	u.journal = &journal{Sequence: 1, Phase: idle, Managed: managed}
	return u.writeJournal(u.state, u.journal)
}

// checkResolved refuses an entry that is not that of a host.
func checkResolved(name string, entry hosttree.Entry) error {
	if !path.IsAbs(name) || entry.User != "" || entry.Group != "" || entry.Sources != nil {
		return fmt.Errorf("%s: the entry is not that of a host: it needs hosttree.Tree.On", name)
	}
	return nil
}

// followed is follow. If that fails, it is the path itself, and what is wrong with it is found as a difference.
func (u *Updater) followed(name string) string {
	real, err := u.follow(name)
	if err != nil {
		return strings.TrimPrefix(path.Clean(name), "/")
	}
	return real
}

// adoptPresets sets the presets to those that Ignition wrote, if it left out only lines for units that the image did
// not enable. It reports false if it left out all lines. Other presets, or those that can't be read, are found as a
// difference.
func (u *Updater) adoptPresets(real string, entry *hosttree.Entry) (isWritten bool) {
	found, err := u.read(real, int64(len(entry.Contents)))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return true
	}
	rest := string(found)
	for line := range strings.Lines(string(entry.Contents)) {
		after, isThere := strings.CutPrefix(rest, line)
		if !isThere && !strings.HasPrefix(line, "disable ") {
			return true
		}
		rest = after
	}
	if rest == "" {
		entry.Contents = found
	}
	return rest != "" || found != nil
}

// Complete completes an update that was interrupted, and does nothing if none was. Before the commit, or if it was
// being undone, it is undone. If it can't be completed, it is undone, and the error is why. Paths that can't be
// restored are no error: LeftOver has them.
func (u *Updater) Complete() error {
	u.mounts.forget()
	switch u.journal.Phase {
	case staging:
		return u.discard()
	case undoing:
		return u.undo()
	case confirming:
		return u.Confirm()
	case committed:
		if err := u.complete(); err != nil {
			return u.undoBecause(err)
		}
	}
	return nil
}

// Confirm ends an update that was applied, and does nothing if there is none. It can't be undone any more.
func (u *Updater) Confirm() error {
	switch u.journal.Phase {
	case idle:
		return nil
	case applied, confirming:
	default:
		return ErrInterrupted
	}
	if err := u.enter(confirming); err != nil {
		return err
	}
	return u.finish(u.journal.Next)
}

// RollBack undoes an update that was interrupted, or applied and not confirmed, and does nothing if there is none.
// Paths that can't be restored are no error: LeftOver has them. An error means that the journal can't be written, and
// RollBack must be called again.
func (u *Updater) RollBack() error {
	u.mounts.forget()
	if u.journal.Phase == committed || u.journal.Phase == applied {
		return u.undo()
	}
	return u.Complete()
}

// enter writes the journal with another phase.
func (u *Updater) enter(next phase) error {
	changed := *u.journal
	changed.Phase = next
	return u.replaceJournal(changed)
}

// replaceJournal writes another journal. If it is not known whether the disk has it, it goes on from it: it can be
// undone in any case.
func (u *Updater) replaceJournal(changed journal) error {
	err := u.writeJournal(u.state, &changed)
	if err == nil || errors.Is(err, errUncertain) {
		u.journal = &changed
	}
	if err != nil {
		return fmt.Errorf("write the journal: %w", err)
	}
	return nil
}
