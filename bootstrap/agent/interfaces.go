package agent

import (
	"context"
	"errors"
	"time"

	"github.com/coreos/ignition/v2/config/v3_5/types"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/hostfiles"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/unitstate"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// Executor carries out the operations of a kind. The agent keeps their order.
//
// The same operation can come again, also after it was carried out and after a power failure: what has the state after
// the operation stays as it is. It can be undone: then it comes with exchanged states (update.Undo), also if it was not
// carried out.
//
// When Apply returns nil, the change survives a power failure. An error names the object and the cure, and has no
// secrets.
type Executor interface {
	Apply(ctx context.Context, operation update.Operation) error
}

// Preparer is an Executor that records something before any part of an update is carried out.
type Preparer interface {
	Executor
	// Prepare gets all operations of the update that the executor carries out. It can be repeated.
	Prepare(ctx context.Context, operations []update.Operation) error
}

// Refuser is an Executor whose programs can't make every change.
type Refuser interface {
	// Refusal returns why an operation is not possible on this host, and what to do, "" if it is or nobody knows. It
	// changes nothing.
	Refusal(ctx context.Context, operation update.Operation) string
}

// Stager is an Executor whose programs can download before an update what it needs.
type Stager interface {
	// Stage downloads what an operation needs, and changes nothing that the host runs or boots. It can be repeated.
	Stage(ctx context.Context, operation update.Operation) error
	// StagingDirectory is where it is stored.
	StagingDirectory() string
}

// Images pulls container images.
type Images interface {
	// Pull returns when the container runtime has an image, which has the digest in its name if there is one.
	Pull(ctx context.Context, image string) error
	// Directory is where the container runtime has images.
	Directory() string
}

// OS is the Executor of update.ChangeOS.
type OS interface {
	Executor
	// Difference returns an entry of a configuration that the running operating system does not have, and how it
	// differs, for people. Both are "" if it has all of them.
	Difference(ctx context.Context, want update.OperatingSystem) (entry update.Kind, how string, err error)
}

// KernelArguments is the Executor of update.ChangeKernelArguments.
type KernelArguments interface {
	Executor
	// Differences returns which of these arguments the running kernel does not have, and which additional ones it has
	// that an earlier configuration had and that were removed with it.
	Differences(arguments []string) (missing, additional []string, err error)
}

// Enablement is the Executor of update.ChangeEnablement.
type Enablement interface {
	Preparer
	// Differing returns the units that are enabled or disabled otherwise than they should be, and those that are masked
	// and not by the configuration. For update.Preset, only masks count.
	Differing(ctx context.Context, units map[string]update.Enablement) (differing, masked []string, err error)
}

// Units controls the units of systemd. Methods return when the job has ended, and an error if it failed or the context
// ended before.
type Units interface {
	DaemonReload(ctx context.Context) error
	// Reload starts a unit that failed. One that is not active reads nothing, which is no error.
	Reload(ctx context.Context, unit string) (reads bool, err error)
	// Restart starts the unit if it is not active.
	Restart(ctx context.Context, unit string) error
	// Stop stops units, and all instances of templates. It tries all of them. It is no error if one is not active or
	// does not exist.
	Stop(ctx context.Context, units ...string) error
	// Start starts units that something active wants, and leaves out others and what does not exist or is masked. It
	// tries all of them.
	Start(ctx context.Context, units ...string) error
	// Exists reports whether systemd knows a file of the unit, or of its template.
	Exists(ctx context.Context, unit string) (bool, error)
	// Failing returns the names of the units that failed, that systemd is about to start again, or whose files it can't
	// use.
	Failing(ctx context.Context) ([]string, error)
	// States returns the states of units, in their order.
	States(ctx context.Context, units ...string) ([]unitstate.State, error)
	// State returns the state of a unit, with what it waits for and which of the units that it needs failed.
	State(ctx context.Context, unit string) (unitstate.State, error)
	// Overrides returns drop-ins, and files that take the place of files of units in a configuration, that systemd has
	// loaded for units and that neither the configuration nor the operating system has, and the units that are masked,
	// and not by the configuration. configured has the paths of the configuration.
	Overrides(ctx context.Context, units []string, configured map[string]bool) (dropIns, files, masked []string, err error)
}

// Rebooter reboots the host.
type Rebooter interface {
	// Reboot requests a reboot, and returns when it is accepted. It can be repeated. After an error, another method can
	// be requested.
	Reboot(ctx context.Context, method update.RebootMethod) error
	// Started returns the uptime at which the programs of the host began to start: another one after a soft reboot,
	// which is no boot.
	Started(ctx context.Context) (time.Duration, error)
}

// StaticPods are the static Pods of the host: a staticpods.Host.
type StaticPods interface {
	// Passing returns the paths of the manifests whose probes pass.
	Passing(ctx context.Context) (manifests []string)
	// Failing returns which of some manifests do not pass, and why, for people, "" if all pass.
	Failing(ctx context.Context, manifests []string) (why string)
	// Volumes returns the paths of the host that they mount.
	Volumes() (paths []string)
}

// Executors change the host.
type Executors struct {
	// Accounts is for update.ChangeUser and update.ChangeGroup.
	Accounts Preparer
	// KubeletFlags is for what follows from kubeadm's configuration, the path ignition.KubeadmJoinPath.
	KubeletFlags Executor
	// Enablement is for update.ChangeEnablement.
	Enablement Enablement
	// KernelArguments is for update.ChangeKernelArguments.
	KernelArguments KernelArguments
	// OS is for update.ChangeOS.
	OS OS
	// Images is for container images that an update needs.
	Images Images
	// Units and Rebooter are for the actions after the operations.
	Units    Units
	Rebooter Rebooter
	// StaticPods are not changed: they prove that an update has not broken them.
	StaticPods StaticPods
	// Check returns what of the files and settings that put the Node in its pool is not as Poolboot wrote it, for
	// people.
	Check func(ctx context.Context) (found []string, err error)
}

// Files changes the files of the host: a *hostfiles.Updater.
type Files interface {
	IsNew() bool
	IsUnconfirmed() bool
	Adopt(tree hosttree.Tree) error
	Check(changes []hosttree.Change, force bool) error
	Apply(changes []hosttree.Change, force bool) error
	Complete() error
	Confirm() error
	RollBack() error
	// LeftOver returns the paths that could not be restored when an update was undone, and Retry tries that again.
	LeftOver() []hostfiles.LeftOver
	Retry() error
	Look(units ...string) uint64
	Differences(units ...string) ([]update.Drift, error)
	// DifferencesFrom returns how the host differs from a tree, by path, also in files that Poolboot did not write.
	DifferencesFrom(tree hosttree.Tree) ([]update.Drift, error)
	ChangesTo(tree hosttree.Tree) ([]hosttree.Change, error)
}

// ErrRefused means that the config server does not give a host what it requested, and will not later.
var ErrRefused = errors.New("the config server refuses the request")

// ErrNotAccepted means that the config server does not accept the certificate of the kubelet.
var ErrNotAccepted = errors.New("the config server does not accept the certificate")

// Source is where assignments and configs come from: the config server.
type Source interface {
	// Assignment returns the document of the host's assignment, which has at most assignment.MaxSize bytes.
	Assignment(ctx context.Context) ([]byte, error)
	// Rendered returns the document of a rendered config. The caller verifies the hash. The error is ErrRefused if it
	// is not for this host.
	Rendered(ctx context.Context, name string) ([]byte, error)
	// Limit sets how many bytes per second are downloaded at most. 0 is no limit.
	Limit(bytesPerSecond int64)
	// Contents returns the contents of a file that a configuration has at a URL. The caller verifies the hash.
	Contents(ctx context.Context, resource types.Resource) ([]byte, error)
	// Program returns the program of an agent. The caller verifies the hash.
	Program(ctx context.Context, sha512 string) ([]byte, error)
}

// Node is what the agent knows of its Node.
type Node struct {
	// Known is false while the API server is not reachable or has no Node. Then the other fields are those that were
	// seen last, empty if the agent has not reached the API server yet.
	Known bool
	// Problem is why it is not known.
	Problem string
	// Annotations are those of api/agent/v1alpha1.
	Annotations map[string]string
	// Ready is true if the condition Ready is True. ReadyMessage is its message, and Heartbeat its last heartbeat.
	Ready        bool
	ReadyMessage string
	Heartbeat    time.Time
}

// Cluster is the API server of the workload cluster.
type Cluster interface {
	// Annotate sets annotations of the host's Node, and removes those that are nil.
	Annotate(ctx context.Context, annotations map[string]*string) error
	// Accept does the same if the Node still tells the host to have a revision. Otherwise it changes nothing, and the
	// error is that of the API server.
	Accept(ctx context.Context, revision string, annotations map[string]*string) error
	// Renewed returns when the kubelet renewed the Node's lease for the last time.
	Renewed(ctx context.Context) (time.Time, error)
}

// Clock tells times and boots. Durations are measured by Uptime: the time of day can jump.
type Clock interface {
	// Now is the time of day.
	Now() time.Time
	// Uptime is the time since the host booted, including suspension.
	Uptime() time.Duration
	// BootID is different after each boot.
	BootID() string
}

var _ Files = (*hostfiles.Updater)(nil)
