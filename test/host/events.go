package host

import (
	"slices"
	"time"
)

// Step is something that happens to every host once a boot.
type Step string

// The steps of a boot, in their order.
const (
	PoweredOn       Step = "PoweredOn"
	IgnitionStarted Step = "IgnitionStarted"
	ConfigFetched   Step = "ConfigFetched"
	FilesWritten    Step = "FilesWritten"
	UnitsStarted    Step = "UnitsStarted"
	UnitStarted     Step = "UnitStarted"
	UnitFailed      Step = "UnitFailed"
	KubeletStarted  Step = "KubeletStarted"
	BootstrapDone   Step = "BootstrapDone"
	PoweredOff      Step = "PoweredOff"
)

// Event is a step at a time.
type Event struct {
	Step Step
	Time time.Time
	// Detail is the unit's name or the error, for people.
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
