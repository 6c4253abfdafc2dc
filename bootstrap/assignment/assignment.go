package assignment

import (
	"bytes"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// MaxSize is the maximum size of a document in bytes. A Secret has at most 1 MiB.
const MaxSize = 1 << 20

// Assignment is what a host should run. Documents contain secrets, if the machine's part does.
type Assignment struct {
	// Node is the name of the host's Node.
	Node string `json:"node"`
	// Pool is the role of the pool. It is empty for a host that is to be as it was found.
	Pool string `json:"pool,omitempty"`
	// Config is the pool's rendered config.
	Config RenderedConfig `json:"config"`
	// Machine is the machine's own part, an Ignition document: everything of the overlay but the join credential and
	// the files that hold it.
	Machine json.RawMessage `json:"machine"`
	// Policy decides what the host does after changes.
	Policy update.Policy `json:"policy"`
	// MinReadySeconds is the time for which the Node must be Ready before an update is committed.
	MinReadySeconds int32 `json:"minReadySeconds,omitempty"`
	// ReadyDeadlineSeconds is the time within which an update must be committed, from the moment at which the host was
	// changed. Then the agent undoes it.
	ReadyDeadlineSeconds int32 `json:"readyDeadlineSeconds"`
	// RepairsDrift means that the agent corrects differences from the configuration. Otherwise it reports them only.
	RepairsDrift bool `json:"repairsDrift,omitempty"`
	// RebootMethod is how the host reboots for an update if the change and the host allow it.
	RebootMethod update.RebootMethod `json:"rebootMethod,omitempty"`
	// Force is any text. When it changes, the agent applies the configuration again, also if nothing else has changed
	// and also if that is not possible without losing a change that was made by hand.
	Force string `json:"force,omitempty"`
	// Restart is the last restart that was requested for the hosts of the pool, or nil.
	Restart *Restart `json:"restart,omitempty"`
	// RebootFrom is the ID of the boot that the host is to leave, or left, because its operating system needed that. It
	// is empty if there was none.
	RebootFrom string `json:"rebootFrom,omitempty"`
	// Staging is how the host downloads what the update to this assignment needs. It is nil without limit and images.
	Staging *Staging `json:"staging,omitempty"`
	// Agent is the agent that the host should run. It is nil while the manager has none to offer.
	Agent *Agent `json:"agent,omitempty"`
}

// Restart is a restart of hosts without a change.
type Restart struct {
	// ID is another one for each restart.
	ID string `json:"id"`
	// Kind is what restarts.
	Kind update.RestartKind `json:"kind"`
}

// Staging is how a host downloads what an update needs.
type Staging struct {
	// BytesPerSecond limits the downloads of the agent. 0 is no limit.
	BytesPerSecond int64 `json:"bytesPerSecond,omitempty"`
	// Images are container images that the container runtime pulls.
	Images []string `json:"images,omitempty"`
}

// RenderedConfig is a rendered config as the config server serves it.
type RenderedConfig struct {
	// Name is that of the MachineConfig.
	Name string `json:"name"`
	// SHA512 is the hash of the uncompressed document in hex.
	SHA512 string `json:"sha512"`
}

// AsFound returns the configuration of a host that Poolboot did not boot: nothing. The config server does not serve it.
func AsFound() RenderedConfig {
	sum := sha512.Sum512(nil)
	return RenderedConfig{Name: agentv1.AsFoundConfig, SHA512: hex.EncodeToString(sum[:])}
}

// IsAsFound reports whether a host has this configuration because Poolboot did not boot it, and has changed nothing.
func (c RenderedConfig) IsAsFound() bool { return c.Name == agentv1.AsFoundConfig }

// Agent is a version of the agent.
type Agent struct {
	// Version is its version, such as v0.1.0.
	Version string `json:"version"`
	// SHA512 is the hash of the uncompressed program in hex, by the architecture as Go names it.
	SHA512 map[string]string `json:"sha512"`
	// Oldest is the oldest version that a host may run. An agent never replaces itself with an older one.
	Oldest string `json:"oldest"`
}

// MinReady returns MinReadySeconds.
func (a *Assignment) MinReady() time.Duration { return time.Duration(a.MinReadySeconds) * time.Second }

// ReadyDeadline returns ReadyDeadlineSeconds.
func (a *Assignment) ReadyDeadline() time.Duration {
	return time.Duration(a.ReadyDeadlineSeconds) * time.Second
}

// RestartSince returns what a host restarts that changes in a boot to this assignment from another one. What was
// requested for the hosts of a pool is not for one that comes to the pool later.
func (a *Assignment) RestartSince(before Assignment, boot string) update.RestartKind {
	if a.RebootFrom != "" && a.RebootFrom == boot && a.RebootFrom != before.RebootFrom {
		return update.RestartKernel
	}
	if a.Restart == nil || a.Pool != before.Pool || before.Restart != nil && before.Restart.ID == a.Restart.ID {
		return update.RestartNothing
	}
	return a.Restart.Kind
}

// Encode returns the document of an assignment: the same bytes for the same assignment.
func Encode(a Assignment) ([]byte, error) {
	document, err := json.Marshal(a)
	if err != nil {
		return nil, err
	}
	if len(document) > MaxSize {
		return nil, fmt.Errorf("the assignment has %d bytes, and at most %d are possible: shorten spec.extraConfig or the disruption policies", len(document), MaxSize)
	}
	return document, nil
}

// Revision returns the revision of a document: its SHA-256 in hex.
func Revision(document []byte) string {
	sum := sha256.Sum256(document)
	return hex.EncodeToString(sum[:])
}

// ErrOtherRevision means that a document has another revision than the one that was asked for.
var ErrOtherRevision = errors.New("the document has another revision than the Node's annotation")

// Decode reads a document and verifies that it has a revision. It returns ErrOtherRevision if not.
func Decode(document []byte, revision string) (Assignment, error) {
	if subtle.ConstantTimeCompare([]byte(Revision(document)), []byte(revision)) != 1 {
		return Assignment{}, ErrOtherRevision
	}
	return Read(document)
}

// Read reads a document whose revision is known to be right.
func Read(document []byte) (Assignment, error) {
	var a Assignment
	decoder := json.NewDecoder(bytes.NewReader(document))
	if err := decoder.Decode(&a); err != nil {
		return Assignment{}, fmt.Errorf("the assignment is malformed: %w", err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return Assignment{}, errors.New("the assignment is malformed: there is something after it")
	}
	switch {
	case a.Node == "":
		return Assignment{}, errors.New("the assignment is malformed: node is missing")
	case a.Config.Name == "", a.Config.SHA512 == "":
		return Assignment{}, errors.New("the assignment is malformed: config is incomplete")
	case len(a.Machine) == 0, string(a.Machine) == "null":
		return Assignment{}, errors.New("the assignment is malformed: machine is missing")
	case a.MinReadySeconds < 0, a.ReadyDeadlineSeconds <= 0:
		return Assignment{}, errors.New("the assignment is malformed: minReadySeconds or readyDeadlineSeconds is out of range")
	case a.Restart != nil && a.Restart.Kind != update.RestartHost && a.Restart.Kind != update.RestartKubelet:
		return Assignment{}, fmt.Errorf("the assignment is malformed: restart has the unknown kind %q", a.Restart.Kind)
	}
	return a, nil
}
