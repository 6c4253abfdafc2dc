package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path"
	"strings"
	"time"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/durable"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// Times of the agent.
const (
	// actionTimeout is how long one reload or restart of a unit may take. One that hangs longer failed.
	actionTimeout = 5 * time.Minute
	// operationTimeout is how long one operation may take. Packages and images take the longest.
	operationTimeout = time.Hour
	// downloadTimeout is how long all downloads of one update may take.
	downloadTimeout = 10 * time.Minute
	// firstProgramTry and lastProgramTry limit the time between two tries to replace the program. It doubles with each
	// failure.
	firstProgramTry = time.Minute
	lastProgramTry  = time.Hour
	// checkInterval is the time between two full checks of what differs from the configuration.
	checkInterval = time.Hour
	// acceptInterval is the time between two requests of a host whose certificate the config server does not accept,
	// and acceptTimeout how long each may take.
	acceptInterval = 5 * time.Minute
	acceptTimeout  = 30 * time.Second
	// repairInterval is the minimum time between two repairs: another program can undo them.
	repairInterval = time.Minute
	// leaseInterval is the time between two looks at the kubelet and the Node's lease while an update is verified and
	// the Node does not count as Ready.
	leaseInterval = 5 * time.Second
	// rebootTimeout is the time after which a reboot is requested again.
	rebootTimeout = 15 * time.Minute
)

// maxProgramTries is how often another program is tried out that does not work.
const maxProgramTries = 5

// maxStarts is how often an update may begin to change the host, and maxBoots is how often the host may boot while it
// is verified: an update that makes the host crash is undone. maxReboots is how often a reboot is requested.
const (
	maxStarts  = 3
	maxBoots   = 3
	maxReboots = 8
)

// Options are what an Agent depends on.
type Options struct {
	// Root is the root directory of the host.
	Root *os.Root
	// StateDirectory is where the journal and documents are, such as /var/lib/poolboot/agent.
	StateDirectory string
	Files          Files
	Executors      Executors
	// Capabilities are those of the executors on this host.
	Capabilities update.Capabilities
	Source       Source
	Cluster      Cluster
	Clock        Clock
	// Program can be nil: then the agent does not replace itself.
	Program Program
	Log     *slog.Logger
}

// Program replaces the program of the agent.
type Program interface {
	// Running returns the version, the SHA-512 in hex and the architecture, as Go names it, of the running program.
	Running() (version, sha512, architecture string)
	// Replace tries out another program and, if it works on this host, replaces the running one: the next start of the
	// agent runs it. The contents were verified. The error is ErrUnusable if the program does not work.
	Replace(ctx context.Context, contents []byte) error
}

// ErrUnusable means that another program does not work on this host.
var ErrUnusable = errors.New("the program does not work on this host")

// ErrReplaced means that the program was replaced: exit, so that systemd starts the new one.
var ErrReplaced = errors.New("the program of the agent was replaced")

// Agent is the state machine of one host. It is not safe for concurrent use.
type Agent struct {
	Options
	store   *store
	journal journal
	report  report
	// continued is set until an update that was interrupted has been continued.
	continued bool
	current   *current
	offered   *evaluation
	ready     readiness
	units     unitWatch
	// rebootNeed is what the operating system says about a reboot that it needs.
	rebootNeed rebootWatch
	// isDue is set if the host must be checked for differences, and seen is what Files.Look returned last.
	isDue                              bool
	seen                               uint64
	checkedAt, repairedAt, requestedAt time.Duration
	// previewedAt is the uptime of the last preview of the first update.
	previewedAt time.Duration
	// askAt is the uptime from which the agent asks the config server whether it accepts the host.
	askAt time.Duration
	// tried is another program, if it did not replace this one.
	tried programTry
	// repairs counts the repairs that followed each other.
	repairs int
	// retriedAt is when what is left over was tried again last, 0 if it was not since the agent started.
	retriedAt time.Duration
	// staging is the last try to stage the next update. meanwhile is the time between two reports during it.
	staging   stagingTry
	meanwhile time.Duration
	// carrying is what can be interrupted by another revision.
	carrying carrying
	// unread counts the tries of an undo that could not read what it undoes.
	unread int
}

// evaluation is why a revision is not applied, until something changes on the host.
type evaluation struct {
	revision string
	state    agentv1.State
	reason   string
}

// New returns the agent of a host. It reads the journal, and changes nothing. The error is a *durable.JournalError if
// the journal can't be used.
func New(options Options) (*Agent, error) {
	directory, err := newStore(options.Root, options.StateDirectory)
	if err != nil {
		return nil, err
	}
	a := &Agent{Options: options, store: directory, isDue: true, meanwhile: meanwhileInterval}
	if a.journal, err = directory.readJournal(); err != nil {
		return nil, err
	}
	if a.journal.Phase == unknown && !a.Files.IsNew() {
		return nil, &durable.JournalError{Path: directory.pathOf(journalName), Why: "it is missing, but the agent has changed files of this host before", Remedy: durable.StartOver}
	}
	if a.journal.Phase != unknown && a.journal.Phase != adopting && a.Files.IsNew() {
		return nil, &durable.JournalError{Path: directory.pathOf(journalName), Why: "it is there, but the journal of the files is missing", Remedy: durable.StartOver}
	}
	a.continued, a.askAt = a.journal.Phase.isChanging(), options.Clock.Uptime()+checkInterval
	return a, nil
}

// CheckState returns an error if an agent of this version could not go on with what is in a state directory. It changes
// nothing.
func CheckState(root *os.Root, stateDirectory string) error {
	a := &Agent{store: openStore(root, stateDirectory)}
	var err error
	if a.journal, err = a.store.readJournal(); err != nil || a.journal.Current == "" {
		return err
	}
	_, err = a.load(a.journal.Current)
	return err
}

// now means that Step has something to do at once, and forever that it waits for an event.
const (
	now     time.Duration = 0
	forever time.Duration = 1<<63 - 1
)

// checkSoon makes the next Step check for differences.
func (a *Agent) checkSoon() { a.isDue, a.offered = true, nil }

// Look finds out whether something happened on the host since the last check or the last look: then call Step. Call it
// every few seconds: it costs less than notifications, of which a host has a limited number.
func (a *Agent) Look(ctx context.Context) (changed bool) {
	if a.journal.Phase == idle && a.current != nil {
		if seen := a.Files.Look(a.current.units...); seen != a.seen {
			a.seen, changed = seen, true
			a.checkSoon()
		}
	}
	changed = a.lookAtReboot() || changed
	return a.lookAtUnits(ctx) || changed
}

// Step does what is possible now, and reports it. It returns after which time to call it again at the latest. Call it
// earlier when the Node changes, or Look says that something happened.
//
// After an error, call it again after some time, or after the time that it returned if that is earlier and not 0:
// nothing is lost. If the program was replaced, the error is ErrReplaced.
func (a *Agent) Step(ctx context.Context, node Node) (time.Duration, error) {
	for {
		node = a.carrying.newest(node)
		a.recallReboot(node)
		wait, err := a.advance(ctx, node)
		if err != nil && !errors.Is(err, ErrReplaced) && ctx.Err() == nil {
			a.report.problem = problemOf(err)
		}
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		if errPublish := a.publish(ctx, node); err == nil && wait != now {
			err = errPublish
		}
		if err != nil || wait != now {
			return wait, err
		}
	}
}

// problemOf describes an error for people. The manager recognizes that of a certificate.
func problemOf(err error) string {
	if errors.Is(err, ErrNotAccepted) {
		return agentv1.CertificateNotAccepted + ": " + err.Error()
	}
	return err.Error() + whereDetailsAre(err)
}

// advance does one transition.
func (a *Agent) advance(ctx context.Context, node Node) (time.Duration, error) {
	a.report.problem = ""
	switch a.journal.Phase {
	case unknown:
		return a.begin(ctx, node)
	case adopting:
		return a.adopt(ctx)
	case idle:
		return a.rest(ctx, node)
	case draining:
		return a.drain(ctx, node)
	case applying:
		return a.apply(ctx, node)
	case acting:
		return a.act(ctx, node)
	case rebooting, returning:
		return a.reboot(ctx, node)
	case verifying:
		return a.verify(ctx, node)
	case committing:
		return a.commit()
	case undoing:
		return a.undo(ctx)
	}
	return forever, fmt.Errorf("unknown phase %q", a.journal.Phase)
}

// enter records another phase.
func (a *Agent) enter(next phase, change func(*journal)) (time.Duration, error) {
	changed := a.journal
	changed.Phase = next
	if change != nil {
		change(&changed)
	}
	if err := a.store.writeJournal(changed); err != nil {
		return now, err
	}
	if next != a.journal.Phase {
		a.Log.Info("phase", "from", a.journal.Phase, "to", next, "revision", changed.Target)
	}
	a.journal, a.ready, a.requestedAt = changed, readiness{}, 0
	return now, nil
}

// begin takes the first assignment of the host.
func (a *Agent) begin(ctx context.Context, node Node) (time.Duration, error) {
	desired := node.Annotations[agentv1.DesiredAnnotation]
	if !isRevision(desired) {
		return forever, nil
	}
	limited, cancel := context.WithTimeout(ctx, downloadTimeout)
	defer cancel()
	t, err := a.fetchAdopted(limited, desired)
	if err != nil {
		return now, err
	}
	keysFile, err := a.hasSingleKeysFile(t)
	if err != nil {
		return now, err
	}
	return a.enter(adopting, func(j *journal) { j.Target, j.SingleKeysFile = t.revision, keysFile })
}

// adopt records what Ignition wrote. Differences are found afterwards.
func (a *Agent) adopt(ctx context.Context) (time.Duration, error) {
	t, err := a.load(a.journal.Target)
	if errors.Is(err, errDocument) {
		return a.forget()
	}
	if err != nil {
		return now, err
	}
	if a.Files.IsNew() {
		limited, cancel := context.WithTimeout(ctx, downloadTimeout)
		defer cancel()
		host, err := a.host(limited)
		if err != nil {
			return now, err
		}
		tree, err := treeOn(t, host)
		if err != nil {
			return now, err
		}
		if err := a.Files.Adopt(tree); err != nil {
			return now, err
		}
	}
	return a.enter(idle, func(j *journal) { j.Current, j.Target = t.revision, "" })
}

// forget begins again if what should be adopted is not stored. Nothing was changed yet.
func (a *Agent) forget() (time.Duration, error) {
	a.journal = journal{}
	return now, nil
}

// rest is the phase without an update: it checks the host, accepts an update, and stages the next one.
func (a *Agent) rest(ctx context.Context, node Node) (time.Duration, error) {
	wait, err := a.checkOrAccept(ctx, node)
	if err != nil || wait == now {
		return wait, err
	}
	return a.stageNext(ctx, node, wait)
}

// checkOrAccept checks the host, and accepts an update.
func (a *Agent) checkOrAccept(ctx context.Context, node Node) (time.Duration, error) {
	if err := a.Files.RollBack(); err != nil {
		return now, err
	}
	if err := a.loadCurrent(ctx); err != nil {
		return now, err
	}
	if err := a.checkIfDue(ctx); err != nil {
		return now, err
	}
	a.askIfDue(ctx)
	desired, failed := node.Annotations[agentv1.DesiredAnnotation], a.journal.Failed
	switch {
	case isRevision(desired) && desired != a.journal.Current && (failed == nil || failed.Of != desired):
		if accepted, err := a.evaluate(ctx, node, desired); err != nil || accepted {
			return now, err
		}
		return a.untilCheck(), nil
	case failed != nil && (failed.Of == desired || failed.Of == a.journal.Current):
		why := failed.Why
		if failed.Of == a.journal.Current {
			why = "A repair failed and was undone: " + why
		}
		a.report.set(failed.Of, agentv1.Degraded, strings.TrimSpace(why+"\n"+a.leftOverText()))
		if failed.Of == a.journal.Current && len(a.current.drift) == 0 {
			return a.enter(idle, func(j *journal) { j.Failed = nil }) // a repair failed, and somebody else repaired it
		}
		return a.untilCheck(), nil
	}
	a.offered = nil
	if len(a.current.drift) > 0 {
		return a.repair(ctx, node)
	}
	a.report.set(a.journal.Current, agentv1.Done, "")
	if err := a.replaceProgram(ctx, a.current.offer); err != nil {
		return now, err
	}
	return a.untilCheck(), nil
}

// hasSingleKeysFile reports whether Ignition wrote SSH keys on this host to ~/.ssh/authorized_keys: it depends on how
// Ignition was built. Without a user that has keys, it is the default of Ignition.
func (a *Agent) hasSingleKeysFile(t *target) (bool, error) {
	var entries [2]hosttree.Tree
	for i, isSingle := range []bool{false, true} {
		host, err := a.host(context.Background())
		if err != nil {
			return false, err
		}
		host.SingleKeysFile = isSingle
		keys := ignition.New()
		keys.Passwd.Users = t.config.Ignition.Passwd.Users
		if entries[i], err = hosttree.New(keys).On(host); err != nil {
			return false, err
		}
	}
	for name, entry := range entries[1] {
		if _, isInBoth := entries[0][name]; isInBoth || entry.Type != hosttree.File {
			continue
		}
		if _, err := a.Root.Lstat(strings.TrimPrefix(path.Join(path.Dir(name), "authorized_keys.d"), "/")); err == nil {
			return false, nil
		}
		if _, err := a.Root.Lstat(strings.TrimPrefix(name, "/")); err == nil {
			return true, nil
		}
	}
	return false, nil
}
