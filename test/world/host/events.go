package host

import (
	"slices"
	"time"
)

// Step is something that happens in a host's boot.
type Step string

// The steps of a boot, in their order.
const (
	// PoweredOn is the begin of a boot; the disk is written by then.
	PoweredOn Step = "PoweredOn"
	// IgnitionStarted is the begin of Ignition's fetch stage, on the first boot only.
	IgnitionStarted Step = "IgnitionStarted"
	// ConfigFetched is when Ignition had the whole configuration, verified.
	ConfigFetched Step = "ConfigFetched"
	// FilesWritten is when Ignition's files stage was done.
	FilesWritten Step = "FilesWritten"
	// UnitsStarted is when the system begins to start its units.
	UnitsStarted Step = "UnitsStarted"
	// UnitStarted is when a unit became active; the detail is its name.
	UnitStarted Step = "UnitStarted"
	// UnitFailed is when a unit failed, also when it is to be started again; the detail is its name and the error.
	UnitFailed Step = "UnitFailed"
	// KubeletStarted is when the kubelet's program was started; the detail is the unit's name.
	KubeletStarted Step = "KubeletStarted"
	// BootstrapDone is when the sentinel file of the Cluster API contract was there.
	BootstrapDone Step = "BootstrapDone"
	// PoweredOff is when the last process was gone; the detail is the error if the boot failed.
	PoweredOff Step = "PoweredOff"
)

// Event is a step at a time.
type Event struct {
	Step Step
	Time time.Time
	// Detail says more where the step has more, for people.
	Detail string
}

// Events are the steps so far, of all boots, oldest first.
func (h *Host) Events() []Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.events)
}

// When is the time of the last such step, zero if there was none.
func (h *Host) When(step Step) time.Time {
	for _, event := range slices.Backward(h.Events()) {
		if event.Step == step {
			return event.Time
		}
	}
	return time.Time{}
}

func (h *Host) happened(step Step, detail string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, Event{Step: step, Time: time.Now(), Detail: detail})
}
