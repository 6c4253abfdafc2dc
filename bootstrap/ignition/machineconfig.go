package ignition

// MachineConfigFile is the content of the file MachineConfigPath, in JSON: the parts of a rendered config that Ignition
// can't express, for the agent of the operating system.
type MachineConfigFile struct {
	// Name is the name of the rendered config.
	Name            string   `json:"name"`
	KernelType      string   `json:"kernelType"`
	Extensions      []string `json:"extensions"`
	FIPS            bool     `json:"fips"`
	OSImageURL      string   `json:"osImageURL"`
	KernelArguments []string `json:"kernelArguments"`
	// BaseOSExtensionsContainerImage is omitted if empty: it was added after the other fields, and the served bytes of
	// existing rendered configs must not change.
	BaseOSExtensionsContainerImage string `json:"baseOSExtensionsContainerImage,omitempty"`
}
