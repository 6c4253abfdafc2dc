package ignition

import (
	"reflect"

	"github.com/coreos/ignition/v2/config/v3_5/types"
)

// Config is an Ignition configuration in the one spec version that Poolboot works in. Everything that is read is
// converted to it.
type Config = types.Config

// Version is the spec version of Config.
var Version = types.MaxVersion.String()

// New returns a configuration that does nothing.
func New() Config {
	return Config{Ignition: types.Ignition{Version: Version}}
}

// Marshal writes a configuration in canonical form: keys in order, no space, nothing that is empty. The same
// configuration gives the same bytes, whatever it was read from.
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
