package machineconfigpool

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/cluster-api/util/conditions"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/excerpt"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/outlook"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// machineState is what the counts of a pool depend on in a Machine.
type machineState struct {
	// name is that of the host in messages.
	name, cluster, pool string
	// configuration is the rendered config that was handed to the host, or to which the running host was updated.
	configuration string
	// joined is true once the kubelet has been Ready in the pool: the Machine runs the configuration.
	joined bool
	// inPool is true while the Node is Ready and in the pool.
	inPool bool
	// problem is what a user must fix, or "" if there is nothing to fix.
	problem string
	// follows is true if the running host follows its pool, because it has an agent.
	follows bool
	// phase is how far such a host is, if it runs another configuration.
	phase phase
	// failed is the rendered config to which the update of the host failed or is not possible, or "".
	failed string
	// changing is true if the host is to run another revision, also one with the same rendered config.
	changing bool
	// unavailable is why the host is unavailable although its Node is Ready, or "".
	unavailable bootstrapv1.UnavailableReason
	// can is what the programs of the running host can change.
	can update.Capabilities
	// retrying is true if the update of the running host fails, and is retried.
	retrying bool
	// silent is true if the agent of the running host does not answer, or not in a way that the manager understands.
	silent bool
	// unitsFail is true if the kubelet or units of the configuration fail on the running host.
	unitsFail bool
	// agentless is true if the running host has no agent.
	agentless bool
	// outdatedDisks is true if the running host keeps other disks than those of its configuration.
	outdatedDisks bool
	// needsReboot is true if the operating system of the running host needs a reboot.
	needsReboot bool
	// free is true for a BareMetalHost without a Machine that has its user data and no image yet.
	free bool
}

func stateOf(c *bootstrapv1.PoolbootConfig) machineState {
	inPool := record.IsNodeInPool(c)
	state := machineState{
		name: record.HostName(c), cluster: record.ClusterName(c), pool: c.Status.PoolRole, configuration: c.Status.Boot.ServedConfiguration.Name,
		joined: record.IsBootComplete(c), inPool: inPool, follows: c.Status.Update.DesiredRevision != "",
		unavailable: c.Status.Update.UnavailableReason, can: update.CapabilitiesWithout(c.Status.Update.UnsupportedChanges...),
	}
	if c := outlook.FindNeedsPerson(c); c != nil {
		state.problem = c.Message
	}
	if state.follows {
		state.phase, state.changing = phaseOf(c), isChanging(c)
	}
	updated := conditions.Get(c, bootstrapv1.UpdatedCondition)
	if updated != nil && (updated.Reason == bootstrapv1.UpdateDegradedReason || updated.Reason == bootstrapv1.UpdateUnreconcilableReason) {
		state.failed = c.Status.Update.Desired.Name
	}
	state.retrying = updated != nil && updated.Reason == bootstrapv1.UpdateFailingReason
	state.silent = updated != nil && slices.Contains(noAnswer, updated.Reason)
	state.unitsFail = updated != nil && updated.Reason == bootstrapv1.UnitsFailingReason
	state.agentless = state.joined && updated != nil && updated.Reason == bootstrapv1.NoAgentReason
	state.outdatedDisks = state.joined && len(c.Status.Update.OutdatedDisks) > 0
	state.needsReboot = state.joined && c.Status.Update.RebootRequired.BootID != ""
	state.free = !state.joined && state.problem == "" && isFree(c)
	return state
}

// isFree reports whether a config belongs to an annotated BareMetalHost on which nothing is being installed. The host
// is recorded when its installation starts. A host whose user data cannot be set is not free, because a user must act.
func isFree(c *bootstrapv1.PoolbootConfig) bool {
	return record.HostKindOf(c) == record.BareMetalHost &&
		!c.Status.HostRef.IsDefined() && !record.HasNode(c) && !record.HasRequested(c) &&
		!meta.IsStatusConditionFalse(c.Status.Conditions, bootstrapv1.UserDataSetCondition)
}

// runs is what the effect of an update on a host depends on: the rendered config that it runs, its programs, and what
// it restarts because that was requested.
type runs struct {
	configuration string
	can           update.Capabilities
	restart       update.RestartKind
}

// counts is the state of the pool's hosts, by their names in messages.
type counts struct {
	total, updated, ready, agentless, outdatedDisks, needReboot int32
	// joined are the hosts that rollouts count. notReplaced are those that are missing to the capacity of the pool.
	joined, notReplaced int32
	// names are those of the PoolbootConfigs of the joined hosts, and nodes those of their Nodes.
	names, nodes sets.Set[string]
	// booting are the Machines that have not joined yet. notInPool are those that have joined and whose Nodes are not
	// Ready in the pool. Together, they are the unavailable Machines.
	booting, notInPool []string
	// held are those whose Nodes are Ready and that are unavailable anyway, each with the reason. They take places of
	// maxUnavailable. heldWaiting is how many of them wait for an update and do not begin it.
	held        []string
	heldWaiting int
	// silentWaiting is how many of those that wait have an agent that does not answer: they begin no update.
	silentWaiting int
	// outdated are the Machines that have joined and run another configuration than the pool renders. outdatedHosts are
	// such hosts without a Machine. waiting, updating and stopped are those of both that change to it without being
	// installed again, by their phase.
	outdated, outdatedHosts, waiting, updating, stopped []string
	// skipped are hosts that an exception skips before they change to it, each until when and why. None waits for them.
	skipped []string
	// retrying are those of waiting whose update fails before it begins, such as its downloads.
	retrying []string
	// failing are those that run what the pool renders and whose units fail. They take places of maxUnavailable.
	failing []string
	// running has the names of waiting, updating, stopped and skipped by what the prediction depends on.
	running map[runs][]string
	// degraded are the Machines that need a user to act, each with what to do.
	degraded []string
	// free are BareMetalHosts without a Machine that wait for an image. Nothing is being installed on them, so the pool
	// does not count them yet.
	free []string
}

func (s *scope) countMachines() (n counts) {
	target := s.target()
	n.running, n.names, n.nodes = map[runs][]string{}, sets.New[string](), sets.New[string]()
	now := time.Now()
	for i := range s.machines {
		state := stateOf(&s.machines[i])
		name := state.name
		if state.free {
			n.free = append(n.free, name)
			continue
		}
		n.total++
		if rollout.IsInPool(s.pool.Spec.PoolRole, &s.machines[i]) {
			n.joined++
			n.names.Insert(s.machines[i].Name)
			n.nodes.Insert(s.machines[i].Status.NodeRef.Name)
		}
		if state.agentless {
			n.agentless++
		}
		if state.outdatedDisks {
			n.outdatedDisks++
		}
		if state.needsReboot {
			n.needReboot++
		}
		isFailing, isSkipped := false, false
		isCurrent := pool.HasSameContent(state.configuration, target)
		restart := pool.RestartOf(s.pool, &s.machines[i], false)
		exception := rollout.ExceptionOf(s.pool, s.machines[i].Status.NodeRef.Name, now)
		switch {
		case !state.joined:
			n.booting = append(n.booting, name)
		case state.follows && (!isCurrent || state.changing || restart != update.RestartNothing):
			if !isCurrent || restart != update.RestartNothing {
				is := runs{state.configuration, state.can, restart}
				n.running[is] = append(n.running[is], name)
			}
			// What failed with an earlier config says nothing about the one that the pool hands out now.
			isEarlier := state.failed != "" && !pool.HasSameContent(state.failed, s.pool.Status.Configuration.Name)
			switch {
			case state.phase == updating:
				n.updating = append(n.updating, name)
			case exception != nil && exception.Action == poolv1.ExceptionSkip && (state.phase == waits || !state.silent):
				isSkipped = true
				n.skipped = append(n.skipped, name+" "+strings.TrimPrefix(rollout.DescribeException(exception), "skipped "))
			case state.phase == stopped && !isEarlier:
				n.stopped = append(n.stopped, name)
			default:
				n.waiting = append(n.waiting, name)
				if state.retrying {
					n.retrying = append(n.retrying, name)
				}
				if state.silent {
					n.silentWaiting++
				}
				if state.unavailable != "" && state.unavailable != bootstrapv1.UnavailableKubeletFailing {
					n.heldWaiting++
				}
			}
		case !isCurrent && record.IsMachineless(&s.machines[i]):
			n.outdatedHosts = append(n.outdatedHosts, name)
		case !isCurrent:
			n.outdated = append(n.outdated, name)
		default:
			n.updated++
			if state.inPool {
				n.ready++
			}
			if isFailing = state.unitsFail && state.inPool; isFailing {
				n.failing = append(n.failing, name)
			}
		}
		if state.joined && !state.inPool {
			n.notInPool = append(n.notInPool, name)
		} else if state.joined && !isFailing && state.unavailable != "" && (state.phase == "" || state.phase == waits) {
			n.held = append(n.held, name+": "+string(state.unavailable))
		}
		if state.problem != "" && (!isSkipped || state.phase != stopped) { // somebody has decided what happens to it
			n.degraded = append(n.degraded, name+": "+strings.TrimPrefix(state.problem, "host "+name+": "))
		}
	}
	return n
}

// target returns the rendered config that all Machines of the pool are to run, paused or not: what
// spec.configurationName names, what the pool renders, or what it hands out while that is not possible.
func (s *scope) target() string {
	switch {
	case s.pinned != "":
		return s.pinned
	case s.pool.Spec.ConfigurationName != "":
		return s.pool.Status.Configuration.Name
	}
	return s.renders()
}

// renders returns the rendered config of the pool, or what it hands out while it cannot be rendered.
func (s *scope) renders() string {
	if s.rendered != nil {
		return s.rendered.Name
	}
	return s.pool.Status.Configuration.Name
}

// freeMessage describes the hosts that wait for an image. It returns "" if there are none.
func (n counts) freeMessage() string {
	if len(n.free) == 0 {
		return ""
	}
	return fmt.Sprintf("; %d BareMetalHost(s) wait for spec.image and do not count yet (%s)", len(n.free), excerpt.Names(maxNames, n.free))
}

// renewingAgentless says how the hosts that no update reaches get another configuration. It returns "" if there are
// none.
func (n counts) renewingAgentless() string {
	if n.agentless == 0 {
		return ""
	}
	return fmt.Sprintf(", then roll out the MachineDeployments of the hosts that run no agent (%d), see %s", n.agentless, outlook.Renewing)
}

// agentlessMessage describes the hosts that no update reaches. It returns "" if there are none.
func (n counts) agentlessMessage() string {
	if n.agentless == 0 {
		return ""
	}
	return fmt.Sprintf("; %d of them run no agent, and keep the configuration with which they booted", n.agentless)
}

// disksMessage describes the hosts that keep other disks than those of their configuration. It returns "" if there are
// none.
func (n counts) disksMessage() string {
	if n.outdatedDisks == 0 {
		return ""
	}
	return fmt.Sprintf("; %d of them keep the disks with which they were installed, and get those of the configuration when they are installed again: see %s",
		n.outdatedDisks, outlook.Renewing)
}

func (n counts) unavailable() int { return len(n.booting) + len(n.notInPool) }

// pendingMessage describes the Machines that are not updated and ready, and what to do about it.
func (n counts) pendingMessage(p *poolv1.MachineConfigPool) string {
	var parts []string
	see := "see " + rollout.Command("status", p)
	add := func(names []string, problem, next string) {
		if len(names) > 0 {
			parts = append(parts, fmt.Sprintf("%d of %d hosts %s (%s): %s", len(names), n.total, problem, excerpt.Names(maxNames, names), next))
		}
	}
	add(n.booting, "have not joined yet", see)
	n.addRollout(add, see)
	add(n.skipped, "are skipped", "wait until then, or remove the entry in spec.updates.exceptions, and they are updated")
	add(n.outdated, "run another configuration", "roll out their MachineDeployments to renew them, see "+outlook.Renewing)
	add(n.outdatedHosts, "run another configuration, and no MachineDeployment renews them", "install these hosts again")
	add(n.notInPool, "have no Node that is Ready in the pool", see)
	return strings.Join(parts, "; ")
}

// exceptionsMessage names the Nodes in exceptions of the pool that are none of its hosts. It returns "" if there are
// none.
func (n counts) exceptionsMessage(p *poolv1.MachineConfigPool) string {
	unused := rollout.UnusedExceptions(p, n.nodes.Has, time.Now())
	if len(unused) == 0 {
		return ""
	}
	return fmt.Sprintf("; spec.updates.exceptions has Nodes that are those of no host of the pool (%s): correct or remove them", excerpt.Names(maxNames, unused))
}

// maxNames is how many hosts a message names.
const maxNames = 5
