package rollout

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	capiannotations "sigs.k8s.io/cluster-api/util/annotations"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
)

// Host is a host that has joined.
type Host struct {
	Config *bootstrapv1.PoolbootConfig
	// Machine owns Config. It is nil for a host without a Machine.
	Machine *clusterv1.Machine
	// Node is the recorded Node. It is nil if it does not exist, or was replaced by another one that is not recorded
	// yet.
	Node *corev1.Node
	// Report is what the Node says.
	Report Report
	// Follows is the role of the pool that the labels of the Node name. It is "" if they name none, or several.
	Follows string
	// IsUnrecorded is true if the record of the Node and the pool is lost, as just after clusterctl move. The host
	// counts, and is left alone until the host controller has recorded both again.
	IsUnrecorded bool
}

// HostOf returns the state of a host of a Cluster with these pools. The Machine and the Node can be nil. A Node with
// another UID than the recorded one is another Node.
func HostOf(pools []poolv1.MachineConfigPool, config *bootstrapv1.PoolbootConfig, machine *clusterv1.Machine, node *corev1.Node) *Host {
	if node != nil && string(node.UID) != config.Status.NodeRef.UID {
		node = nil
	}
	h := &Host{Config: config, Machine: machine, Node: node, Report: ReportOf(node)}
	if node != nil {
		if byLabels, err := pool.Decide(node.Labels, pools); err == nil {
			h.Follows = byLabels.Role
		}
	}
	return h
}

// IsFollowed reports whether a PoolbootConfig is that of a host that has joined, which updates are for.
func IsFollowed(config *bootstrapv1.PoolbootConfig) bool {
	return config.DeletionTimestamp.IsZero() && record.HasJoined(config) && record.HasNode(config)
}

// IsForced reports whether a host is to apply its configuration again, and was not told so yet.
func IsForced(config *bootstrapv1.PoolbootConfig) bool {
	force := config.Annotations[bootstrapv1.ForceUpdateAnnotation]
	return force != "" && force != config.Status.Update.Force
}

// IsInPool reports whether a PoolbootConfig is that of a host that has joined and is recorded in the pool with a role.
// An adopted host that is as it was found is in none.
func IsInPool(role string, config *bootstrapv1.PoolbootConfig) bool {
	return IsFollowed(config) && config.Status.PoolRole == role && !record.IsAsFound(config)
}

// HostsOfPool returns the hosts that are recorded in the pool with a role, one of these pools, and have joined, in the
// order of the PoolbootConfigs of the Cluster. A host that has not joined yet is not among them: it was never
// available. A host without a record is among them if it can be in the pool: it can be in the middle of an update. One
// that was adopted was there only if its Node is in a pool. It keeps pointers to the objects.
func HostsOfPool(
	role string, pools []poolv1.MachineConfigPool, configs []bootstrapv1.PoolbootConfig, machines []clusterv1.Machine, nodes []corev1.Node,
) (hosts []*Host) {
	machineOf, nodeOf := map[string]*clusterv1.Machine{}, map[string]*corev1.Node{}
	var claimed map[types.NamespacedName][]*corev1.Node // of no use as long as no record is lost
	for i := range machines {
		machineOf[machines[i].Name] = &machines[i]
	}
	for i := range nodes {
		nodeOf[nodes[i].Name] = &nodes[i]
	}
	for i := range configs {
		c := &configs[i]
		switch machine := machineOf[record.MachineName(c)]; {
		case IsInPool(role, c):
			hosts = append(hosts, HostOf(pools, c, machine, nodeOf[c.Status.NodeRef.Name]))
		case IsUnrecorded(c):
			if claimed == nil {
				claimed = NodesByConfig(nodes)
			}
			h := Unrecorded(pools, c, machine, claimed[record.Key(c)])
			if h.CanBeIn(role) && (!record.IsAdopted(c) || h.Node != nil && h.Node.Labels[poolv1.NodePoolLabel] != "") {
				hosts = append(hosts, h)
			}
		}
	}
	return hosts
}

// maxNotReplaced is the maximum number of hosts that NotReplaced returns, more than a pool has: users who can write the
// status of a pool can set its capacity to any number.
const maxNotReplaced = 10_000

// NotReplaced returns the hosts that count for those of a pool that are gone and whose replacements have not joined.
// joined is how many hosts the pool has.
func NotReplaced(p *poolv1.MachineConfigPool, joined int) []Candidate {
	hosts := make([]Candidate, min(max(int(p.Status.CapacityHostCount)-joined, 0), maxNotReplaced))
	for i := range hosts {
		hosts[i] = Candidate{Name: fmt.Sprintf("gone host %d", i+1), IsUnavailable: true, IsExcluded: true}
	}
	return hosts
}

// IsUnrecorded reports whether a PoolbootConfig is that of a host that has joined, and the record of its Node is lost.
func IsUnrecorded(config *bootstrapv1.PoolbootConfig) bool {
	return config.DeletionTimestamp.IsZero() && record.HasJoined(config) && !record.HasNode(config)
}

// CanBeIn reports whether a host is in the pool with a role, or can be in any.
func (h *Host) CanBeIn(role string) bool {
	return h.Config.Status.PoolRole == role || h.Config.Status.PoolRole == ""
}

// Unrecorded returns a host without a record. claimed are the Nodes that were registered for it: one, or else the host
// is unavailable. Its pool is that of the labels of the Node.
func Unrecorded(pools []poolv1.MachineConfigPool, config *bootstrapv1.PoolbootConfig, machine *clusterv1.Machine, claimed []*corev1.Node) *Host {
	var h *Host
	if config = config.DeepCopy(); len(claimed) == 1 {
		config.Status.NodeRef = bootstrapv1.NodeReference{Name: claimed[0].Name, UID: string(claimed[0].UID)}
		h = HostOf(pools, config, machine, claimed[0])
		config.Status.PoolRole = h.Follows
	} else {
		h = HostOf(pools, config, machine, nil)
	}
	h.IsUnrecorded = true
	return h
}

// NodesByConfig returns the Nodes that were registered for each PoolbootConfig.
func NodesByConfig(nodes []corev1.Node) map[types.NamespacedName][]*corev1.Node {
	claimed := map[types.NamespacedName][]*corev1.Node{}
	for i := range nodes {
		if key, ok := record.ConfigOfNode(&nodes[i]); ok {
			claimed[key] = append(claimed[key], &nodes[i])
		}
	}
	return claimed
}

// Name returns the name of the PoolbootConfig.
func (h *Host) Name() string { return h.Config.Name }

// NodeName returns the recorded name of the Node, by which the exceptions of a pool name the host.
func (h *Host) NodeName() string { return h.Config.Status.NodeRef.Name }

// Desired returns the revision that is recorded for the host.
func (h *Host) Desired() string { return h.Config.Status.Update.DesiredRevision }

// Told returns the revision that the host was told to have.
func (h *Host) Told() string {
	if h.Node == nil {
		return ""
	}
	return h.Node.Annotations[agentv1.DesiredAnnotation]
}

// HasAgent reports whether the host runs an agent, or did when it was told something.
func (h *Host) HasAgent() bool {
	return h.Report.Version != "" || h.Report.NotUnderstood != "" || h.Desired() != ""
}

// HasBegun reports whether the manager has begun an update of the host, which has not ended.
func (h *Host) HasBegun() bool {
	return h.Node != nil && h.Node.Annotations[agentv1.BegunAnnotation] != ""
}

// IsOnlyClaimed reports whether the host reports that it is in an update that the manager has not begun.
func (h *Host) IsOnlyClaimed() bool {
	return h.Report.Progress(h.Told()) == InUpdate && h.Node.Annotations[agentv1.BegunAnnotation] != h.Told()
}

// Progress returns how far the host is with what it was told. A host in an update that the manager has not begun counts
// as one that reports nothing: it can be unavailable, and it is not told more than others. So does one whose report is
// not understood, also if it was told nothing.
func (h *Host) Progress() Progress {
	if h.Report.NotUnderstood != "" || h.IsOnlyClaimed() {
		return Unknown
	}
	return h.Report.Progress(h.Told())
}

// Stage returns the stage of the update of the host that the manager has begun, or "" if it is not being updated. An
// agent that adopts what its host booted with changes nothing.
func (h *Host) Stage() bootstrapv1.UpdateStage {
	if progress := h.Progress(); progress != InUpdate && progress != Unknown || !h.HasBegun() || h.IsAdopting() {
		return ""
	}
	switch h.Report.State {
	case agentv1.Draining, agentv1.Applying, agentv1.Rebooting, agentv1.Verifying:
		if h.Report.Target == h.Told() {
			return bootstrapv1.UpdateStage(h.Report.State)
		}
	}
	return bootstrapv1.UpdateStarting
}

// IsDeleting reports whether the Machine is being deleted. Cluster API drains its Node.
func (h *Host) IsDeleting() bool { return h.MachineWork() == MachineIsDeleted }

// IsUnavailable reports whether the Node can't run Pods, or Cluster API can make it unavailable at any time. After an
// update, this is so until it is uncordoned.
func (h *Host) IsUnavailable() bool {
	return h.MachineWork() != NoMachineWork || h.Node == nil || !h.Node.DeletionTimestamp.IsZero() || !util.IsNodeReady(h.Node) || h.Node.Spec.Unschedulable
}

// UnavailableReason returns why the host is unavailable although its Node is Ready, or "", apart from an update. It is
// known during an update too: it can be why the update does not end, or remain after it. A Node that was cordoned for
// an update is part of that update.
func (h *Host) UnavailableReason() bootstrapv1.UnavailableReason {
	switch {
	case h.MachineWork() != NoMachineWork:
		return bootstrapv1.UnavailableMachineChanging
	case h.Node != nil && h.Node.Spec.Unschedulable && !IsCordonedByUpdate(h.Node):
		return bootstrapv1.UnavailableCordoned
	case h.Report.IsKubeletFailing():
		return bootstrapv1.UnavailableKubeletFailing
	}
	return ""
}

// WhyCordoned returns why the host begins no update because its Node is cordoned, or "".
func (h *Host) WhyCordoned() string {
	if h.UnavailableReason() != bootstrapv1.UnavailableCordoned {
		return ""
	}
	return fmt.Sprintf("it is cordoned, so its host takes a place of spec.maxUnavailable and begins no update: kubectl uncordon %s", h.Node.Name)
}

// CanBeTold reports whether telling the host what is recorded disrupts nothing: it has that revision already, or its
// agent has adopted nothing yet and has nothing to compare it with. A host whose Node has registered again, and lost
// what the agent reported, can be in an update.
func (h *Host) CanBeTold() bool {
	running := h.Config.Status.Update.RunningRevision
	return h.Report.IsDone(h.Desired()) ||
		h.Told() == "" && h.Report.Current == "" && h.Report.Version != "" && (running == "" || running == h.Desired())
}

// IsUntold reports whether the host must be told what is recorded.
func (h *Host) IsUntold() bool {
	return h.Node != nil && h.Desired() != "" && h.Told() != h.Desired() && !h.IsExcluded()
}

// IsAdopting reports whether the agent has not adopted yet what its host booted with. It must not get another revision
// before: the config server serves only one, and the agent begins with the one that Ignition wrote.
func (h *Host) IsAdopting() bool {
	return h.Desired() != "" && h.Report.Current == "" && h.Report.NotUnderstood == ""
}

// IsLeaving reports whether the labels of the Node do not name the pool in which the host is recorded: they name
// another one and the record follows in a moment, or they name none or several, and a user must correct them. The host
// completes what it has begun. It begins nothing else, because that would be for a pool that it is about to leave.
func (h *Host) IsLeaving() bool {
	return h.Node != nil && h.Follows != h.Config.Status.PoolRole && !record.IsPreview(h.Config)
}

// IsExcluded reports whether the host is left alone.
func (h *Host) IsExcluded() bool {
	return h.IsUnrecorded || h.Report.NotUnderstood != "" || h.MachineWork() != NoMachineWork || !h.HasAgent() || h.Node == nil || h.IsLeaving() || capiannotations.HasPaused(h.Config)
}

// ForRollout returns the host as the rollout of a pool with a hold sees it. target is "" if its target is not known,
// and slot is nil if the host has none. A host with a slot counts like one in an update until it is done with the slot,
// also if it was not told yet. A host whose units fail after its update counts as one whose update failed: others wait,
// and what corrects it comes to it first.
func (h *Host) ForRollout(p *poolv1.MachineConfigPool, target string, slot *poolv1.UpdateSlot, hold Hold) Candidate {
	in := Candidate{
		Name: h.Name(), Desired: h.Told(), Target: target, Progress: h.Progress(),
		IsUnavailable: h.IsUnavailable(), IsExcluded: target == "" || h.IsExcluded(), IsLast: IsToBeReplaced(h.Machine),
	}
	switch {
	case slot != nil && !h.HasSlot(slot.ID):
		in.HasSlot, in.Desired, in.Progress = true, slot.Revision, InUpdate
	case slot != nil:
		in.HasSlot, in.Desired = true, slot.Revision
		if in.Progress == Done && !h.IsDoneWith(slot.ID) {
			in.Progress = Unknown
		}
	default:
		in.IsExcluded = in.IsExcluded || h.Desired() == "" || h.IsAdopting() || h.Report.Silence != ""
		if h.CanBeTold() {
			in.Desired = h.Desired()
		}
	}
	if in.Progress == Done && len(h.Report.FailingUnits) > 0 {
		in.Progress = Failed
	}
	returns := target != "" && target == h.Report.Current
	in.HasBegun = in.Progress == InUpdate || in.Progress == Unknown && h.Report.Current != h.Told() || returns
	held := hold.Of(h.NodeName())
	in.IsSkipped = held.IsSkipped && !in.HasBegun
	in.IsHeld = in.IsSkipped || held.byPool != "" && !returns
	if p.Spec.Updates.Canary.IsDefined() {
		h.setCanary(&in, &p.Spec.Updates.Canary)
	}
	if h.Node != nil {
		in.Domain, in.Zone = h.Node.Labels[p.Spec.Updates.FailureDomainLabel], h.Node.Labels[corev1.LabelTopologyZone]
		in.CreationTime = h.Node.CreationTimestamp.Time
	}
	return in
}
