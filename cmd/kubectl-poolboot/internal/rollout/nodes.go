package rollout

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hoststate"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// Annotations by which OpenShift's operator and its daemons tell each other what a Node should run and runs.
const (
	openShiftCurrent = "machineconfiguration.openshift.io/currentConfig"
	openShiftDesired = "machineconfiguration.openshift.io/desiredConfig"
	openShiftState   = "machineconfiguration.openshift.io/state"
	openShiftReason  = "machineconfiguration.openshift.io/reason"
)

// Values of openShiftState that count.
const (
	openShiftDone           = "Done"
	openShiftDegraded       = "Degraded"
	openShiftUnreconcilable = "Unreconcilable"
)

// speaksOpenShift reports whether the annotations of OpenShift count for a Node of a pool. If it has those of both
// projects or of neither, the pool decides.
func speaksOpenShift(node *corev1.Node, p *poolv1.MachineConfigPool) bool {
	hasAny := func(keys ...string) bool {
		for _, key := range keys {
			if _, has := node.Annotations[key]; has {
				return true
			}
		}
		return false
	}
	theirs := hasAny(openShiftCurrent, openShiftDesired, openShiftState)
	if ours := hasAny(append([]string{agentv1.DesiredAnnotation}, agentv1.Reports...)...); ours == theirs {
		return input.IsOpenShift(p.TypeMeta)
	}
	return theirs
}

// openShiftMember returns a Node as OpenShift's operator sees it. A Node that is not done and did not fail counts as
// one in an update, also without annotations. It gets another config in its turn like the others.
func openShiftMember(node *corev1.Node, target string) member {
	current, desired, state := node.Annotations[openShiftCurrent], node.Annotations[openShiftDesired], node.Annotations[openShiftState]
	isDone := current != "" && current == desired && state == openShiftDone
	hasFailed := current != desired && (state == openShiftDegraded || state == openShiftUnreconcilable)
	notReady, reason := describeNotReady(node), node.Annotations[openShiftReason]
	isReady := notReady == ""
	m := member{
		Host: rollout.Host{Name: node.Name, Zone: node.Labels[corev1.LabelTopologyZone], CreationTime: node.CreationTimestamp.Time,
			Desired: desired, Target: target, IsUnavailable: !isReady, IsExcluded: target == "" || !isReady},
		isUnavailable: !isReady || !isDone && !hasFailed,
	}
	switch says := describeState(node); {
	case hasFailed && desired == target:
		m.Progress, m.place = rollout.Failed, withDetail("its update failed: its state is "+state, reason)
		if !isReady { // counts as both
			m.extra = 1
		}
	case !isReady:
		m.place = notReady
	case !m.isUnavailable:
	case desired != target && target != "": // counts, and gets another config in its turn
		m.takesTurn, m.extra = true, 1
		m.place = withDetail(says+", so it counts as being updated and gets another config in its turn", reason)
		return m // it can be next
	case current == desired:
		m.Progress, m.place = rollout.InUpdate, withDetail(says+", so it counts as being updated", reason)
	default:
		m.Progress, m.place = rollout.InUpdate, "it is in an update: "+says
	}
	m.note = m.place
	return m
}

// describeState returns the state of a Node with OpenShift's annotations, or which of them is missing.
func describeState(node *corev1.Node) string {
	for _, key := range []string{openShiftCurrent, openShiftDesired, openShiftState} {
		if node.Annotations[key] == "" {
			return fmt.Sprintf("its annotation %s is missing", key)
		}
	}
	return "its state is " + node.Annotations[openShiftState]
}

// describeNotReady returns why OpenShift's operator does not count a Node as ready, or "": it is cordoned, or a
// condition says so. A condition that does not exist says nothing.
func describeNotReady(node *corev1.Node) string {
	why := describeCondition(node, map[corev1.NodeConditionType]corev1.ConditionStatus{
		corev1.NodeReady: corev1.ConditionTrue, corev1.NodeDiskPressure: corev1.ConditionFalse, corev1.NodeNetworkUnavailable: corev1.ConditionFalse,
	})
	if why == "" && node.Spec.Unschedulable {
		return describeCordoned(node)
	}
	return why
}

// poolbootMember returns a Node as the manager sees it that told the Node what to run. The file contains no record of
// what it should run, so that is what it was told. If the annotation with the name of that config is missing, it is the
// config that the host runs, provided that the host has done what it was told.
func poolbootMember(p *poolv1.MachineConfigPool, pools []poolv1.MachineConfigPool, node *corev1.Node) member {
	config := &bootstrapv1.PoolbootConfig{}
	config.Name = node.Name
	config.Status.PoolRole = p.Spec.PoolRole
	config.Status.NodeRef = bootstrapv1.NodeReference{Name: node.Name, UID: string(node.UID)}
	config.Status.Update.DesiredRevision = node.Annotations[agentv1.DesiredAnnotation]
	config.Status.Update.Desired.Name = node.Annotations[agentv1.DesiredConfigAnnotation]
	h := hoststate.Of(pools, config, nil, node)
	told := &config.Status.Update.Desired.Name
	if *told == "" && h.Report.IsDone(h.Told()) {
		*told = node.Annotations[poolv1.NodeCurrentConfigAnnotation]
	}
	m := memberOf(p, h)
	if m.note == "" && *told == "" {
		m.note = fmt.Sprintf("its annotation %s is missing, so it is not known which config it was told to run: use the Node as kubectl get -o yaml prints it",
			agentv1.DesiredConfigAnnotation)
	}
	return m
}

// memberOf returns a host of a pool. A host that was told to run the rendered config that the pool hands out has its
// target.
func memberOf(p *poolv1.MachineConfigPool, h *hoststate.Host) member {
	configuration, told := p.Status.Configuration.Name, h.Config.Status.Update.Desired.Name
	target := configuration
	if told == configuration {
		target = h.Desired()
	}
	if told == "" {
		target = ""
	}
	m := member{Host: h.ForRollout(p, target)}
	m.isUnavailable = m.IsActive()
	m.place = describePlace(&m.Host, h)
	if m.place != aboutToBeTold {
		m.note = m.place
	}
	switch {
	case h.IsUnrecorded:
		m.note = "the record of its Node is lost: see the condition " + bootstrapv1.NodeInPoolCondition + " of the PoolbootConfig"
	case !h.HasAgent():
		m.note = "it runs no agent"
	case h.Desired() == "":
		m.note = "it was not told yet what it runs"
	}
	return m
}
