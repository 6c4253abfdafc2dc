// Package v1alpha1 has the annotations of Nodes by which the manager and the agents of running hosts tell each other
// what to do and what they do. It imports nothing: the agent is a small program.
package v1alpha1

// Annotations of a Node that the manager writes.
const (
	// DesiredAnnotation is the revision of the assignment that the host should have.
	DesiredAnnotation = "poolboot.io/desired-revision"
	// NextAnnotation is the revision of the assignment that the host should have after that of DesiredAnnotation. The
	// host only downloads and verifies what the update needs, and changes nothing.
	NextAnnotation = "poolboot.io/next-revision"
	// OfferedAnnotation is the revision of the assignment that names the program of a host that has no agent yet.
	OfferedAnnotation = "poolboot.io/offered-revision"
	// DesiredConfigAnnotation is the name of the rendered config of that revision, and before there is one, of the
	// config that the host boots with. With both, the record of the host is restored after clusterctl move.
	DesiredConfigAnnotation = "poolboot.io/desired-config"
	// BegunAnnotation is the revision of the update that the manager has told the host to begin. It is absent after the
	// end of the update. What a host reports about another update drains no Node and pauses no health checks.
	BegunAnnotation = "poolboot.io/begun-revision"
	// DrainedAnnotation is the revision for which the Node was cordoned and drained. The agent begins an update that
	// drains only when it is the revision of that update.
	DrainedAnnotation = "poolboot.io/drained-revision"
	// DrainStartedAnnotation is the time at which the manager began to drain the Node (RFC 3339).
	DrainStartedAnnotation = "poolboot.io/drain-started"
	// DetachStartedAnnotation is the time at which the manager began to wait until the volumes of the Pods that left
	// the Node are detached (RFC 3339).
	DetachStartedAnnotation = "poolboot.io/detach-started"
	// CordonedAnnotation is "true" on a Node that the manager cordoned for an update. A Node that was cordoned before
	// is without it, and stays cordoned after the update.
	CordonedAnnotation = "poolboot.io/cordoned-for-update"
	// Metal3RebootsAnnotation is the revision of the update for which Metal3 reboots the host, because that applies
	// firmware settings or updates. The agent waits for it, for a limited time, instead of rebooting the host. It comes
	// with DrainedAnnotation. If it is removed, the agent reboots the host.
	Metal3RebootsAnnotation = "poolboot.io/metal3-reboots"
	// SlotAnnotation is the id of the slot in the status of the pool by which the host was told last to begin an
	// update. It stays after the update: a slot is free only once the Node has its id.
	SlotAnnotation = "poolboot.io/update-slot"
)

// Annotations of a Node that the agent writes. They are claims of the host: root on the host can write anything. The
// name of the config that the host runs is not among them: the manager knows which config a revision has.
const (
	// ReportVersionAnnotation is the version of the report, an integer: of the keys and values of the annotations that
	// agents write. A reader that does not know the version uses AgentAnnotation only.
	ReportVersionAnnotation = "poolboot.io/report-version"
	// CurrentAnnotation is the revision of the assignment that the host has: the last one that was committed.
	CurrentAnnotation = "poolboot.io/current-revision"
	// TargetAnnotation is the revision that StateAnnotation and ReasonAnnotation are about.
	TargetAnnotation = "poolboot.io/update-revision"
	// StateAnnotation is a State.
	StateAnnotation = "poolboot.io/update-state"
	// ReasonAnnotation says why the host is in that state, for people, in at most MaxReason bytes.
	ReasonAnnotation = "poolboot.io/update-reason"
	// EffectAnnotation is the revision of the last update that the agent began, a space, and the strongest thing that
	// it does to the host for it: None, Reload, Restart or Reboot. A space and WithoutDrain follow while an update
	// waits that needs no drain.
	EffectAnnotation = "poolboot.io/update-effect"
	// UndoingAnnotation is the revision of the update that is being undone, until the host has changed back and has
	// rebooted. It is absent at other times.
	UndoingAnnotation = "poolboot.io/undoing-revision"
	// StagingAnnotation is the last revision for which the host has everything that the update to it needs. If what
	// NextAnnotation names can't be staged, it is that revision, a space and why, for people, in at most MaxReason
	// bytes. While a host that was told to change downloads what that needs, it is the revision, a space and
	// StagingDownloads.
	StagingAnnotation = "poolboot.io/staging"
	// PreviewAnnotation says what the first update of a host that Poolboot did not boot changes: the revision of
	// NextAnnotation, a space, and the strongest thing that the update does to the host, as in EffectAnnotation, or
	// Unreconcilable; then, for people, a line for each difference with its path and kind, never contents, or why the
	// host can't change. It has at most MaxReason bytes.
	PreviewAnnotation = "poolboot.io/adoption-preview"
	// DriftAnnotation lists what differs from the configuration, for people, in at most MaxReason bytes: paths and
	// kinds of differences, never contents. It is absent if nothing differs.
	DriftAnnotation = "poolboot.io/drift"
	// OutdatedDisksAnnotation lists what of the configuration the host has otherwise because it keeps the disks with
	// which it was installed, for people, in at most MaxReason bytes: a line for each disk, RAID array, LUKS volume,
	// file system and mount unit, with its kind and its device or name, never contents. It is absent if there is
	// nothing.
	OutdatedDisksAnnotation = "poolboot.io/outdated-disks"
	// FailingUnitsAnnotation lists the units that the host needs and that do not do their work, and those of
	// DropInsUnused, for people, in at most MaxReason bytes: a line for each, with the name of the unit, a colon, a
	// space, and what systemd says about it. It is absent if there is none. It has no lines of logs: these can have
	// secrets, and stay on the host.
	FailingUnitsAnnotation = "poolboot.io/failing-units"
	// RebootRequiredAnnotation says that the operating system of the host needs a reboot: the ID of the boot in which
	// the agent runs, then a space and RebootRequiredAtBoot if it has needed the reboot since the beginning of this
	// boot, and a line for each of the first packages because of which it does. It is absent if no reboot is needed.
	RebootRequiredAnnotation = "poolboot.io/reboot-required"
	// AgentAnnotation is the version of the agent.
	AgentAnnotation = "poolboot.io/agent-version"
	// UnsupportedAnnotation has the kinds of changes for which the host has no program, and the reboot methods that it
	// lacks, separated by spaces: KernelArguments, OSImage, Extensions, Kexec, SoftReboot. It is absent if there is
	// none.
	UnsupportedAnnotation = "poolboot.io/unsupported-changes"
	// BootAnnotation is the ID of the boot in which the agent runs, as in status.nodeInfo.bootID of the Node, or
	// AgentStopped. With both, it is known whether the agent runs without a report that is repeated.
	BootAnnotation = "poolboot.io/agent-boot"
)

// AsFoundConfig is the value of DesiredConfigAnnotation, in place of a rendered config, for a host that was adopted and
// is as it was found.
const AsFoundConfig = "as-found"

// RebootRequiredAtBoot is in RebootRequiredAnnotation if the host has needed the reboot since the first 10 minutes of
// its boot.
const RebootRequiredAtBoot = "AtBoot"

// AgentStopped is the value of BootAnnotation after the agent has stopped, also if it was killed.
const AgentStopped = "stopped"

// ReportVersion is the version of the report that this code writes and understands. A change of the report that earlier
// managers would misunderstand increases it.
const ReportVersion = 1

// Reports are the annotations that agents write, with the client certificates of their kubelets.
var Reports = []string{ReportVersionAnnotation, CurrentAnnotation, TargetAnnotation, StateAnnotation, ReasonAnnotation, EffectAnnotation, UndoingAnnotation, StagingAnnotation, PreviewAnnotation, DriftAnnotation, OutdatedDisksAnnotation, FailingUnitsAnnotation, RebootRequiredAnnotation, AgentAnnotation, UnsupportedAnnotation, BootAnnotation}

// CertificateNotAccepted begins the part of ReasonAnnotation that says why the config server does not accept the
// client certificate of the kubelet.
const CertificateNotAccepted = "the config server does not accept the certificate of the kubelet"

// FullRebootInsteadOf begins the end of ReasonAnnotation that says why a host reboots fully although its pool prefers
// another method.
const FullRebootInsteadOf = "a full reboot instead of "

// WithoutDrain is in EffectAnnotation while a host of a control plane waits for DrainedAnnotation, although its update
// needs no drain: other hosts can be away by now.
const WithoutDrain = "WithoutDrain"

// StagingDownloads is the text in StagingAnnotation of a host that downloads what it was told to change to.
const StagingDownloads = "the host downloads what it needs"

// UnitMissing is in the text about a unit of FailingUnitsAnnotation that does not exist on the host: it has no log.
const UnitMissing = "does not exist on the host"

// DropInsUnused begins the text about a unit of FailingUnitsAnnotation that fails nothing: its drop-ins have no effect.
const DropInsUnused = "the configuration has only drop-ins for it, and it " + UnitMissing

// MaxReason is the maximum size of ReasonAnnotation, DriftAnnotation, OutdatedDisksAnnotation, FailingUnitsAnnotation
// and a reason in StagingAnnotation in bytes.
const MaxReason = 2048

// State is what the agent of a host is doing.
type State string

// States, in the order of an update. They are also reasons of the condition Updated of a PoolbootConfig.
const (
	// Done: the host has the assignment.
	Done State = "Done"
	// Draining: the update waits for DrainedAnnotation, also if it needs no drain. Nothing was changed.
	Draining State = "Draining"
	// Applying: the host is being changed.
	Applying State = "Applying"
	// Rebooting: the host was changed and reboots.
	Rebooting State = "Rebooting"
	// Verifying: the host was changed, and its Node must become Ready and stay so.
	Verifying State = "Verifying"
	// Degraded: the update failed and was undone, or the host differs from its configuration.
	Degraded State = "Degraded"
	// Unreconcilable: a running host can't change to the configuration. Nothing was changed.
	Unreconcilable State = "Unreconcilable"
)
