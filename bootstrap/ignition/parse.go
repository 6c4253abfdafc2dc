package ignition

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"

	ignerrors "github.com/coreos/ignition/v2/config/shared/errors"
	"github.com/coreos/ignition/v2/config/v3_5"
)

// VersionsRead names the spec versions that Parse reads, for error messages.
const VersionsRead = "2.0.0 to 2.4.0 and 3.0.0 to 3.6.0"

// Parse reads an Ignition configuration in JSON, of one of VersionsRead, and converts it to Config. If Ignition would
// refuse it, the error is a *ParseError with the path in the document. As in Ignition, unknown keys are ignored.
func Parse(raw []byte) (Config, error) {
	config, err := parse(raw)
	var invalid *ParseError
	if errors.As(err, &invalid) && !bytes.Contains(raw, []byte("\n")) {
		// The Ignition of a MachineConfig is one line, because it is written as YAML or stored without line breaks.
		for i := range invalid.Problems {
			invalid.Problems[i].Line = 0
		}
	}
	return config, err
}

func parse(raw []byte) (Config, error) {
	if version := leadingVersion(raw); slices.Contains(commonVersions, version) {
		if config, ok := readCommon(raw, version); ok {
			return config, nil
		}
	}
	if err := checkDocument(raw); err != nil {
		return Config{}, err
	}
	if err := checkValues(raw); err != nil {
		return Config{}, err
	}
	version, err := specVersion(raw)
	if err != nil {
		return Config{}, err
	}
	if parse2, ok := parserOf2[version]; ok {
		return parse2(raw)
	}
	if version == version3_6 {
		return parse3_6(raw)
	}
	return parse3(raw, version)
}

// specVersion returns the spec version of a document.
func specVersion(raw []byte) (string, error) {
	if len(raw) == 0 {
		return "", newParseError("", "the document is empty")
	}
	var stub struct {
		Ignition struct {
			Version string `json:"version"`
		} `json:"ignition"`
		Variant any `json:"variant"` // of Butane
	}
	if err := json.Unmarshal(raw, &stub); err != nil {
		return "", decodeError(raw, err, reflect.TypeOf(stub))
	}
	switch {
	case stub.Ignition.Version != "":
		return stub.Ignition.Version, nil
	case stub.Variant != nil:
		return "", newParseError("variant", "this is Butane, not Ignition: translate it with kubectl poolboot convert --butane, "+
			"or move it as a text to the field butane, which objects of Poolboot have")
	default:
		return "", newParseError("ignition.version", "missing: set the spec version; supported are "+VersionsRead)
	}
}

// parse3 reads a document of spec 3.
func parse3(raw []byte, version string) (Config, error) {
	config, entries, err := v3_5.ParseCompatibleVersion(raw)
	switch {
	case err == nil:
		return config, nil
	case errors.Is(err, ignerrors.ErrUnknownVersion), errors.Is(err, ignerrors.ErrInvalidVersion):
		return Config{}, newParseError("ignition.version", fmt.Sprintf("version %q is not supported: use one of %s", version, VersionsRead))
	}
	// The report does not contain the expected type of a wrong value. The types of 3.5 include those of every older
	// spec.
	var types Config
	if typeErr := json.Unmarshal(raw, &types); typeErr != nil {
		return Config{}, decodeError(raw, typeErr, reflect.TypeOf(types))
	}
	if problems := fatalProblems(entries); len(problems) > 0 {
		return Config{}, &ParseError{Problems: problems}
	}
	return Config{}, newParseError("", err.Error())
}
