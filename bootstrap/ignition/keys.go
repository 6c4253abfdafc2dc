package ignition

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	types2_0 "github.com/coreos/ignition/config/v2_0/types"
	types2_1 "github.com/coreos/ignition/config/v2_1/types"
	types2_2 "github.com/coreos/ignition/config/v2_2/types"
	types2_3 "github.com/coreos/ignition/config/v2_3/types"
	types2_4 "github.com/coreos/ignition/config/v2_4/types"
	types3_0 "github.com/coreos/ignition/v2/config/v3_0/types"
	types3_1 "github.com/coreos/ignition/v2/config/v3_1/types"
	types3_2 "github.com/coreos/ignition/v2/config/v3_2/types"
	types3_3 "github.com/coreos/ignition/v2/config/v3_3/types"
	types3_4 "github.com/coreos/ignition/v2/config/v3_4/types"
	types3_5 "github.com/coreos/ignition/v2/config/v3_5/types"
	types3_6 "github.com/coreos/ignition/v2/config/v3_6/types"
)

// configTypes has the type of a document of each spec version, in their order.
var configTypes = []struct {
	version string
	config  reflect.Type
}{
	{"2.0.0", reflect.TypeFor[types2_0.Config]()}, {"2.1.0", reflect.TypeFor[types2_1.Config]()}, {"2.2.0", reflect.TypeFor[types2_2.Config]()},
	{"2.3.0", reflect.TypeFor[types2_3.Config]()}, {"2.4.0", reflect.TypeFor[types2_4.Config]()}, {"3.0.0", reflect.TypeFor[types3_0.Config]()},
	{"3.1.0", reflect.TypeFor[types3_1.Config]()}, {"3.2.0", reflect.TypeFor[types3_2.Config]()}, {"3.3.0", reflect.TypeFor[types3_3.Config]()},
	{"3.4.0", reflect.TypeFor[types3_4.Config]()}, {"3.5.0", reflect.TypeFor[types3_5.Config]()},
	{version3_6, reflect.TypeFor[types3_6.Config]()},
}

// typeOf returns the type of a document of a spec version, or nil.
func typeOf(version string) reflect.Type {
	for _, known := range configTypes {
		if known.version == version {
			return known.config
		}
	}
	return nil
}

// CheckKeys returns the keys of a document that Ignition ignores because its spec version does not have them. Those
// whose value configures something are in the error, which is a *ParseError: a host would start without it. The others
// are warnings: empty values, comments, and the file system "root" of spec 2. Keys that are given twice are in the
// error too. Like Ignition's parser, it ignores the case of keys. Check a document with Parse first: of one that is
// malformed or has an unknown version, CheckKeys returns nothing.
func CheckKeys(raw []byte) (warnings []Problem, err error) {
	var document any
	version, parseErr := specVersion(raw)
	if malformed := json.Unmarshal(raw, &document) != nil; malformed || parseErr != nil {
		return nil, nil //nolint:nilerr // Parse returns it.
	}
	c := keyCheck{version: version, lost: duplicateKeys(raw)}
	for i, of := range configTypes {
		if of.version == version {
			for _, later := range configTypes[i+1:] {
				if later.version[0] == version[0] {
					c.later = append(c.later, later.version)
				}
			}
			c.check(document, of.config, nil)
		}
	}
	if len(c.lost) > 0 {
		return LimitProblems(c.warnings), &ParseError{Problems: LimitProblems(c.lost)}
	}
	return LimitProblems(c.warnings), nil
}

// keyCheck finds the unknown keys of one document.
type keyCheck struct {
	version        string
	later          []string // spec versions with the same first number
	warnings, lost []Problem
}

// step is a key, or an index of a list.
type step struct {
	key   string
	index int
}

func (c *keyCheck) check(value any, of reflect.Type, at []step) {
	for of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	switch value := value.(type) {
	case []any:
		if of.Kind() == reflect.Slice {
			for i, item := range value {
				c.check(item, of.Elem(), append(slices.Clip(at), step{index: i}))
			}
		}
	case map[string]any:
		if of.Kind() != reflect.Struct {
			return
		}
		for _, key := range slices.Sorted(maps.Keys(value)) {
			inner := append(slices.Clip(at), step{key: key})
			if known := memberNamed(of, key); known != nil {
				c.check(value[key], known, inner)
				continue
			}
			if configuresNothing(key, value[key]) {
				addProblem(&c.warnings, func() Problem {
					return Problem{Path: joinSteps(inner), Message: "Ignition " + c.version + " ignores this key, and it has no content that a host would need: remove it"}
				})
			} else {
				addProblem(&c.lost, func() Problem { return Problem{Path: joinSteps(inner), Message: c.explain(inner)} })
			}
		}
	}
}

// memberNamed returns the type of a field of a struct by its key, in any case, or nil.
func memberNamed(of reflect.Type, key string) reflect.Type {
	for _, m := range shapeOf(of).members {
		if strings.EqualFold(m.key, key) {
			return of.FieldByIndex(m.index).Type
		}
	}
	return nil
}

// configuresNothing reports whether Ignition may ignore a key without a loss.
func configuresNothing(key string, value any) bool {
	switch value := value.(type) {
	case nil:
		return true
	case bool:
		return !value
	case string:
		return value == "" || key == "filesystem" && value == rootFilesystem || isComment(key)
	case []any:
		return len(value) == 0
	case map[string]any:
		for key, inner := range value {
			if !configuresNothing(key, inner) {
				return false
			}
		}
		return true
	}
	return false
}

// isComment reports whether a key is one of those that people write comments to.
func isComment(key string) bool {
	return strings.HasPrefix(key, "_") || strings.HasPrefix(key, "$") || strings.HasPrefix(key, "//") || strings.EqualFold(key, "comment")
}

// keyRemedies are what to do instead of a key that is common in documents, and that no version of spec 3 has.
var keyRemedies = map[string]string{
	"inline":     "set source to a data URL (data:,text), or write the whole document in Butane",
	"filesystem": "spec 3 has only the file system of the host: set the full path",
	"enable":     "set enabled",
	"networkd":   "write the units as files below /etc/systemd/network",
	"option":     "set options",
	"create":     "set uid, groups and the other fields of the user itself",
}

// explain returns what to do about an unknown key.
func (c *keyCheck) explain(at []step) string {
	why := fmt.Sprintf("Ignition %s does not have this key, and would ignore it with its content: ", c.version)
	for _, version := range c.later {
		if hasPath(version, at) {
			return why + "set ignition.version to " + version + ", which has it"
		}
	}
	if remedy, ok := keyRemedies[at[len(at)-1].key]; ok {
		return why + remedy
	}
	return why + "correct its name, or remove it"
}

// hasPath reports whether a spec version has a path.
func hasPath(version string, at []step) bool {
	for _, of := range configTypes {
		if of.version != version {
			continue
		}
		current := of.config
		for _, step := range at {
			for current.Kind() == reflect.Pointer {
				current = current.Elem()
			}
			switch {
			case step.key == "" && current.Kind() == reflect.Slice:
				current = current.Elem()
			case step.key != "" && current.Kind() == reflect.Struct:
				if current = memberNamed(current, step.key); current == nil {
					return false
				}
			default:
				return false
			}
		}
		return true
	}
	return false
}

// joinSteps returns a path as the other problems have it, for example storage.files[2].mode.
func joinSteps(at []step) string {
	var path strings.Builder
	for _, step := range at {
		switch {
		case step.key == "":
			fmt.Fprintf(&path, "[%d]", step.index)
		case path.Len() > 0:
			path.WriteString("." + step.key)
		default:
			path.WriteString(step.key)
		}
	}
	return path.String()
}
