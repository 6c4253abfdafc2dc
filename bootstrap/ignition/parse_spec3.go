package ignition

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"

	to3_2 "github.com/coreos/ignition/v2/config/v3_2/translate"
	to3_3 "github.com/coreos/ignition/v2/config/v3_3/translate"
	to3_4 "github.com/coreos/ignition/v2/config/v3_4/translate"
	to3_5 "github.com/coreos/ignition/v2/config/v3_5/translate"

	types3_1 "github.com/coreos/ignition/v2/config/v3_1/types"
	types3_2 "github.com/coreos/ignition/v2/config/v3_2/types"
	types3_3 "github.com/coreos/ignition/v2/config/v3_3/types"
	types3_4 "github.com/coreos/ignition/v2/config/v3_4/types"
	"github.com/coreos/ignition/v2/config/v3_5/types"
)

// readerOf3 has fast readers for valid documents of the common spec versions 3.x. All other documents are left to
// parse3.
var readerOf3 = map[string]func([]byte) (Config, bool){
	"3.5.0": read3(func(c Config) Config { return c }),
	"3.4.0": read3(to3_5.Translate),
	"3.3.0": read3(func(c types3_3.Config) Config { return to3_5.Translate(to3_4.Translate(c)) }),
	"3.2.0": read3(from3_2),
	"3.1.0": read3(func(c types3_1.Config) Config { return from3_2(to3_2.Translate(c)) }), // most overlays
}

func from3_2(c types3_2.Config) Config {
	return to3_5.Translate(to3_4.Translate(to3_3.Translate(c)))
}

// read3 gives the same result as Ignition's parser, which decodes the document once for every possible version and once
// more for the lines of problems. read3 decodes it once.
func read3[Types types3_1.Config | types3_2.Config | types3_3.Config | types3_4.Config | Config](translate func(Types) Config) func([]byte) (Config, bool) {
	return func(raw []byte) (Config, bool) {
		var config Types
		if err := json.Unmarshal(raw, &config); err != nil || checkWork(reflect.ValueOf(config)) != nil || !isValid(config) {
			return Config{}, false
		}
		return translateConfig(config, translate)
	}
}

// translateConfig translates a configuration. Files and units, the largest part of most configurations, are copied:
// their fields have not changed since spec 3.1. It leaves documents with special bits in a mode, which are supported
// since spec 3.4, to the parser.
func translateConfig[Types any](old Types, translate func(Types) Config) (Config, bool) {
	v := reflect.ValueOf(&old).Elem()
	files, units := v.FieldByName("Storage").FieldByName("Files"), v.FieldByName("Systemd").FieldByName("Units")
	var same Config
	copyFields(reflect.ValueOf(&same.Storage.Files).Elem(), files)
	copyFields(reflect.ValueOf(&same.Systemd.Units).Elem(), units)
	if slices.ContainsFunc(same.Storage.Files, func(file types.File) bool { return file.Mode != nil && *file.Mode > 0o777 }) {
		return Config{}, false
	}
	files.SetZero()
	units.SetZero()
	v.FieldByName("Ignition").FieldByName("Version").SetZero()
	var whole Config
	if !v.IsZero() {
		whole = translate(old)
	}
	whole.Ignition.Version = Version
	whole.Storage.Files, whole.Systemd.Units = same.Storage.Files, same.Systemd.Units
	return whole, true
}

// copyFields copies a value to one whose type has the same fields in the same order.
func copyFields(to, from reflect.Value) {
	switch {
	case to.Type() == from.Type():
		to.Set(from)
	case to.Kind() == reflect.Struct:
		for i := range to.NumField() {
			copyFields(to.Field(i), from.Field(i))
		}
	case !from.IsNil(): // a list
		to.Set(reflect.MakeSlice(to.Type(), from.Len(), from.Len()))
		for i := range from.Len() {
			copyFields(to.Index(i), from.Index(i))
		}
	}
}

// leadingVersion returns the spec version of a document that begins with it, as documents with sorted keys do, and ""
// otherwise. A later duplicate key can contradict it; then passes refuses the document.
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
