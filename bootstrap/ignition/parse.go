package ignition

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/coreos/ignition/v2/config/validate"
	"k8s.io/utils/ptr"
)

// version3_6 is the newest spec version that is read. It has the fields of 3.5 and accepts more values. A value that
// only 3.6 accepts is an error: Config is served to hosts whose Ignition can be older.
const version3_6 = "3.6.0"

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
	if version := leadingVersion(raw); typeOf(version) != nil && parserOf2[version] == nil {
		if config, err := read3(raw, version); err == nil {
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
	return read3(raw, version)
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
		version := types.MaxVersion
		if version.Set(stub.Ignition.Version) == nil {
			return version.String(), nil // without leading zeros, as in 3.0.00
		}
		return stub.Ignition.Version, nil
	case stub.Variant != nil:
		return "", newParseError("variant", "this is Butane, not Ignition: translate it with kubectl poolboot convert --butane, "+
			"or move it as a text to the field butane, which objects of Poolboot have")
	default:
		return "", newParseError("ignition.version", "missing: set the spec version; supported are "+VersionsRead)
	}
}

// leadingVersion returns the spec version of a document that begins with it, as documents with sorted keys do, and ""
// otherwise. A later duplicate key can contradict it; then read3 refuses the document.
func leadingVersion(raw []byte) string {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	for _, begin := range []json.Token{json.Delim('{'), "ignition"} {
		if token, err := decoder.Token(); err != nil || token != begin {
			return ""
		}
	}
	var head struct {
		Version string `json:"version"`
	}
	if err := decoder.Decode(&head); err != nil {
		return ""
	}
	return head.Version
}

// read3 reads a document of a spec version 3.x. It gives the same result as Ignition's parser, which decodes the
// document once for every possible version.
func read3(raw []byte, version string) (c Config, err error) {
	of := typeOf(version)
	if of == nil {
		return c, newParseError("ignition.version", fmt.Sprintf("version %q is not supported: use one of %s", version, VersionsRead))
	}
	document := reflect.New(of)
	if err := json.Unmarshal(raw, document.Interface()); err != nil {
		return c, decodeError(raw, err, of)
	}
	convert(reflect.ValueOf(&c).Elem(), document.Elem())
	c.Ignition.Version = Version
	if err := checkWork(reflect.ValueOf(c)); err != nil {
		return Config{}, err
	}
	problems := rules{}.problemsIn(document.Elem())
	if len(problems) > 0 && bytes.Contains(raw, []byte("\n")) { // Ignition's own validation knows the lines
		if err := checkValues(raw); err != nil {
			return Config{}, err
		}
		problems = allProblems(validate.ValidateWithContext(document.Elem().Interface(), raw))
	}
	if len(problems) == 0 && version == version3_6 {
		problems = append(rules{}.problemsIn(reflect.ValueOf(&c).Elem()), specialModes(c)...)
		for i := range problems {
			problems[i].Message += ": Ignition accepts this from spec 3.6 on, and the Ignition of a host can be older: use a value of spec 3.5"
		}
	}
	if len(problems) > 0 {
		return Config{}, &ParseError{Problems: LimitProblems(problems)}
	}
	return c, nil
}

// specialModes returns the problems of setuid, setgid and sticky bits, which Ignition ignores before spec 3.6.
func specialModes(c Config) (problems []Problem) {
	check := func(kind string, i int, mode *int) {
		if ptr.Deref(mode, 0)&0o7000 != 0 {
			addProblem(&problems, func() Problem {
				return Problem{Path: fmt.Sprintf("storage.%s[%d].mode", kind, i), Message: "the mode has a setuid, setgid or sticky bit"}
			})
		}
	}
	for i, file := range c.Storage.Files {
		check("files", i, file.Mode)
	}
	for i, directory := range c.Storage.Directories {
		check("directories", i, directory.Mode)
	}
	return problems
}
