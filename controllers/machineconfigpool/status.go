package machineconfigpool

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// setStatus computes the whole status.
func (s *scope) setStatus() {
	status := &s.pool.Status
	status.ObservedGeneration = s.pool.Generation
	status.RenderedConfiguration = s.renders()
	status.InputsHash, _ = pool.InputsID(s.pool.Spec.PoolRole, s.pools, s.configs) // the problem of the pool has the error
	n := s.countMachines()
	s.setCapacity(n, time.Now())
	n.notReplaced = status.CapacityHostCount - n.joined
	s.counted = n
	status.HostCount, status.UpdatedHostCount, status.ReadyHostCount = &n.total, &n.updated, &n.ready
	status.UnavailableHostCount = ptr.To(int32(n.unavailable()))
	status.DegradedHostCount = ptr.To(int32(len(n.degraded)))
	status.AgentlessHostCount, status.OutdatedDisksHostCount = &n.agentless, &n.outdatedDisks
	status.RebootRequiredHostCount = &n.needReboot
	s.setRollout(n, metav1.Now())
	s.setPrediction(n)
	s.setPinned()
	s.setUpdated(n)
	s.setDegraded(n)
	s.setReady()
}

// setHandedOut sets what the pool hands out, and records it in the history, and where clusterctl move keeps it.
func (s *scope) setHandedOut(now metav1.Time) {
	status := &s.pool.Status
	if len(status.History) == 0 {
		status.History = record.DecodeHandedOut(s.pool)
	}
	before := status.Configuration
	status.Configuration = s.configuration()
	s.setHistory(before, now)
	if value := record.EncodeHandedOut(s.pool); value != "" {
		metav1.SetMetaDataAnnotation(&s.pool.ObjectMeta, poolv1.HandedOutAnnotation, value)
	}
}

// setHistory records what the pool hands out, if it is another configuration than before, and what differs between
// both, because the earlier one is deleted when nothing uses it.
func (s *scope) setHistory(before poolv1.PoolConfiguration, now metav1.Time) {
	name, history := s.pool.Status.Configuration.Name, s.pool.Status.History
	if name == "" || len(history) > 0 && history[len(history)-1].Name == name {
		return
	}
	handedOut := poolv1.HandedOutConfiguration{Name: name, StartTime: &now}
	if len(history) > 0 && history[len(history)-1].Name == before.Name {
		s.setChanges(before, &handedOut)
	}
	history = append(history, handedOut)
	s.pool.Status.History = history[max(0, len(history)-poolv1.MaxHistory):]
}

// setChanges sets what a configuration changes, if both exist: first the MachineConfigs that are added and removed, of
// which the entries do not say that they are the cause.
func (s *scope) setChanges(before poolv1.PoolConfiguration, handedOut *poolv1.HandedOutConfiguration) {
	from, to := s.config(before.Name), s.config(handedOut.Name)
	if from == nil || to == nil {
		return
	}
	changes, err := pool.ListChanges(from.Spec, to.Spec)
	if err != nil {
		return
	}
	changes = slices.Concat(pool.ListSourceChanges(before, s.pool.Status.Configuration), changes)
	handedOut.ChangeCount = ptr.To(int32(len(changes)))
	for _, change := range changes[:min(poolv1.MaxHistoryChanges, len(changes))] {
		handedOut.Changes = append(handedOut.Changes, rollout.Clean(change, maxChange))
	}
}

// maxChange is the maximum size of a change in the history of a pool in bytes.
const maxChange = 253

// setReady sets Ready from the other conditions: what is wrong comes before what takes time.
func (s *scope) setReady() {
	of := meta.FindStatusCondition(s.pool.Status.Conditions, poolv1.DegradedCondition)
	if of.Status == metav1.ConditionFalse {
		of = meta.FindStatusCondition(s.pool.Status.Conditions, poolv1.UpdatedCondition)
	}
	s.setCondition(poolv1.ReadyCondition, of.Type == poolv1.UpdatedCondition && of.Status == metav1.ConditionTrue, of.Reason, of.Message)
}

// setUpdated sets Updated and Updating. As in OpenShift, a paused pool is never Updating, and a pool is not Updated
// while one of its Nodes is not Ready. A pool that is done but for skipped hosts is neither.
func (s *scope) setUpdated(n counts) {
	c, target, paused := s.pool.Status.Configuration, s.target(), s.pool.Spec.IsPaused()
	s.hold = rollout.HoldOf(s.pool, time.Now())
	set := func(updated, updating bool, reason, message string) {
		message += n.exceptionsMessage(s.pool)
		s.setCondition(poolv1.UpdatedCondition, updated, reason, message)
		s.setCondition(poolv1.UpdatingCondition, updating, reason, message)
	}
	switch {
	case !c.IsDefined() && s.problem == nil:
		set(false, false, poolv1.RolloutPausedReason, "the pool is paused and what its Nodes run is not known yet: wait until the workload cluster "+
			"can be reached, or run "+rollout.Command("resume", s.pool)+" to hand out "+target)
	case !c.IsDefined():
		set(false, false, poolv1.NothingRenderedReason, "no configuration was rendered yet: see the condition "+poolv1.RenderDegradedCondition)
	case paused && c.Name != target:
		set(false, false, poolv1.RolloutPausedReason, fmt.Sprintf("the pool is paused and hands out %s, while %s waits: "+
			"run %s to hand it out%s", c.Name, target, rollout.Command("resume", s.pool), n.renewingAgentless()))
	case n.updated < n.total:
		reason, message := s.pendingReason(n), n.pendingMessage(s.pool)
		if reason == poolv1.RolloutBlockedReason {
			message = n.blockedMessage() + message
		}
		if len(n.waiting) > 0 {
			gate := rollout.HoldOfGates(s.pool)
			switch {
			case reason != poolv1.HostsPendingReason:
			case s.hold.Reason != "":
				reason = s.hold.Reason
			case gate != "" && s.hold.Why == "":
				reason = meta.FindStatusCondition(s.pool.Status.Conditions, poolv1.UpdateGatesOpenCondition).Reason
			}
			if why := cmp.Or(s.hold.Why, gate); why != "" {
				message += "; " + why
			}
		}
		set(false, !paused && reason != poolv1.HostsSkippedReason, reason, message)
	case n.ready < n.total:
		set(false, !paused, poolv1.HostsUnavailableReason, n.pendingMessage(s.pool))
	default:
		set(true, false, poolv1.AllHostsUpdatedReason, fmt.Sprintf("%d of %d hosts run %s", n.updated, n.total, target)+s.pinnedMessage()+n.agentlessMessage()+n.disksMessage()+n.freeMessage())
	}
}

// setDegraded sets RenderDegraded and NodeDegraded, and Degraded, which combines both.
func (s *scope) setDegraded(n counts) {
	reason, messages := poolv1.AsExpectedReason, []string{}
	if s.problem == nil {
		s.setCondition(poolv1.RenderDegradedCondition, false, poolv1.RenderedReason, s.renderedMessage())
	} else {
		reason, messages = s.problem.reason, append(messages, s.problem.message)
		s.setCondition(poolv1.RenderDegradedCondition, true, reason, s.problem.message)
	}
	if len(n.degraded) == 0 {
		s.setCondition(poolv1.NodeDegradedCondition, false, poolv1.AsExpectedReason, "no host of the pool needs a user to act")
	} else {
		message := fmt.Sprintf("%d of %d hosts need a user to act: %s", len(n.degraded), n.total, slices.Min(n.degraded))
		if len(n.degraded) > 1 {
			message = fmt.Sprintf("%s. For the others, see %s", strings.TrimSuffix(message, "."), rollout.Command("status", s.pool))
		}
		if messages = append(messages, message); s.problem == nil {
			reason = poolv1.HostsDegradedReason
		}
		s.setCondition(poolv1.NodeDegradedCondition, true, poolv1.HostsDegradedReason, message)
	}
	if len(messages) == 0 {
		messages = []string{"the pool is rendered, and none of its hosts needs a user to act"}
	}
	s.setCondition(poolv1.DegradedCondition, reason != poolv1.AsExpectedReason, reason, strings.Join(messages, "; "))
}

func (s *scope) renderedMessage() string {
	var kubelets string
	switch {
	case len(s.rendered.Kubelets) > 0:
		kubelets = " and spec.kubelet.configuration of " + strings.Join(s.rendered.Kubelets, " and ")
	case len(s.rendered.Source) == 0 && s.pool.Spec.MachineConfigSelector == nil:
		return s.rendered.Name + " is empty, because the pool selects no MachineConfig: set spec.machineConfigSelector"
	case len(s.rendered.Source) == 0:
		return s.rendered.Name + " is empty, because no MachineConfig is selected: give MachineConfigs the labels of spec.machineConfigSelector"
	}
	return fmt.Sprintf("%s from %d MachineConfig(s)%s", s.rendered.Name, len(s.rendered.Source), kubelets)
}

func (s *scope) setCondition(conditionType string, isTrue bool, reason, message string) {
	status := metav1.ConditionFalse
	if isTrue {
		status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&s.pool.Status.Conditions, metav1.Condition{
		Type: conditionType, Status: status, Reason: reason, Message: message, ObservedGeneration: s.pool.Generation,
	})
}

// replacementDelay is how long a Machine can be gone before its replacement exists. Cluster API creates it only then.
const replacementDelay = time.Minute

// setCapacity sets how many hosts the pool has when all are available. It grows with the hosts that join. It shrinks
// only if fewer Machines exist for longer than a replacement needs to be created: a host that is replaced counts until
// its replacement has joined, and a host that boots in addition does not. A host that is in another pool counts there.
func (s *scope) setCapacity(n counts, now time.Time) {
	capacity := &s.pool.Status.CapacityHostCount
	*capacity -= s.moved
	switch {
	case n.joined >= *capacity:
		*capacity = n.joined
	case n.total < *capacity:
		if s.cache.smallerSince.IsZero() {
			s.cache.smallerSince = now
		}
		if left := replacementDelay - now.Sub(s.cache.smallerSince); left > 0 {
			s.reconcileIn(left)
			return
		}
		*capacity = n.total
	}
	s.cache.smallerSince = time.Time{}
}

// maxReplaced is how many hosts that must be replaced are named in the status.
const maxReplaced = 10

// setPrediction predicts what the change to what the pool is to hand out next does to the running hosts that run
// something else. A paused pool has it too: so it is known before the rollout starts. Hosts with the same rendered
// config have the same prediction, so the cost grows with the number of these configs, and not with that of the hosts.
func (s *scope) setPrediction(n counts) {
	s.pool.Status.Prediction = poolv1.PoolPrediction{}
	if len(n.running) == 0 {
		return
	}
	target, hosts, replaced := s.target(), map[update.Effect]int32{}, []string(nil)
	for is, names := range n.running {
		effect := s.predict(is, target)
		hosts[effect] += int32(len(names))
		if effect == update.EffectReplace {
			replaced = append(replaced, names...)
		}
	}
	slices.Sort(replaced)
	s.pool.Status.Prediction = poolv1.PoolPrediction{
		Configuration: target,
		None:          ptr.To(hosts[update.EffectNone]), Reload: ptr.To(hosts[update.EffectReload]), Restart: ptr.To(hosts[update.EffectRestart]),
		Reboot: ptr.To(hosts[update.EffectReboot]), Replace: ptr.To(hosts[update.EffectReplace]), Unknown: ptr.To(hosts[unknownEffect]),
		ReplacedHosts: replaced[:min(maxReplaced, len(replaced))],
	}
}

// unknownEffect is the effect of a change that cannot be predicted, because a rendered config does not exist.
const unknownEffect update.Effect = ""

// prediction is a change of a host to a rendered config.
type prediction struct {
	from runs
	to   string
}

// predict predicts the effect of the change of a host to a rendered config. The result is remembered as long as no pool
// changes, because pools have the policies.
func (s *scope) predict(from runs, to string) update.Effect {
	version := ""
	for i := range s.pools {
		version += fmt.Sprintf("%s %d ", s.pools[i].UID, s.pools[i].Generation)
	}
	if s.cache.predictedWith != version {
		s.cache.predictedWith, s.cache.predictions = version, map[prediction]update.Effect{}
	}
	if effect, ok := s.cache.predictions[prediction{from, to}]; ok {
		return effect
	}
	before, after := s.config(from.configuration), s.config(to)
	if before == nil || after == nil {
		return unknownEffect
	}
	parent, _ := pool.ParentOf(s.pool, s.pools)
	isMoved, restart := renderedFor(before) != s.pool.Name, from.restart
	if isMoved && restart != update.RestartKernel { // what was requested for all hosts of the pool is not for it
		restart = update.RestartNothing
	}
	plan, err := pool.PlanUpdate(s.pool, parent, before.Spec, after.Spec, isMoved, restart, from.can)
	if err != nil {
		return unknownEffect
	}
	effect := plan.Effect()
	s.cache.predictions[prediction{from, to}] = effect
	return effect
}

// config returns a MachineConfig of the namespace, or nil. The cache does not have a rendered config that was just
// created: then it has only its spec.
func (s *scope) config(name string) *poolv1.MachineConfig {
	for i := range s.configs {
		if s.configs[i].Name == name {
			return &s.configs[i]
		}
	}
	if s.rendered != nil && s.rendered.Name == name && s.rendered.Spec.Config != nil {
		return &poolv1.MachineConfig{Spec: s.rendered.Spec}
	}
	return nil
}
