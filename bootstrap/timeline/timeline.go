// Package timeline reads from a PoolbootConfig how far the boot of its host is, and when it took which step. It is
// pure, and the one vocabulary of metrics, kubectl poolboot and documentation.
package timeline

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/cure"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hostaccess"
)

// Step is a moment of a boot.
type Step string

// Steps, in the order in which they happen. A boot from an inline data Secret has no BootRequested and no ConfigServed.
const (
	Created           Step = "Created"
	DataSecretCreated Step = "DataSecretCreated"
	HostChosen        Step = "HostChosen"
	BootRequested     Step = "BootRequested"
	BootPrepared      Step = "BootPrepared"
	ConfigServed      Step = "ConfigServed"
	KubeletRegistered Step = "KubeletRegistered"
	NodeReady         Step = "NodeReady"
	TokenRevoked      Step = "TokenRevoked"
)

// Moment is when a step was taken.
type Moment struct {
	Step Step      `json:"step"`
	Time time.Time `json:"time"`
}

// Of returns the steps that were taken, in their order. The kubelet's is by its host's clock, the one of the data
// Secret in whole seconds. Steps of an earlier try are left out: a host that asks again has no prepared configuration,
// and one that was taken back has not asked.
func Of(config *bootstrapv1.PoolbootConfig) []Moment {
	boot := config.Status.Boot
	moments := []Moment{{Created, config.CreationTimestamp.Time}}
	c := conditions.Get(config, bootstrapv1.DataSecretAvailableCondition)
	if c != nil && c.Status == metav1.ConditionTrue && c.Reason != bootstrapv1.HostEnrolledReason {
		moments = append(moments, Moment{DataSecretCreated, c.LastTransitionTime.Time})
	}
	if boot.HostChosenTime != nil {
		moments = append(moments, Moment{HostChosen, boot.HostChosenTime.Time})
	}
	isGone, requested := isWithdrawn(config), Requested(config)
	if !requested.IsZero() && !isGone {
		moments = append(moments, Moment{BootRequested, requested})
	}
	for _, taken := range []struct {
		step   Step
		time   *metav1.MicroTime
		ofATry bool
	}{
		{BootPrepared, boot.PreparedTime, true},
		{ConfigServed, boot.ServedTime, true},
		{KubeletRegistered, (*metav1.MicroTime)(boot.KubeletRegisteredTime), false},
		{NodeReady, boot.NodeReadyTime, false},
		{TokenRevoked, boot.TokenRevokedTime, false},
	} {
		if taken.time == nil || taken.ofATry && (isGone || taken.time.Time.Before(requested)) {
			continue
		}
		moments = append(moments, Moment{taken.step, taken.time.Time})
	}
	return moments
}

// Requested is when the host first asked for the configuration that it has or waits for; zero when it has not. It is
// the last request while only that is on record, as by a config server of an earlier version, and when the first is
// said to be later, as by one whose clock is ahead. A boot begins with its creation.
func Requested(config *bootstrapv1.PoolbootConfig) time.Time {
	boot := config.Status.Boot
	first, last := boot.FirstRequestedTime, boot.RequestedTime
	switch {
	case last == nil:
		return time.Time{}
	case first == nil, first.After(last.Time), asksAgain(config) && boot.PreparedTime != nil && !first.After(boot.PreparedTime.Time):
		return last.Time
	case first.Time.Before(config.CreationTimestamp.Time):
		return config.CreationTimestamp.Time
	}
	return first.Time
}

// asksAgain says whether the host asked since its configuration was prepared last.
func asksAgain(config *bootstrapv1.PoolbootConfig) bool {
	boot := config.Status.Boot
	return boot.RequestedTime != nil && (boot.PreparedTime == nil || boot.RequestedTime.After(boot.PreparedTime.Time))
}

// isWithdrawn says whether what was prepared was taken back, because the host is wiped or another one takes its place,
// and no host has asked since.
func isWithdrawn(config *bootstrapv1.PoolbootConfig) bool {
	prepared := conditions.Get(config, bootstrapv1.BootPreparedCondition)
	return config.Status.Boot.PreparedTime != nil && !asksAgain(config) &&
		prepared != nil && prepared.Status == metav1.ConditionUnknown && prepared.Reason == bootstrapv1.WaitingForHostReason
}

// Stage is where a boot is.
type Stage string

// Stages of a boot, in their order, and those after it.
const (
	// Pending: there is no data Secret yet.
	Pending Stage = "Pending"
	// WaitingForHost: the data Secret stands, and the infrastructure provider has chosen no host.
	WaitingForHost Stage = "WaitingForHost"
	// Provisioning: a host was chosen, and has not asked for its configuration.
	Provisioning Stage = "Provisioning"
	// Preparing: the host asked; its Node, join credential or configuration does not stand yet.
	Preparing Stage = "Preparing"
	// Serving: all stands, and the host has not been handed its configuration.
	Serving Stage = "Serving"
	// Joining: the host has its configuration, and its Node has not been Ready in its pool.
	Joining Stage = "Joining"

	// Ready: the boot is over and the Node is Ready in its pool.
	Ready Stage = "Ready"
	// NotReady: the boot is over and the Node is not Ready, not in its pool or not there.
	NotReady Stage = "NotReady"
	// Deleting: the PoolbootConfig is being deleted.
	Deleting Stage = "Deleting"
)

// ends is the step that ends each stage of a boot.
var ends = []struct {
	stage Stage
	by    Step
}{
	{Pending, DataSecretCreated},
	{WaitingForHost, HostChosen},
	{Provisioning, BootRequested},
	{Preparing, BootPrepared},
	{Serving, ConfigServed},
	{Joining, NodeReady},
}

// Stages are the stages of a boot, in their order.
func Stages() []Stage {
	stages := make([]Stage, len(ends))
	for i, end := range ends {
		stages[i] = end.stage
	}
	return stages
}

// StageOf returns where a boot is, and since when.
func StageOf(config *bootstrapv1.PoolbootConfig) (Stage, time.Time) {
	inPool := conditions.Get(config, bootstrapv1.NodeInPoolCondition)
	switch {
	case config.DeletionTimestamp != nil:
		return Deleting, config.DeletionTimestamp.Time
	case inPool != nil && inPool.Status == metav1.ConditionTrue:
		return Ready, inPool.LastTransitionTime.Time
	case inPool != nil && hostaccess.HasJoined(config) && config.Status.Boot.CredentialID == "": // until then its end is being put on record
		return NotReady, inPool.LastTransitionTime.Time
	}
	if asksAgain(config) {
		return Preparing, Requested(config)
	}
	if isWithdrawn(config) {
		return WaitingForHost, conditions.Get(config, bootstrapv1.BootPreparedCondition).LastTransitionTime.Time
	}
	taken := Of(config)
	last := taken[len(taken)-1]
	stage := Joining
	for _, end := range ends {
		if rank(end.by) > rank(last.Step) {
			stage = end.stage
			break
		}
	}
	switch {
	case config.Spec.IsInline() && last.Step == BootPrepared:
		stage = Joining // nobody serves anything
	case last.Step == Created && conditions.GetReason(config, bootstrapv1.DataSecretAvailableCondition) == bootstrapv1.HostEnrolledReason:
		stage = Provisioning // the host needs no data Secret, and is the one that enrolled
	}
	return stage, last.Time
}

// rank is a step's place in the order.
func rank(step Step) int {
	return slices.Index([]Step{Created, DataSecretCreated, HostChosen, BootRequested, BootPrepared, ConfigServed, KubeletRegistered, NodeReady, TokenRevoked}, step)
}

// Took is how long each stage of a boot that is over took. Together they are the time from the creation to the last
// step. A stage without its steps counts for the next one. A step that was repeated after the next one, as when the
// data Secret is restored while the host boots, was first taken before that one.
func Took(config *bootstrapv1.PoolbootConfig) map[Stage]time.Duration {
	at := map[Step]time.Time{}
	for _, moment := range Of(config) {
		at[moment.Step] = moment.Time
	}
	created := at[Created]
	var limit time.Time
	for _, end := range slices.Backward(ends) {
		to, is := at[end.by]
		switch {
		case !is:
			continue
		case to.Before(created): // by another clock
			to = created
		case !limit.IsZero() && to.After(limit):
			to = limit
		}
		at[end.by], limit = to, to
	}
	took := map[Stage]time.Duration{}
	from := created
	for _, end := range ends {
		if to, is := at[end.by]; is {
			took[end.stage], from = to.Sub(from), to
		}
	}
	return took
}

// Message says what a boot waits for or what is wrong, in the words of the condition that tells it. While the Cluster
// is paused nobody writes these conditions, so that of a boot that is under way is told as what was before.
func Message(config *bootstrapv1.PoolbootConfig) string {
	message := messageOf(config)
	paused := conditions.Get(config, clusterv1.PausedCondition)
	if stage, _ := StageOf(config); paused == nil || paused.Status != metav1.ConditionTrue || slices.Contains([]Stage{Ready, NotReady, Deleting}, stage) {
		return message
	}
	return "Paused: " + paused.Message + ". Before: " + message
}

// messageOf is Message without regard to a pause.
func messageOf(config *bootstrapv1.PoolbootConfig) string {
	if ready := conditions.Get(config, clusterv1.ReadyCondition); ready != nil && ready.Status == metav1.ConditionFalse {
		return ready.Message
	}
	message := ""
	for _, kind := range []string{bootstrapv1.PoolDecidedCondition, bootstrapv1.DataSecretAvailableCondition,
		bootstrapv1.BootPreparedCondition, bootstrapv1.NodeInPoolCondition} {
		c := conditions.Get(config, kind)
		if c != nil && c.Status != metav1.ConditionTrue {
			return c.Message
		}
		if c != nil {
			message = c.Message
		}
	}
	if stage, _ := StageOf(config); stage == WaitingForHost {
		if cure.KindOf(config) != cure.Machine {
			return fmt.Sprintf("%s is not being installed yet: see its state and its events", cure.Whose(config))
		}
		return "no host is chosen yet: see the Machine and its Metal3Machine, and which BareMetalHosts are available"
	}
	return message
}
