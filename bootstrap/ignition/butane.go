package ignition

import (
	"errors"
	"fmt"

	butane "github.com/coreos/butane/config"
	"github.com/coreos/butane/config/common"
)

// ParseButane translates a Butane configuration (YAML) and reads the Ignition that comes out. It is as strict as
// "butane --strict": a warning is an error, because here nobody would see it. Local files can't be embedded. Errors are
// a *ParseError with path and line in the Butane text.
func ParseButane(text string) (Config, error) {
	raw, entries, err := butane.TranslateBytes([]byte(text), common.TranslateBytesOptions{
		TranslateOptions: common.TranslateOptions{
			// What a compressor writes may change with its version, and with it the name of a rendered config.
			NoResourceAutoCompression: true,
		},
		Raw: true,
	})
	var problems []Problem
	for _, entry := range entries.Entries {
		problems = append(problems, problemOf(entry))
	}
	switch {
	case len(problems) > 0:
		return Config{}, &ParseError{Problems: problems}
	case errors.Is(err, common.ErrNoVariant):
		return Config{}, problem("variant", "missing: say which variant of Butane the text is, for example fcos")
	case errors.Is(err, common.ErrInvalidVersion):
		return Config{}, problem("version", "missing, or no version: say which version of the variant the text is")
	case err != nil:
		return Config{}, problem("", err.Error())
	}
	config, err := Parse(raw)
	if err != nil {
		return Config{}, problem("version", fmt.Sprintf("makes Ignition that can't be read, use an older version: %v", err))
	}
	return config, nil
}
