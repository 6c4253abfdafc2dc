package butane

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	butane "github.com/coreos/butane/config"
	"github.com/coreos/butane/config/common"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// variants are the variants of Butane that become Ignition or a MachineConfig.
var variants = []string{"fcos", "flatcar", VariantOpenShift, "r4e", "fiot"}

// explain returns an error of Butane about a whole document with its lines, what to do, and the supported values.
func explain(text string, err error) *ignition.ParseError {
	var unknown common.ErrUnknownVersion
	var malformed common.ErrUnmarshal
	switch {
	case errors.Is(err, common.ErrNoVariant):
		return newError("variant", "is missing: set "+strings.Join(variants, ", "))
	case errors.Is(err, common.ErrInvalidVersion):
		return newError("version", "is missing or malformed: set "+cmp.Or(versions()[Variant(text)], "that of the variant, such as 1.5.0"))
	case errors.As(err, &unknown) && slices.Contains(variants, unknown.Variant):
		return newError("version", fmt.Sprintf("%s has no version %s: set %s", unknown.Variant, unknown.Version, versions()[unknown.Variant]))
	case errors.As(err, &unknown):
		return newError("variant", fmt.Sprintf("%q is unknown: set %s", unknown.Variant, strings.Join(variants, ", ")))
	case errors.As(err, &malformed):
		return explainYAML(malformed.Detail)
	}
	if strings.HasPrefix(err.Error(), "yaml: ") {
		return explainYAML(err.Error())
	}
	return newError("", err.Error())
}

// versions has the released versions of each variant. Butane has no list of them.
var versions = sync.OnceValue(func() map[string]string {
	const newest = 40 // more than Butane has of any variant
	all := map[string]string{}
	for _, variant := range variants {
		var known []string
		for i := range 5 * newest {
			version := fmt.Sprintf("%d.%d.0", i/newest, i%newest)
			_, _, err := butane.TranslateBytes(fmt.Appendf(nil, "variant: %s\nversion: %s\n", variant, version), common.TranslateBytesOptions{})
			if !errors.As(err, &common.ErrUnknownVersion{}) {
				known = append(known, version)
			}
		}
		all[variant] = known[0]
		if len(known) > 1 {
			all[variant] += " to " + known[len(known)-1]
		}
	}
	return all
})

var (
	yamlLine  = regexp.MustCompile(`^(?:yaml: )?line (\d+): (.*)$`)
	wrongType = regexp.MustCompile("^cannot unmarshal !!(\\w+)(?: `(.*)`)? into (.*)$")
	// yamlTypes are the names of the types that Butane's fields have and of those in YAML.
	yamlTypes = map[string]string{"map": "an object", "seq": "a list", "str": "a string", "int": "a whole number", "float": "a number",
		"bool": "true or false", "string": "a string", "null": "null"}
)

// explainYAML returns a problem for each line of an error about YAML.
func explainYAML(detail string) *ignition.ParseError {
	all := &ignition.ParseError{}
	for line := range strings.Lines(detail) {
		line = strings.TrimSpace(line)
		problem := ignition.Problem{Message: strings.TrimPrefix(line, "yaml: ")}
		if match := yamlLine.FindStringSubmatch(line); match != nil {
			problem.Line, _ = strconv.ParseInt(match[1], 10, 64)
			problem.Message = match[2]
		} else if strings.HasSuffix(line, "unmarshal errors:") {
			continue
		}
		problem.Message = explainType(problem.Message)
		all.Problems = append(all.Problems, problem)
	}
	all.Problems = ignition.LimitProblems(all.Problems)
	return all
}

func explainType(message string) string {
	match := wrongType.FindStringSubmatch(message)
	if match == nil {
		return "malformed YAML: " + message + ": correct it"
	}
	want, simple := yamlTypes[strings.TrimLeft(match[3], "*")]
	switch {
	case simple:
	case strings.HasPrefix(match[3], "[]"):
		want = "a list"
	default:
		want = "an object"
	}
	is := match[2]
	if is == "" {
		is = yamlTypes[match[1]]
	}
	return fmt.Sprintf("%s must be %s", is, want)
}
