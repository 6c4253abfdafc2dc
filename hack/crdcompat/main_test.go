package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// earlier is the API of an earlier release.
const earlier = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: pools.poolboot.io}
spec:
  group: poolboot.io
  names: {kind: Pool, plural: pools}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        required: [spec]
        properties:
          spec:
            type: object
            properties:
              name: {type: string, maxLength: 63, nullable: true}
              policy: {type: string, enum: [Wait, Force]}
              count: {type: integer, minimum: 1}
              free: {type: object, x-kubernetes-preserve-unknown-fields: true}
              choice: {type: integer, anyOf: [{maximum: 9}]}
              net: {type: string, format: cidr}
              keyed: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [a, b], items: {type: object, properties: {a: {type: string}, b: {type: string}}}}
              list: {type: array, items: {type: string}}
              map: {type: object, additionalProperties: {type: string}}
`

func TestCompare(t *testing.T) {
	for name, test := range map[string]struct{ from, to, want string }{
		"nothing changes":            {"", "", ""},
		"looser validation":          {"maxLength: 63", "maxLength: 253", ""},
		"another value":              {"enum: [Wait, Force]", "enum: [Wait, Force, Ask]", ""},
		"a new field":                {"count: {type", "more: {type: string}\n              count: {type", ""},
		"a field is gone":            {"count: {type: integer, minimum: 1}", "", "spec.count: it is gone"},
		"another type":               {"count: {type: integer", "count: {type: string", "spec.count: its type is another one"},
		"a required field":           {"            properties:\n              name", "            required: [name]\n            properties:\n              name", "spec.name: it is required now"},
		"a value is gone":            {"enum: [Wait, Force]", "enum: [Wait]", `spec.policy: the value "Force" is refused now`},
		"values for a free field":    {"maxLength: 63", "maxLength: 63, enum: [a]", "spec.name: only some values are allowed now"},
		"a lower maximum":            {"maxLength: 63", "maxLength: 62", "spec.name: its maxLength is 62 now, and was 63"},
		"a higher minimum":           {"minimum: 1", "minimum: 2", "spec.count: its minimum is 2 now, and was 1"},
		"a new limit":                {"minimum: 1", "minimum: 1, maximum: 5", "spec.count: it has maximum 5 now"},
		"a pattern":                  {"maxLength: 63", "maxLength: 63, pattern: a", "spec.name: its pattern is another one"},
		"a rule":                     {"minimum: 1", "minimum: 1, x-kubernetes-validations: [{rule: self > 1}]", "spec.count: it has another rule: self > 1"},
		"no null":                    {", nullable: true", "", "spec.name: it can't be null now"},
		"dropped fields":             {", x-kubernetes-preserve-unknown-fields: true", "", "spec.free: unknown fields are dropped now"},
		"a limit of items":           {"items: {type: string}", "items: {type: string, maxLength: 5}", "spec.list[]: it has maxLength 5 now"},
		"a limit of values of a map": {"additionalProperties: {type: string}", "additionalProperties: {type: string, maxLength: 5}", "spec.map.*: it has maxLength 5 now"},
		"another condition":          {"type: integer, minimum: 1", "type: integer, minimum: 1, not: {enum: [2]}", "spec.count: it has another allOf, anyOf, oneOf, not or multipleOf"},
		"no condition":               {", anyOf: [{maximum: 9}]", "", ""},
		"another format":             {"maxLength: 63", "maxLength: 63, format: date", "spec.name: its format is date now"},
		"no format":                  {", format: cidr", "", ""},
		"unique items":               {"type: array, items", "type: array, x-kubernetes-list-type: set, items", "spec.list: its items must be unique in another way now"},
		"other keys of a list":       {"list-map-keys: [a, b]", "list-map-keys: [a]", "spec.keyed: its items must be unique in another way now"},
		"an exclusive limit":         {"minimum: 1", "minimum: 1, exclusiveMinimum: true", "spec.count: its minimum itself is refused now"},
		"values of a map are gone":   {"additionalProperties: {type: string}", "properties: {a: {type: string}}", "spec.map.*: it is gone"},
		"a status subresource":       {"    storage: true", "    storage: true\n    subresources: {status: {}}", "pools.poolboot.io v1: its subresource status is new or gone"},
		"another name":               {"plural: pools}", "plural: pools, singular: other}", ""},
		"another kind":               {"kind: Pool,", "kind: Basin,", "pools.poolboot.io: its kind is another one"},
		"a version is gone":          {"served: true", "served: false", "pools.poolboot.io v1: it is no longer served"},
		"another scope":              {"Namespaced", "Cluster", "pools.poolboot.io: its scope is another one"},
		"a kind is gone":             {"pools.poolboot.io", "others.poolboot.io", "pools.poolboot.io: it is gone"},
	} {
		t.Run(name, func(t *testing.T) {
			if test.from != "" && !strings.Contains(earlier, test.from) {
				t.Fatalf("%q is not in the earlier CRD", test.from)
			}
			before, after := t.TempDir(), t.TempDir()
			for folder, text := range map[string]string{before: earlier, after: strings.Replace(earlier, test.from, test.to, 1)} {
				if err := os.WriteFile(filepath.Join(folder, "crd.yaml"), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			breaks, err := run(before, after)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(breaks, "\n"); (test.want == "") != (got == "") || len(breaks) > 1 || !strings.HasSuffix(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestNoCRDs(t *testing.T) {
	if _, err := run(t.TempDir(), t.TempDir()); err == nil {
		t.Error("a folder without CRDs is accepted")
	}
}
