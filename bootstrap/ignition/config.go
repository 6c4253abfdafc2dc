package ignition

import (
	"encoding/json"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/coreos/ignition/v2/config/validate"
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

// Validate returns a *ParseError when Ignition would refuse the configuration, and nil otherwise. A configuration that
// Parse returned is valid; one that was merged need not be.
func Validate(c Config) error {
	if problems := problemsIn(validate.ValidateWithContext(c, nil)); len(problems) > 0 {
		return &ParseError{Problems: problems}
	}
	return nil
}

// Marshal writes a configuration in canonical form: keys in order, no space, nothing that is empty. The same configuration
// gives the same bytes, whatever it was read from.
func Marshal(c Config) ([]byte, error) { return canonical(c) }

// canonical is the one encoder of this package. Ignition's types write every empty struct; those are left out here.
func canonical(document any) ([]byte, error) {
	raw, err := json.Marshal(document)
	if err != nil {
		return nil, err
	}
	var tree map[string]any
	if err := json.Unmarshal(raw, &tree); err != nil {
		return nil, err
	}
	prune(tree)
	return json.Marshal(tree)
}

// prune removes empty objects that are values of objects; an empty object in a list keeps its place.
func prune(node any) {
	switch node := node.(type) {
	case map[string]any:
		for key, value := range node {
			prune(value)
			if object, ok := value.(map[string]any); ok && len(object) == 0 {
				delete(node, key)
			}
		}
	case []any:
		for _, value := range node {
			prune(value)
		}
	}
}
