package ignition

import (
	"errors"
	"fmt"

	butane "github.com/coreos/butane/config"
	"github.com/coreos/butane/config/common"
)

// ParseButane translates a Butane configuration (YAML) to Ignition. It is as strict as "butane --strict": warnings are
// errors, because there is no other place to report them. Local files can't be embedded. Errors are a *ParseError with
// path and line in the Butane text.
func ParseButane(text string) (Config, error) {
	raw, entries, err := butane.TranslateBytes([]byte(text), common.TranslateBytesOptions{
		TranslateOptions: common.TranslateOptions{
			// The output of a compressor can change with its version, and would change the name of a rendered config.
			NoResourceAutoCompression: true,
		},
		Raw: true,
	})
	var problems []Problem
	for _, entry := range entries.Entries {
		problems = append(problems, newProblem(entry))
	}
	switch {
	case len(problems) > 0:
		return Config{}, &ParseError{Problems: problems}
	case errors.Is(err, common.ErrNoVariant):
		return Config{}, newParseError("variant", "missing: set the variant of Butane, for example fcos")
	case errors.Is(err, common.ErrInvalidVersion):
		return Config{}, newParseError("version", "missing or invalid: set the version of the variant")
	case err != nil:
		return Config{}, newParseError("", err.Error())
	}
	config, err := Parse(raw)
	if err != nil {
		return Config{}, newParseError("version", fmt.Sprintf("translates to Ignition that can't be read, use an older version: %v", err))
	}
	return config, nil
}
