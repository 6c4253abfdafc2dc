// Package timeline reads from a PoolbootConfig how far the boot of its host is, and when it took which step. It is pure, and
// the one vocabulary of metrics, kubectl poolboot and documentation.
package timeline

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
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

// Of returns the steps that were taken, in their order. The kubelet's is by its host's clock, the one of the data Secret in
// whole seconds.
func Of(config *bootstrapv1.PoolbootConfig) []Moment {
	boot := config.Status.Boot
	moments := []Moment{{Created, config.CreationTimestamp.Time}}
	if c := conditions.Get(config, bootstrapv1.DataSecretAvailableCondition); c != nil && c.Status == metav1.ConditionTrue {
		moments = append(moments, Moment{DataSecretCreated, c.LastTransitionTime.Time})
	}
	for _, taken := range []struct {
		step Step
		time *metav1.MicroTime
	}{
		{HostChosen, boot.HostChosenTime},
		{BootRequested, boot.RequestedTime},
		{BootPrepared, boot.PreparedTime},
		{ConfigServed, boot.ServedTime},
		{KubeletRegistered, (*metav1.MicroTime)(boot.KubeletRegisteredTime)},
		{NodeReady, boot.NodeReadyTime},
		{TokenRevoked, boot.TokenRevokedTime},
	} {
		if taken.time != nil {
			moments = append(moments, Moment{taken.step, taken.time.Time})
		}
	}
	return moments
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

// StageOf returns where a boot is, and since when.
func StageOf(config *bootstrapv1.PoolbootConfig) (Stage, time.Time) {
	inPool := conditions.Get(config, bootstrapv1.NodeInPoolCondition)
	switch {
	case config.DeletionTimestamp != nil:
		return Deleting, config.DeletionTimestamp.Time
	case inPool != nil && inPool.Status == metav1.ConditionTrue:
		return Ready, inPool.LastTransitionTime.Time
	case inPool != nil && config.Annotations[bootstrapv1.TokenHashAnnotation] == bootstrapv1.TokenRevoked:
		return NotReady, inPool.LastTransitionTime.Time
	}
	taken := Of(config)
	last := taken[len(taken)-1]
	if asked := config.Status.Boot.RequestedTime; asked != nil && asked.After(last.Time) {
		return Preparing, asked.Time // again
	}
	stage := Joining
	for _, end := range ends {
		if rank(end.by) > rank(last.Step) {
			stage = end.stage
			break
		}
	}
	if config.Spec.ConfigSource.Inline != nil && last.Step == BootPrepared {
		stage = Joining // nobody serves anything
	}
	return stage, last.Time
}

// rank is a step's place in the order.
func rank(step Step) int {
	return slices.Index([]Step{Created, DataSecretCreated, HostChosen, BootRequested, BootPrepared, ConfigServed, KubeletRegistered, NodeReady, TokenRevoked}, step)
}

// Took is how long each stage of a boot that is over took. A stage without its steps is left out, and so is one whose steps
// came in another order: a host asked again, or was served before it was written down that all stands.
func Took(config *bootstrapv1.PoolbootConfig) map[Stage]time.Duration {
	at := map[Step]time.Time{}
	for _, moment := range Of(config) {
		at[moment.Step] = moment.Time
	}
	took := map[Stage]time.Duration{}
	from := at[Created]
	for _, end := range ends {
		to, is := at[end.by]
		if !is {
			continue
		}
		if !to.Before(from) {
			took[end.stage] = to.Sub(from)
		}
		from = to
	}
	return took
}

// Message says what a boot waits for or what is wrong, in the words of the condition that tells it. While the Cluster is paused nobody
// writes these conditions, so that of a boot that is under way is told as what was before.
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
		return "no host is chosen yet: see the Machine and its Metal3Machine, and which BareMetalHosts are available"
	}
	return message
}
