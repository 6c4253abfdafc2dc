package baremetal

import (
	"slices"
	"time"
)

// Step is a step of a host's boot.
type Step string

// The steps of a boot in their order.
const (
	// PoweredOn is the start of a boot.
	PoweredOn Step = "PoweredOn"
	// IgnitionStarted is the start of Ignition's fetch stage, in the first boot only.
	IgnitionStarted Step = "IgnitionStarted"
	// ConfigFetched is when Ignition has fetched and verified the complete configuration.
	ConfigFetched Step = "ConfigFetched"
	// FilesWritten is when Ignition's files stage has completed.
	FilesWritten Step = "FilesWritten"
	// UnitsStarted is when systemd starts.
	UnitsStarted Step = "UnitsStarted"
	// PoweredOff is when the last process has exited. The detail is the error if the boot failed.
	PoweredOff Step = "PoweredOff"
)

// Event is a step at a time.
type Event struct {
	Step Step
	Time time.Time
	// Detail is additional text for some steps.
	Detail string
}

// Events returns the steps of all boots so far, the oldest first.
func (h *Host) Events() []Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.events)
}

// When returns the time of the last event of a step, or zero.
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
