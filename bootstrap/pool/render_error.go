package pool

import "fmt"

// RenderError is the error for a MachineConfig that can't be rendered.
type RenderError struct {
	// MachineConfig is the MachineConfig's name.
	MachineConfig string
	// Path is the field, for example spec.config, or empty for the object itself. Err names the place within the field.
	Path string
	// Err is what is wrong, for example an *ignition.ParseError or an *ignition.GuardError.
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
