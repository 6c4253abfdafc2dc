package record

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
)

// Step is a step of a boot. Metrics, kubectl poolboot and the documentation use the same names.
type Step string

// Steps, in the order in which they happen. A boot from an inline data Secret has no BootRequested and no ConfigServed.
const (
	StepCreated           Step = "Created"
	StepDataSecretCreated Step = "DataSecretCreated"
	StepHostChosen        Step = "HostChosen"
	StepBootRequested     Step = "BootRequested"
	StepBootPrepared      Step = "BootPrepared"
	StepConfigServed      Step = "ConfigServed"
	StepKubeletRegistered Step = "KubeletRegistered"
	StepNodeReady         Step = "NodeReady"
	StepTokenRevoked      Step = "TokenRevoked"
)

// Moment is a step and its time.
type Moment struct {
	Step Step      `json:"step"`
	Time time.Time `json:"time"`
}

// Moments returns the steps that were taken, in their order. The time of KubeletRegistered is from the clock of the
// host, and that of DataSecretCreated is in whole seconds. Steps of an earlier attempt are omitted: a host that sends
// another boot request has no prepared configuration, and after a withdrawal there is no boot request.
func Moments(config *bootstrapv1.PoolbootConfig) []Moment {
	boot := config.Status.Boot
	moments := []Moment{{StepCreated, config.CreationTimestamp.Time}}
	c := conditions.Get(config, bootstrapv1.DataSecretAvailableCondition)
	if c != nil && c.Status == metav1.ConditionTrue && !isDataSecretUnnecessary(config) {
		moments = append(moments, Moment{StepDataSecretCreated, c.LastTransitionTime.Time})
	}
	if boot.HostChosenTime != nil {
		moments = append(moments, Moment{StepHostChosen, boot.HostChosenTime.Time})
	}
	isWithdrawn, requested := IsWithdrawn(config), FirstRequestTime(config)
	if !requested.IsZero() && !isWithdrawn {
		moments = append(moments, Moment{StepBootRequested, requested})
	}
	for _, taken := range []struct {
		step      Step
		time      *metav1.MicroTime
		ofAttempt bool
	}{
		{StepBootPrepared, boot.PreparedTime, true},
		{StepConfigServed, config.Status.Requests.ServedTime, true},
		{StepKubeletRegistered, (*metav1.MicroTime)(boot.KubeletRegisteredTime), false},
		{StepNodeReady, boot.NodeReadyTime, false},
		{StepTokenRevoked, boot.TokenRevokedTime, false},
	} {
		if taken.time == nil || taken.ofAttempt && (isWithdrawn || IsRequestPending(config)) {
			continue
		}
		moments = append(moments, Moment{taken.step, taken.time.Time})
	}
	return moments
}

// FirstRequestTime returns the time when the host first requested the configuration that it has or waits for. It is
// zero if there is no boot request. It is the time of the last request if only that is on record, as with an earlier
// version of the config server, or if the recorded first request is later, because the clock of a config server is
// ahead. It is never before the creation of the PoolbootConfig.
func FirstRequestTime(config *bootstrapv1.PoolbootConfig) time.Time {
	first, last, prepared := config.Status.Requests.FirstRequestedTime, config.Status.Requests.RequestedTime, config.Status.Boot.PreparedTime
	switch {
	case last == nil:
		return time.Time{}
	case first == nil, first.After(last.Time), IsRequestPending(config) && prepared != nil && !first.After(prepared.Time):
		return last.Time
	case first.Time.Before(config.CreationTimestamp.Time):
		return config.CreationTimestamp.Time
	}
	return first.Time
}

// isDataSecretUnnecessary reports whether it is on record that the host needs no data Secret, because it enrolled.
func isDataSecretUnnecessary(config *bootstrapv1.PoolbootConfig) bool {
	return conditions.GetReason(config, bootstrapv1.DataSecretAvailableCondition) == bootstrapv1.HostEnrolledReason
}
