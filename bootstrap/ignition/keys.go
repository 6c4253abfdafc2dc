package ignition

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"

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

// PlaceOf returns the path of a field with this name in the latest version of Ignition, or "".
func PlaceOf(key string) string {
	latest, fields := configTypes[len(configTypes)-1].config, map[string]reflect.Type{}
	if addFields(fields, latest); fields[key] != nil {
		return key
	}
	return FindPlace(latest, key)
}

// CheckKeys returns the keys of a document that Ignition ignores because its spec version does not have them. Those
// whose value configures something are in the error, which is a *ParseError: a host would start without it. The others
// are warnings: empty values, comments, and the file system "root" of spec 2. Keys that are given twice are in the
// error too. Like Ignition's parser, it ignores the case of keys. Check a document with Parse first: of one that is
// malformed or has an unknown version, CheckKeys returns nothing.
func CheckKeys(raw []byte) (warnings []Problem, err error) {
	var document any
	version, parseErr := specVersion(raw)
	of := typeOf(version)
	if malformed := json.Unmarshal(raw, &document) != nil; malformed || parseErr != nil || of == nil {
		return nil, nil //nolint:nilerr // Parse returns it.
	}
	lost := duplicateKeys(raw)
	explain := newKeyExplainer(document, version)
	for _, mistake := range FindMistakes(document, of, true) {
		switch {
		case !mistake.Unknown: // of a value, which Parse returns
		case configuresNothing(mistake.Key, mistake.Value):
			addProblem(&warnings, func() Problem {
				return Problem{Path: mistake.Path, Message: "Ignition " + version + " ignores this key, and it has no content that a host would need: remove it"}
			})
		default:
			addProblem(&lost, func() Problem { return Problem{Path: mistake.Path, Message: explain(mistake)} })
		}
	}
	if len(lost) > 0 {
		return LimitProblems(warnings), &ParseError{Problems: LimitProblems(lost)}
	}
	return LimitProblems(warnings), nil
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

// newKeyExplainer returns a function that returns what to do about an unknown key of a document.
func newKeyExplainer(document any, version string) func(Mistake) string {
	var later []map[string]bool // the paths that each later version with the same first number does not have
	var laterVersions []string
	learn := sync.OnceFunc(func() {
		for _, of := range configTypes {
			if of.version <= version || of.version[0] != version[0] {
				continue
			}
			unknown := map[string]bool{}
			for _, mistake := range FindMistakes(document, of.config, true) {
				unknown[mistake.Path] = true
			}
			later, laterVersions = append(later, unknown), append(laterVersions, of.version)
		}
	})
	return func(mistake Mistake) string {
		learn()
		why := fmt.Sprintf("Ignition %s does not have this key, and would ignore it with its content: ", version)
		if i := slices.IndexFunc(later, func(unknown map[string]bool) bool { return !unknown[mistake.Path] }); i >= 0 {
			return why + "set ignition.version to " + laterVersions[i] + ", which has it"
		}
		return why + cmp.Or(keyRemedies[mistake.Key], mistake.Correct())
	}
}
