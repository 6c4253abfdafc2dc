package ignition

import (
	"reflect"

	"github.com/coreos/ignition/v2/config/v3_5/types"
)

// Config is an Ignition configuration in the spec version that Poolboot uses internally. Other versions are converted
// to it.
type Config = types.Config

// Version is the spec version of Config.
var Version = types.MaxVersion.String()

// New returns an empty configuration.
func New() Config {
	return Config{Ignition: types.Ignition{Version: Version}}
}

// Marshal writes a configuration in canonical form: sorted keys, no white space, no empty fields. The same
// configuration always gives the same bytes, regardless of the document that it was read from.
func Marshal(c Config) ([]byte, error) {
	const around = 256 // bytes of an entry, without its contents
	size := around * (1 + len(c.Storage.Files) + len(c.Systemd.Units))
	for _, file := range c.Storage.Files {
		if file.Contents.Source != nil {
			size += len(*file.Contents.Source)
		}
	}
	return appendValue(make([]byte, 0, size), reflect.ValueOf(c))
}

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
