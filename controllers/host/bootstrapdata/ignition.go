package bootstrapdata

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/excerpt"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/outlook"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/metrics"
)

// setIgnitionSucceeded sets the condition IgnitionSucceeded from the failure that the host reported. Without a reported
// failure, there is no condition.
func setIgnitionSucceeded(config *bootstrapv1.PoolbootConfig) {
	failure := config.Status.Requests.IgnitionFailure
	succeeded := metav1.Condition{Type: bootstrapv1.IgnitionSucceededCondition, Status: metav1.ConditionTrue, Reason: bootstrapv1.IgnitionSucceededReason}
	switch {
	case failure.Stage == "":
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

// reportIgnition creates the events for a failure of Ignition that the host reports, and for its resolution.
func (r *Phases) reportIgnition(before, after *bootstrapv1.PoolbootConfig) {
	had, has := conditions.Get(before, bootstrapv1.IgnitionSucceededCondition), conditions.Get(after, bootstrapv1.IgnitionSucceededCondition)
	switch {
	case outlook.IsWrong(has) && (!outlook.IsWrong(had) || had.Message != has.Message):
		metrics.StageBlocked(after, record.StageJoining, has.Reason)
		r.event(after, corev1.EventTypeWarning, has.Reason, "Boot", "%s", has.Message)
	case had != nil && had.Status != metav1.ConditionTrue && has != nil && has.Status == metav1.ConditionTrue:
		r.event(after, corev1.EventTypeNormal, has.Reason, "Boot", "the host has joined after a failure of Ignition")
	}
}
