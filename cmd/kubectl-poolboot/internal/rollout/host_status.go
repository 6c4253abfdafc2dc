package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/cluster-api/util/conditions"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/excerpt"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/outlook"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
)

// HostStatus is the state of a host of a pool, as it is printed as JSON.
type HostStatus struct {
	PoolbootConfig string `json:"poolbootConfig"`
	// Host is the BareMetalHost, or the host that enrolled.
	Host string `json:"host"`
	Node string `json:"node"`
	// State is the reason of the condition Updated, and Message its message, or Staging while the host downloads what
	// its update needs. They are empty if the condition does not exist yet. Since is when the stage of the update
	// began, or else when the state began, zero if that is not known.
	State   string    `json:"state"`
	Since   time.Time `json:"since,omitzero"`
	Message string    `json:"message"`
	// Current is the rendered config that the host runs, and Desired the one that its pool hands out.
	Current string `json:"current"`
	Desired string `json:"desired"`
	// Reboot is whether the host reboots for its next update, how, and because of what. It is empty if that is not
	// known, and once the update has begun.
	Reboot string `json:"reboot,omitempty"`
	// Exception is what an entry in spec.updates.exceptions of the pool says about the host, or "".
	Exception string `json:"exception,omitempty"`
	// Agent is the version of the agent that the host runs, or "" without one.
	Agent string `json:"agent"`

	// name is that of the host in messages.
	name string
	// IsWrong means that a user must act.
	IsUpdated  bool `json:"-"`
	IsWrong    bool `json:"-"`
	IsInUpdate bool `json:"-"`
	isAway     bool
	// isSkipped is true for a host that is not updated, and that the pool skips.
	isSkipped bool
	// isRetrying is true while something fails that is retried without a user.
	isRetrying bool
	// isDrainLate is true while the Node is drained for longer than the pool's drainTimeoutSeconds.
	isDrainLate bool
	// awaitsRestart is true until the host was told the restart that was requested for its pool.
	awaitsRestart bool
	// unavailable is why the host is unavailable although its Node is Ready, or "".
	unavailable bootstrapv1.UnavailableReason
	// told is the revision that the host was told to have, and toldConfig its rendered config. isUnanswered is true
	// until its agent answers.
	told, toldConfig string
	isUnanswered     bool
}

// newHostStatus returns the state of a host of a pool.
func newHostStatus(p *poolv1.MachineConfigPool, config *bootstrapv1.PoolbootConfig) HostStatus {
	h := HostStatus{name: record.HostName(config), PoolbootConfig: config.Name, Node: config.Status.NodeRef.Name, Current: config.Status.Boot.ServedConfiguration.Name, Desired: p.Status.Configuration.Name,
		Agent: config.Status.Update.AgentVersion, told: config.Status.Update.DesiredRevision, toldConfig: config.Status.Update.Desired.Name, isUnanswered: config.Status.Update.UnansweredTime != nil,
		unavailable: config.Status.Update.UnavailableReason}
	if record.IsPreview(config) { // it returns
		h.Desired = agentv1.AsFoundConfig
	}
	switch {
	case config.Status.HostRef.IsDefined():
		h.Host = config.Status.HostRef.Name
	case record.IsMachineless(config):
		h.Host = config.Spec.Host.NodeName
	}
	hasConfig := h.runsDesired()
	if c := conditions.Get(config, bootstrapv1.UpdatedCondition); c != nil {
		h.State, h.Since, h.Message = c.Reason, ptr.Deref(config.Status.Update.StateTime, c.LastTransitionTime).Time, strings.TrimSuffix(rollout.Resolve(c.Message, p), rollout.SeePlan(p))
		// What failed with an earlier config can work with this one.
		isEarlier := slices.Contains([]string{bootstrapv1.UpdateDegradedReason, bootstrapv1.UpdateUnreconcilableReason}, c.Reason) && config.Status.Update.Desired.Name != h.Desired
		h.IsWrong = outlook.NeedsAction(c) && !isEarlier
		h.isRetrying = outlook.IsWrong(c) && outlook.Of(c.Reason) == outlook.Retries
		h.IsUpdated = hasConfig && (c.Status == metav1.ConditionTrue || c.Reason == bootstrapv1.NoAgentReason)
		if c.Reason == bootstrapv1.NoAgentReason {
			h.IsWrong = !hasConfig
		}
		if h.IsWrong && rollout.IsForced(config) {
			if h.IsWrong = p.Spec.IsPaused(); !h.IsWrong {
				h.State, h.Since = bootstrapv1.UpdateWaitingReason, time.Time{}
			}
			h.Message = fmt.Sprintf("Node %s has not been told yet to apply its configuration again", h.Node)
			if hold := holdOf(p); hold != "" {
				h.Message += ": " + hold
			}
		}
		// The manager has not yet seen what the pool hands out or restarts now.
		h.awaitsRestart = !record.IsPreview(config) && pool.RestartOf(p, config, !hasConfig) != update.RestartNothing
		if c.Status == metav1.ConditionTrue && (!hasConfig || h.awaitsRestart) {
			does := "run " + h.Desired
			if hasConfig {
				does = "restart"
			}
			h.Since, h.IsUpdated = time.Time{}, false
			h.State, h.Message = bootstrapv1.UpdateWaitingReason, fmt.Sprintf("Node %s has not been told yet to %s", h.Node, does)
		}
	}
	if entry := rollout.StagingOf(p.Status.Staging, config.Name); entry != nil && h.State == bootstrapv1.UpdateWaitingReason && entry.StartTime != nil {
		h.State, h.Since, h.Message = staging, entry.StartTime.Time, fmt.Sprintf("%s, and its host downloads what the update to %s needs", rollout.LeadRuns.Of(h.Node, h.Current, ""), rollout.NextOf(p, config, h.Current))
	}
	h.IsInUpdate = config.Status.Update.Stage != "" || slices.Contains(
		[]string{bootstrapv1.UpdateDrainingReason, bootstrapv1.UpdateApplyingReason, bootstrapv1.UpdateRebootingReason, bootstrapv1.UpdateApplyingFirmwareReason, bootstrapv1.UpdateVerifyingReason}, h.State)
	if began := config.Status.Update.StageTime; began != nil && h.IsInUpdate {
		h.Since = began.Time
		h.isDrainLate = h.State == bootstrapv1.UpdateDrainingReason && time.Since(began.Time) > time.Duration(p.Spec.Updates.DrainTimeout())*time.Second
	}
	h.addNode(config)
	h.addException(p)
	h.isAway = h.IsInUpdate || !record.IsNodeInPool(config) && !record.IsNodeOutsidePool(config)
	return h
}

// addException adds the exception of the pool for the host. While it is skipped, an update that failed needs nobody.
func (h *HostStatus) addException(p *poolv1.MachineConfigPool) {
	e := rollout.ExceptionOf(p, h.Node, time.Now())
	if e == nil {
		return
	}
	h.Exception = rollout.DescribeException(e)
	h.isSkipped = e.Action == poolv1.ExceptionSkip && !h.IsUpdated && !h.IsInUpdate
	if h.isSkipped && !h.runsDesired() && slices.Contains([]string{bootstrapv1.UpdateDegradedReason, bootstrapv1.UpdateUnreconcilableReason}, h.State) {
		h.IsWrong = false
	}
}

// staging is the state of a host that downloads what its update needs.
const staging = "Staging"

// stageLag is longer than a stage of an update lasts before the record of the host has it.
const stageLag = 10 * time.Second

// addNode replaces the state of a host by what is wrong with its Node, unless its update failed. A Node can be not
// Ready while an update interrupts its host, and while Cluster API works on its Machine. Being told what to run, or
// drained, is no reason.
func (h *HostStatus) addNode(config *bootstrapv1.PoolbootConfig) {
	update := &config.Status.Update
	if h.IsWrong {
		return
	}
	isExpected := rollout.IsInterrupted(config) || update.UnavailableReason == bootstrapv1.UnavailableMachineChanging
	for _, kind := range []string{bootstrapv1.PoolDecidedCondition, bootstrapv1.NodeInPoolCondition} {
		c := conditions.Get(config, kind)
		isLasting := !h.IsWrong && outlook.IsWrong(c) && !isExpected && (update.Stage == "" || time.Since(c.LastTransitionTime.Time) > stageLag)
		if isWrong := outlook.NeedsAction(c); isWrong || isLasting {
			h.State, h.Since, h.Message = c.Reason, c.LastTransitionTime.Time, c.Message
			h.IsWrong, h.isRetrying, h.IsUpdated = isWrong, !isWrong, false
		}
	}
}

// brief returns the message without what other columns have.
func (h HostStatus) brief() string {
	return rollout.WithoutLead(h.Message, h.Node, h.Current, h.toldConfig)
}

// runsDesired reports whether the host runs what its pool hands out.
func (h HostStatus) runsDesired() bool { return h.Current != "" && h.Current == h.Desired }

// newHostStatuses returns the states of the hosts of a pool, by Node.
func newHostStatuses(p *poolv1.MachineConfigPool, configs []bootstrapv1.PoolbootConfig) []HostStatus {
	hosts := []HostStatus{}
	for i := range configs {
		hosts = append(hosts, newHostStatus(p, &configs[i]))
	}
	slices.SortFunc(hosts, func(a, b HostStatus) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.PoolbootConfig, b.PoolbootConfig))
	})
	return hosts
}

// newJoiningStatuses returns the states of the hosts of a pool that have not joined: their stages, or why they do not
// boot until a person acts.
func newJoiningStatuses(p *poolv1.MachineConfigPool, configs []bootstrapv1.PoolbootConfig) (hosts []HostStatus) {
	for i := range configs {
		c := &configs[i]
		if record.HasJoined(c) || !c.DeletionTimestamp.IsZero() || c.Status.PoolRole != p.Spec.PoolRole {
			continue
		}
		h := newHostStatus(p, c)
		h.Current = ""
		if why := outlook.FindNeedsPerson(c); why != nil {
			h.State, h.Since, h.Message, h.IsWrong = why.Reason, why.LastTransitionTime.Time, why.Message, true
		} else {
			stage, since := record.StageOf(c)
			h.State, h.Since, h.Message, h.IsWrong = string(stage), since, outlook.Message(c), false
		}
		hosts = append(hosts, h)
	}
	return hosts
}

// maxOthers is how many of the hosts are named for which another one waits.
const maxOthers = 3

// nameHolders adds to the messages of hosts that wait for their turn which limits of the pool hold them, and by which
// hosts. It isn't in their conditions, which would have to be written again each time.
func nameHolders(p *poolv1.MachineConfigPool, hosts []HostStatus) {
	var holders, stagers []string
	waiting := 0
	for i := range hosts {
		switch h := &hosts[i]; {
		case h.isAway, h.IsWrong:
			holders = append(holders, h.name)
		case h.unavailable == bootstrapv1.UnavailableCordoned:
			holders = append(holders, h.name+", which is cordoned")
		case h.State == staging:
			stagers = append(stagers, h.name)
		case h.isInTurn():
			waiting++
		}
	}
	gone := max(int(p.Status.CapacityHostCount)-len(hosts), 0)
	if gone > 0 {
		holders = append(holders, fmt.Sprintf("%d that are gone and whose replacements have not joined", gone))
	}
	held := ""
	if staged := int(p.Status.StagedHostCount); len(stagers) >= p.Spec.Updates.StagingHosts() && staged < waiting {
		if held += "; "; staged > 0 {
			held += "if it has not staged it, "
		}
		held += fmt.Sprintf("spec.updates.staging.maxHosts is %d, for %s", p.Spec.Updates.StagingHosts(), excerpt.List(maxOthers, stagers))
	}
	label, places := p.Spec.Updates.FailureDomainLabel, len(holders)-min(gone, 1)+gone
	switch limit, err := rollout.MaxUnavailable(p.Spec.MaxUnavailable, len(hosts)+gone); {
	case err != nil || places == 0:
	case places >= limit:
		held += fmt.Sprintf("; spec.maxUnavailable is %d, for %s", limit, excerpt.List(maxOthers, holders))
	case label != "":
		held += fmt.Sprintf("; hosts with one value of %s are updated at a time, now %s", label, excerpt.List(maxOthers, holders))
	}
	for i := range hosts {
		if hosts[i].isInTurn() {
			hosts[i].Message += held
		}
	}
}

// isInTurn reports whether the host waits for its turn, and holds no place itself.
func (h *HostStatus) isInTurn() bool {
	return h.State == bootstrapv1.UpdateWaitingReason && !h.isAway && h.unavailable != bootstrapv1.UnavailableCordoned && strings.Contains(h.Message, rollout.WaitsForTurn)
}

// hostHeader are the columns of the table of hosts, which has the versions of agents if it is wide.
func (o *statusOptions) hostHeader() []string {
	if o.output.Format == cli.FormatWide {
		return []string{"HOST", "NODE", "STATE", "CURRENT", "DESIRED", "SINCE", "AGENT", "MESSAGE"}
	}
	return []string{"HOST", "NODE", "STATE", "CURRENT", "DESIRED", "SINCE", "MESSAGE"}
}

// hostRows returns the rows of hosts.
func (o *statusOptions) hostRows(hosts []HostStatus) []cli.Row {
	rows := make([]cli.Row, len(hosts))
	for i, h := range hosts {
		since := ""
		if !h.Since.IsZero() {
			since = duration.HumanDuration(time.Since(h.Since))
		}
		message := strings.TrimPrefix(h.brief(), "Node "+h.Node+" ")
		if o.output.Format == cli.FormatWide {
			message = h.Message
		}
		if strings.HasPrefix(h.Reboot, "yes") {
			message += ". Reboot: " + h.Reboot
		}
		if h.Exception != "" && !strings.Contains(message, h.Exception) {
			message += ". Exception: " + h.Exception
		}
		if h.Host == "" && h.Node == "" {
			message = "PoolbootConfig " + h.PoolbootConfig + ": " + message
		}
		cells := []string{h.Host, h.Node, h.State, h.Current, h.Desired, since}
		if o.output.Format == cli.FormatWide {
			cells = append(cells, h.Agent)
		}
		var color cli.Color
		switch {
		case h.IsWrong:
			color = cli.Red
		case h.IsUpdated:
			color = cli.Green
		}
		rows[i] = cli.Row{Key: h.Node + "\x00" + h.PoolbootConfig, Object: h, Name: "poolbootconfig." + bootstrapv1.GroupVersion.Group + "/" + h.PoolbootConfig,
			Cells: append(cells, message), Colors: map[string]cli.Color{"STATE": color}}
	}
	return rows
}
