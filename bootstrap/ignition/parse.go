package ignition

import (
	"encoding/json"
	"errors"
	"fmt"

	ignerrors "github.com/coreos/ignition/v2/config/shared/errors"
	"github.com/coreos/ignition/v2/config/v3_5"
)

// VersionsRead names the spec versions that Parse reads, for error messages.
const VersionsRead = "2.0.0 to 2.4.0 and 3.0.0 to 3.5.0"

// Parse reads an Ignition configuration in JSON, of a spec version named by VersionsRead, and converts it to Config.
// What Ignition would refuse is a *ParseError that carries the path into the document. Keys that Ignition does not know
// are left out, as Ignition itself does.
func Parse(raw []byte) (Config, error) {
	if read, common := readerOf3[leadingVersion(raw)]; common {
		if config, ok := read(raw); ok {
			return config, nil
		}
	}
	version, err := specVersion(raw)
	if err != nil {
		return Config{}, err
	}
	if parse2, ok := parserOf2[version]; ok {
		return parse2(raw)
	}
	return parse3(raw, version)
}

// specVersion reads the version that a document says it is of.
func specVersion(raw []byte) (string, error) {
	if len(raw) == 0 {
		return "", problem("", "the document is empty")
	}
	var stub struct {
		Ignition struct {
			Version string `json:"version"`
		} `json:"ignition"`
	}
	if err := json.Unmarshal(raw, &stub); err != nil {
		return "", decodeError(raw, err)
	}
	if stub.Ignition.Version == "" {
		return "", problem("ignition.version", "missing: say which version the document is of; read are "+VersionsRead)
	}
	return stub.Ignition.Version, nil
}

// parse3 reads a document of spec 3.
func parse3(raw []byte, version string) (Config, error) {
	config, entries, err := v3_5.ParseCompatibleVersion(raw)
	switch {
	case err == nil:
		return config, nil
	case errors.Is(err, ignerrors.ErrUnknownVersion), errors.Is(err, ignerrors.ErrInvalidVersion):
		return Config{}, problem("ignition.version", fmt.Sprintf("version %q is not known: read are %s", version, VersionsRead))
	}
	// The report has lost what a value of the wrong type was to be. The types of 3.5 hold every older spec.
	var types Config
	if typeErr := json.Unmarshal(raw, &types); typeErr != nil {
		return Config{}, decodeError(raw, typeErr)
	}
	if problems := problemsIn(entries); len(problems) > 0 {
		return Config{}, &ParseError{Problems: problems}
	}
	return Config{}, problem("", err.Error())
}
