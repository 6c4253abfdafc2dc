// Package butane translates Butane configurations to Ignition. It is apart from package ignition because it is large,
// and running hosts need it not.
package butane

import (
	"errors"
	"fmt"

	butane "github.com/coreos/butane/config"
	"github.com/coreos/butane/config/common"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// Parse translates a Butane configuration (YAML) to Ignition. It is as strict as "butane --strict": warnings are
// errors, because there is no other place to report them. Local files can't be embedded. Errors are an
// *ignition.ParseError with path and line in the Butane text.
func Parse(text string) (ignition.Config, error) {
	raw, entries, err := butane.TranslateBytes([]byte(text), common.TranslateBytesOptions{
		TranslateOptions: common.TranslateOptions{
			// The output of a compressor can change with its version, and would change the name of a rendered config.
			NoResourceAutoCompression: true,
		},
		Raw: true,
	})
	var problems []ignition.Problem
	for _, entry := range entries.Entries {
		problems = append(problems, ignition.NewProblem(entry))
	}
	switch {
	case len(problems) > 0:
		return ignition.Config{}, &ignition.ParseError{Problems: problems}
	case errors.Is(err, common.ErrNoVariant):
		return ignition.Config{}, newError("variant", "missing: set the variant of Butane, for example fcos")
	case errors.Is(err, common.ErrInvalidVersion):
		return ignition.Config{}, newError("version", "missing or invalid: set the version of the variant")
	case err != nil:
		return ignition.Config{}, newError("", err.Error())
	}
	config, err := ignition.Parse(raw)
	if err != nil {
		return ignition.Config{}, newError("version", fmt.Sprintf("translates to Ignition that can't be read, use an older version: %v", err))
	}
	return config, nil
}

func newError(path, message string) *ignition.ParseError {
	return &ignition.ParseError{Problems: []ignition.Problem{{Path: path, Message: message}}}
}
