package agent

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"time"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/durable"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// phase is how far the agent is.
type phase string

const (
	// unknown: nothing is recorded yet.
	unknown phase = ""
	// adopting: the configuration that Ignition wrote is being recorded.
	adopting phase = "Adopting"
	// idle: the host has the current configuration, and no update is in progress.
	idle phase = "Idle"
	// draining: an update was accepted and waits for the drain. Nothing was changed.
	draining phase = "Draining"
	// applying: the operations are being carried out.
	applying phase = "Applying"
	// acting: the operations were carried out; units are being reloaded and restarted.
	acting phase = "Acting"
	// rebooting: the operations were carried out; the host must boot once.
	rebooting phase = "Rebooting"
	// verifying: everything was done; the Node must be Ready.
	verifying phase = "Verifying"
	// committing: the update was verified. Only records are left to change.
	committing phase = "Committing"
	// undoing: the update failed, and is being undone.
	undoing phase = "Undoing"
	// returning: the update was undone; the host must boot once more.
	returning phase = "Returning"
)

// isChanging reports whether the host has a part of a configuration that is not committed.
func (p phase) isChanging() bool {
	switch p {
	case applying, acting, rebooting, verifying, committing, undoing, returning:
		return true
	}
	return false
}

// journal is everything that the agent records, apart from documents and from what hostfiles records. It has no
// secrets.
type journal struct {
	Phase phase `json:"phase"`
	// Current is the revision of the configuration that the host has, and had before an update in progress.
	Current string `json:"current,omitempty"`
	// Target is the revision of the update in progress, or of what is adopted.
	Target string `json:"target,omitempty"`
	// Disks is the revision of the last configuration that the host has with the disks of it. If it is empty, that is
	// Current.
	Disks string `json:"disks,omitempty"`
	// Drift is what differed from the current configuration before the update in progress, if it overwrites that.
	Drift []update.Drift `json:"drift,omitempty"`
	// Found is what Executors.Check found before the update in progress: the update did not cause it.
	Found []string `json:"found,omitempty"`
	// StaticPods are the manifests of static Pods that passed their probes before the update in progress.
	StaticPods []string `json:"staticPods,omitempty"`
	// Starts counts how often the phases applying and acting began: each start of the agent continues the update.
	Starts int `json:"starts,omitempty"`
	// FirstBoot is the boot in which the update began to change the host, "" after a soft reboot, and BegunAt when.
	FirstBoot string    `json:"firstBoot,omitempty"`
	BegunAt   time.Time `json:"begunAt,omitzero"`
	// Boot is the boot in which the current phase began, and ChangedAt the uptime at which the host was changed in it.
	Boot      string        `json:"boot,omitempty"`
	ChangedAt time.Duration `json:"changedAt,omitempty"`
	// VerifiedSince is the uptime at which the phase verifying began in this boot. It is not that of the boot: a host
	// in a container has the uptime of its machine.
	VerifiedSince time.Duration `json:"verifiedSince,omitempty"`
	// Boots counts the boots of the phase verifying.
	Boots int `json:"boots,omitempty"`
	// Heartbeat is the last heartbeat of the Node before the change.
	Heartbeat time.Time `json:"heartbeat,omitzero"`
	// HasActed is set before the first unit is reloaded or restarted.
	HasActed bool `json:"hasActed,omitempty"`
	// Reboots counts the requests for the reboot of the phase.
	Reboots int `json:"reboots,omitempty"`
	// RebootMethod is how the host reboots, or rebooted last. FullReboot is why it is not the method of the assignment.
	RebootMethod update.RebootMethod `json:"rebootMethod,omitempty"`
	FullReboot   string              `json:"fullReboot,omitempty"`
	// Started is what Rebooter.Started returned before a soft reboot, 0 if none is expected.
	Started time.Duration `json:"started,omitempty"`
	// Step counts the steps of an undo that have ended.
	Step int `json:"step,omitempty"`
	// IsUnread is set if the documents of the update that is undone can't be read: then only files return.
	IsUnread bool `json:"isUnread,omitempty"`
	// UndoErrors are the errors of steps of the undo besides those of operations, by what they restore, such as units
	// that did not stop. A reboot ends that.
	UndoErrors map[string]string `json:"undoErrors,omitempty"`
	// Failed is the update that is undone, or that was undone last. It is not tried again.
	Failed *failure `json:"failed,omitempty"`
	// LeftOver are the operations that undos could not carry out. Of files, hostfiles has a record. Retries counts the
	// tries to restore it that have not ended.
	LeftOver []leftEntry `json:"leftOver,omitempty"`
	Retries  int         `json:"retries,omitempty"`
	// FilesLeft are the paths that were left over before the update in progress: its undo does not reboot for them.
	FilesLeft []string `json:"filesLeft,omitempty"`
	// SingleKeysFile is set if Ignition wrote SSH keys to ~/.ssh/authorized_keys on this host.
	SingleKeysFile bool `json:"singleKeysFile,omitempty"`
	// RefusedProgram is a program that did not work on this host.
	RefusedProgram *failure `json:"refusedProgram,omitempty"`
}

// settled returns the journal of a host that has a configuration, and no update in progress.
func (j *journal) settled(current string) journal {
	return journal{Phase: idle, Current: current, Disks: j.Disks, LeftOver: j.LeftOver, SingleKeysFile: j.SingleKeysFile, RefusedProgram: j.RefusedProgram}
}

// disks returns the revision of the configuration whose disks the host has, "" before the first one was adopted.
func (j *journal) disks() string { return cmp.Or(j.Disks, j.Current) }

// failure is something that failed, by its revision or hash, and why.
type failure struct {
	Of  string `json:"of"`
	Why string `json:"why"`
	// IsSuperseded is set if an update is undone because the host should run another revision. It can be tried again.
	IsSuperseded bool `json:"isSuperseded,omitempty"`
}

// with returns the failure with a text after the reason.
func (f *failure) with(text string) *failure {
	more := *f
	more.Why = shorten(f.Why+text, agentv1.MaxReason)
	return &more
}

// journalVersion is the version of the format of the journal.
const journalVersion = 1

// journalName is the name of the journal in the state directory.
const journalName = "agent.journal"

// isRevision reports whether a text has the form of assignment.Revision, which is safe as the name of a file.
func isRevision(text string) bool {
	raw, err := hex.DecodeString(text)
	return err == nil && len(raw) == sha256.Size && hex.EncodeToString(raw) == text
}

// readJournal returns the journal of a state directory, one in the phase unknown if there is none.
func (s *store) readJournal() (journal, error) {
	data, err := s.read(journalName)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return journal{}, nil
	case err != nil:
		return journal{}, err
	}
	j, err := durable.DecodeJournal[journal](s.pathOf(journalName), journalVersion, data)
	if err != nil {
		return journal{}, err
	}
	return *j, nil
}

// writeJournal replaces the journal. When it returns nil, it survives a power failure.
func (s *store) writeJournal(j journal) error {
	data, err := durable.EncodeJournal(journalVersion, j)
	if err == nil {
		err = s.write(journalName, data)
	}
	if err != nil {
		return fmt.Errorf("write the journal of the agent: %w", err)
	}
	return nil
}
