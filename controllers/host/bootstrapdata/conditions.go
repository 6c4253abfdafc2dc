package bootstrapdata

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/labels"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/access"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/excerpt"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/outlook"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/metrics"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/scope"
)

// obstacle returns the condition that reports why no data Secret can be created, yet or ever, or nil if there is no
// obstacle.
func obstacle(s *scope.Scope) *metav1.Condition {
	config, machine, cluster := s.Config, s.Machine, s.Cluster
	missing := func(reason, message string, args ...any) *metav1.Condition {
		return ptr.To(dataSecretMissing(reason, message, args...))
	}
	switch {
	case labels.IsMachinePoolOwned(config):
		return missing(bootstrapv1.MachinePoolNotSupportedReason,
			"a MachinePool owns this PoolbootConfig, and Poolboot does not support MachinePools: use a MachineDeployment")
	case machine == nil && !record.IsMachineless(config):
		return missing(bootstrapv1.WaitingForOwnerReason, "no Machine owns this PoolbootConfig yet")
	case machine != nil && util.IsControlPlaneMachine(machine) && !record.IsAdopted(config):
		return missing(bootstrapv1.ControlPlaneNotSupportedReason,
			"Machine %s is a control plane machine, which doesn't boot into a pool: use the bootstrap provider of the control plane provider, and adopt its Node", machine.Name)
	case !record.IsAdopted(config) && presetDataSecret(config, machine) != "":
		return missing(bootstrapv1.DataSecretPresetReason,
			"spec.bootstrap.dataSecretName of Machine %s is Secret %s, which Poolboot did not create: the host boots with that Secret; "+
				"to boot it into a pool, remove the field from the MachineDeployment and delete the Machine", machine.Name, presetDataSecret(config, machine))
	case cluster == nil:
		return missing(bootstrapv1.WaitingForClusterReason, "Cluster %s does not exist", s.ClusterName())
	case !ptr.Deref(cluster.Status.Initialization.InfrastructureProvisioned, false):
		return missing(bootstrapv1.WaitingForClusterInfrastructureReason, "infrastructure of Cluster %s is not provisioned yet", cluster.Name)
	case !conditions.IsTrue(cluster, clusterv1.ClusterControlPlaneInitializedCondition):
		return missing(bootstrapv1.WaitingForControlPlaneReason, "control plane of Cluster %s is not initialized yet", cluster.Name)
	}
	if err := access.ClusterOf(cluster).CheckNodeName(registration.Name(registration.Naming{Config: config, Machine: machine})); err != nil && !record.HasNode(config) {
		return missing(bootstrapv1.NodeNameReservedReason, "%s: %s", err, registration.Rename(config))
	}
	return nil
}

func dataSecretMissing(reason, message string, args ...any) metav1.Condition {
	return dataSecretCondition(metav1.ConditionFalse, reason, message, args...)
}

func dataSecretCondition(status metav1.ConditionStatus, reason, message string, args ...any) metav1.Condition {
	return metav1.Condition{
		Type:    bootstrapv1.DataSecretAvailableCondition,
		Status:  status,
		Reason:  reason,
		Message: fmt.Sprintf(message, args...),
	}
}

// setIgnitionSucceeded sets the condition IgnitionSucceeded from the failure that the host reported. Without a reported
// failure, there is no condition.
func setIgnitionSucceeded(config *bootstrapv1.PoolbootConfig) {
	failure := config.Status.Requests.IgnitionFailure
	succeeded := metav1.Condition{Type: bootstrapv1.IgnitionSucceededCondition, Status: metav1.ConditionTrue, Reason: bootstrapv1.IgnitionSucceededReason}
	switch {
	case failure.Stage == "" || record.IsVersionSkew(config):
		conditions.Delete(config, succeeded.Type)
		return
	case record.HasJoined(config):
	case record.IsIgnitionFailed(config):
		succeeded.Status, succeeded.Reason = metav1.ConditionFalse, bootstrapv1.IgnitionFailedReason
		succeeded.Message = ignitionFailed(failure)
	default:
		succeeded.Status, succeeded.Reason = metav1.ConditionUnknown, bootstrapv1.IgnitionRetriedReason
		succeeded.Message = "the host has requested its configuration again after Ignition failed"
	}
	conditions.Set(config, succeeded)
}

// setVersionsFit sets the condition VersionsFit while the host reports that it does not join because of its versions.
func setVersionsFit(config *bootstrapv1.PoolbootConfig) {
	if !record.IsVersionSkew(config) || !record.IsIgnitionFailed(config) || record.HasJoined(config) {
		conditions.Delete(config, bootstrapv1.VersionsFitCondition)
		return
	}
	conditions.Set(config, metav1.Condition{
		Type:   bootstrapv1.VersionsFitCondition,
		Status: metav1.ConditionFalse,
		Reason: bootstrapv1.VersionSkewReason,
		Message: fmt.Sprintf("the host does not join, because %s: provision it with an image that fits, or upgrade the control plane; the host checks again every 30 seconds",
			excerpt.Of(config.Status.Requests.IgnitionFailure.Log, maxLogLine)),
	})
}

// maxLogLine is the maximum length of the line of a log in a message. The API server refuses events with more than
// 1,024 bytes.
const maxLogLine = 512

// ignitionFailed returns the message about a failure, with the last line of its log.
func ignitionFailed(failure bootstrapv1.IgnitionFailure) string {
	last := ""
	if line := failure.Log[strings.LastIndex(failure.Log, "\n")+1:]; line != "" {
		last = fmt.Sprintf(" (%s)", excerpt.Of(line, maxLogLine))
	}
	return fmt.Sprintf("the host reports that Ignition failed in its stage %s%s: see status.requests.ignitionFailure.log, correct the "+
		"MachineConfigs of the pool, extraConfig or the host, and boot the host again", failure.Stage, last)
}

// reportFirstBoot creates the events for a failure of the first boot that the host reports, and for its resolution.
func (r *Phases) reportFirstBoot(kind string, before, after *bootstrapv1.PoolbootConfig) {
	had, has := conditions.Get(before, kind), conditions.Get(after, kind)
	switch {
	case outlook.IsWrong(has) && (!outlook.IsWrong(had) || had.Message != has.Message):
		metrics.StageBlocked(after, record.StageJoining, has.Reason)
		r.event(after, corev1.EventTypeWarning, has.Reason, "Boot", "%s", has.Message)
	case had != nil && had.Status != metav1.ConditionTrue && has != nil && has.Status == metav1.ConditionTrue:
		r.event(after, corev1.EventTypeNormal, has.Reason, "Boot", "the host has joined after a failure of Ignition")
	}
}
