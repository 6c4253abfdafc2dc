package pool

import "fmt"

// RenderError says which MachineConfig can't be used, and where in it.
type RenderError struct {
	// MachineConfig is the MachineConfig's name.
	MachineConfig string
	// Path is the field, for example spec.config; empty when it is the object itself. Err leads further into it.
	Path string
	// Err is what is wrong: an *ignition.ParseError or an *ignition.GuardError, where those apply.
	Err error
}

// Error names the MachineConfig, the field and what is wrong.
func (e *RenderError) Error() string {
	if e.Path == "" {
		return fmt.Sprintf("MachineConfig %q %v", e.MachineConfig, e.Err)
	}
	return fmt.Sprintf("MachineConfig %q: %s: %v", e.MachineConfig, e.Path, e.Err)
}

// Unwrap returns what is wrong with the MachineConfig.
func (e *RenderError) Unwrap() error { return e.Err }
