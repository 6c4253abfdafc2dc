package site

import (
	"time"

	"sigs.k8s.io/cluster-api/util"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
)

// UpdateStage is a stage in the update of a running host.
type UpdateStage string

// Stages of an update that reboots, in their order. Each ends as its name says.
const (
	// Told: the Node has the new revision.
	Told UpdateStage = "told"
	// Downloaded: the agent has the assignment and the configuration, and knows what to do.
	Downloaded UpdateStage = "downloaded"
	// Drained: the manager has cordoned and drained the Node.
	Drained UpdateStage = "drained"
	// Applied: the agent has changed the files, and the host reboots.
	Applied UpdateStage = "applied"
	// Rebooted: the agent runs again.
	Rebooted UpdateStage = "rebooted"
	// Verified: the Node was Ready for minReadySeconds, and the update is committed.
	Verified UpdateStage = "verified"
	// Released: the Node can get Pods.
	Released UpdateStage = "released"
)

// UpdateStages are all stages in their order.
var UpdateStages = []UpdateStage{Told, Downloaded, Drained, Applied, Rebooted, Verified, Released}

// StagesOf returns when a Node reached each stage of its update to the last revision in its versions.
func StagesOf(versions []NodeVersion) map[UpdateStage]time.Time {
	stages := map[UpdateStage]time.Time{}
	if len(versions) == 0 {
		return stages
	}
	told := versions[len(versions)-1].Node.Annotations[agentv1.DesiredAnnotation]
	for _, version := range versions {
		annotations := version.Node.Annotations
		if annotations[agentv1.DesiredAnnotation] != told {
			continue
		}
		state := agentv1.State(annotations[agentv1.StateAnnotation])
		if annotations[agentv1.TargetAnnotation] != told {
			state = ""
		}
		for stage, has := range map[UpdateStage]bool{
			Told: true, Downloaded: state == agentv1.Draining, Drained: annotations[agentv1.DrainedAnnotation] == told,
			Applied: state == agentv1.Rebooting, Rebooted: state == agentv1.Verifying, Verified: state == agentv1.Done,
			Released: state == agentv1.Done && !version.Node.Spec.Unschedulable && util.IsNodeReady(version.Node),
		} {
			if _, before := stages[stage]; has && !before {
				stages[stage] = version.Seen
			}
		}
	}
	return stages
}
