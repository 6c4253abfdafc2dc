package ignition

import (
	"bytes"
	"encoding/json"
	"reflect"
)

// commonVersions are the spec versions whose valid documents readCommon reads.
var commonVersions = []string{"3.1.0", "3.2.0", "3.3.0", "3.4.0", "3.5.0"}

// readCommon reads a valid document of one of commonVersions. It gives the same result as Ignition's parser, which
// decodes the document once for every possible version and once more for the lines of problems. Other documents are
// left to that parser.
func readCommon(raw []byte, version string) (c Config, ok bool) {
	document := reflect.New(typeOf(version))
	if err := json.Unmarshal(raw, document.Interface()); err != nil {
		return c, false
	}
	convert(reflect.ValueOf(&c).Elem(), document.Elem())
	c.Ignition.Version = Version
	if checkWork(reflect.ValueOf(c)) != nil || len((rules{}).problemsIn(document.Elem())) > 0 {
		return Config{}, false
	}
	return c, true
}

// leadingVersion returns the spec version of a document that begins with it, as documents with sorted keys do, and ""
// otherwise. A later duplicate key can contradict it; then the rules of its type refuse the document.
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
