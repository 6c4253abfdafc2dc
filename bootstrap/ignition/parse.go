package ignition

import (
	"encoding/json"
	"errors"
	"fmt"

	ignerrors "github.com/coreos/ignition/v2/config/shared/errors"
	"github.com/coreos/ignition/v2/config/util"
	"github.com/coreos/ignition/v2/config/v3_5"
)

// VersionsRead names the spec versions that Parse reads, for error messages.
const VersionsRead = "2.2.0 to 2.4.0 and 3.0.0 to 3.5.0"

// Parse reads an Ignition configuration in JSON, of a spec version named by VersionsRead, and converts it to Config. What
// Ignition would refuse is a *ParseError that carries the path into the document. Keys that Ignition does not know are
// left out, as Ignition itself does.
func Parse(raw []byte) (Config, error) {
	version, err := specVersion(raw)
	if err != nil {
		return Config{}, err
	}
	if older, ok := parserOf2[version]; ok {
		return older(raw)
	}

	config, entries, err := v3_5.ParseCompatibleVersion(raw)
	switch {
	case errors.Is(err, ignerrors.ErrUnknownVersion):
		return Config{}, problem("ignition.version", fmt.Sprintf("unknown version %q: read are %s", version, VersionsRead))
	case err != nil:
		problems := problemsIn(entries, raw)
		if len(problems) == 0 {
			return Config{}, problem("", err.Error())
		}
		return Config{}, &ParseError{Problems: problems}
	}
	return config, nil
}

// specVersion reads the version that a document says it is of.
func specVersion(raw []byte) (string, error) {
	version, entries, err := util.GetConfigVersion(raw)
	switch {
	case err == nil:
		return version.String(), nil
	case errors.Is(err, ignerrors.ErrEmpty):
		return "", problem("", "the document is empty")
	case errors.Is(err, ignerrors.ErrInvalidVersion):
		var stub struct{ Ignition struct{ Version string } }
		_ = json.Unmarshal(raw, &stub) // it was read a moment ago
		if stub.Ignition.Version == "" {
			return "", problem("ignition.version", "missing: say which version the document is of; read are "+VersionsRead)
		}
		return "", problem("ignition.version", fmt.Sprintf("%q is no version: read are %s", stub.Ignition.Version, VersionsRead))
	}
	return "", &ParseError{Problems: problemsIn(entries, raw)}
}
