// Command crdcompat fails if CRDs refuse or drop what those of an earlier release accept: a kind, version or field that
// is gone, another type, or a tighter validation.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/yaml"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "Usage: crdcompat FOLDER-OF-THE-EARLIER-RELEASE FOLDER")
		os.Exit(2)
	}
	breaks, err := run(os.Args[1], os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, "crdcompat:", err)
		os.Exit(2)
	}
	for _, b := range breaks {
		fmt.Println(b)
	}
	if len(breaks) > 0 {
		fmt.Fprintln(os.Stderr, "Objects that users have would be refused or lose fields. What to do: keep what is named above, or serve a new version of the API with a conversion.")
		os.Exit(1)
	}
}

// run compares the CRDs of two folders.
func run(earlier, later string) (breaks []string, err error) {
	before, err := read(earlier)
	if err != nil {
		return nil, err
	}
	after, err := read(later)
	if err != nil {
		return nil, err
	}
	for _, name := range sets.List(sets.KeySet(before)) {
		breaks = append(breaks, compareCRDs(name, before[name], after[name])...)
	}
	return breaks, nil
}

// read returns the CRDs in the files of a folder by name.
func read(folder string) (map[string]*apiextensionsv1.CustomResourceDefinition, error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil {
		return nil, err
	}
	crds := map[string]*apiextensionsv1.CustomResourceDefinition{}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(raw, crd); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		crds[crd.Name] = crd
	}
	if len(crds) == 0 {
		return nil, fmt.Errorf("%s: there are no CRDs", folder)
	}
	return crds, nil
}

func compareCRDs(name string, before, after *apiextensionsv1.CustomResourceDefinition) (breaks []string) {
	if after == nil {
		return []string{name + ": it is gone"}
	}
	if before.Spec.Scope != after.Spec.Scope {
		breaks = append(breaks, name+": its scope is another one")
	}
	if before.Spec.Names.Kind != after.Spec.Names.Kind {
		breaks = append(breaks, name+": its kind is another one")
	}
	for _, version := range before.Spec.Versions {
		i := slices.IndexFunc(after.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool {
			return v.Name == version.Name && v.Served
		})
		if i < 0 {
			if version.Served {
				breaks = append(breaks, name+" "+version.Name+": it is no longer served")
			}
			continue
		}
		if hasStatus(version) != hasStatus(after.Spec.Versions[i]) {
			breaks = append(breaks, name+" "+version.Name+": its subresource status is new or gone")
		}
		c := comparison{where: name + " " + version.Name}
		c.compare("", version.Schema.OpenAPIV3Schema, after.Spec.Versions[i].Schema.OpenAPIV3Schema)
		breaks = append(breaks, c.breaks...)
	}
	return breaks
}

func hasStatus(version apiextensionsv1.CustomResourceDefinitionVersion) bool {
	return version.Subresources != nil && version.Subresources.Status != nil
}

// comparison finds what a schema refuses or drops and an earlier one does not. It does not compare what a default or a
// description says.
type comparison struct {
	where  string
	breaks []string
}

func (c *comparison) say(path, format string, args ...any) {
	c.breaks = append(c.breaks, c.where+" "+strings.TrimPrefix(path, ".")+": "+fmt.Sprintf(format, args...))
}

func (c *comparison) compare(path string, before, after *apiextensionsv1.JSONSchemaProps) {
	if before == nil || after == nil {
		if after != nil {
			c.say(path, "it has a schema now")
		}
		return
	}
	if before.Type != after.Type || before.XIntOrString != after.XIntOrString {
		c.say(path, "its type is another one")
		return
	}
	if before.Nullable && !after.Nullable {
		c.say(path, "it can't be null now")
	}
	if keeps := func(s *apiextensionsv1.JSONSchemaProps) bool {
		return s.XPreserveUnknownFields != nil && *s.XPreserveUnknownFields
	}; keeps(before) && !keeps(after) {
		c.say(path, "unknown fields are dropped now")
	}
	for _, name := range after.Required {
		if !slices.Contains(before.Required, name) {
			c.say(path+"."+name, "it is required now")
		}
	}
	values := sets.New[string]()
	for _, value := range after.Enum {
		values.Insert(string(value.Raw))
	}
	if len(before.Enum) == 0 && len(after.Enum) > 0 {
		c.say(path, "only some values are allowed now")
	}
	for _, value := range before.Enum {
		if len(after.Enum) > 0 && !values.Has(string(value.Raw)) {
			c.say(path, "the value %s is refused now", value.Raw)
		}
	}
	if before.Pattern != after.Pattern && after.Pattern != "" {
		c.say(path, "its pattern is another one")
	}
	if before.Format != after.Format && after.Format != "" {
		c.say(path, "its format is %s now", after.Format)
	}
	if is := conditions(after); !reflect.DeepEqual(conditions(before), is) && !reflect.ValueOf(is).IsZero() {
		c.say(path, "it has another allOf, anyOf, oneOf, not or multipleOf")
	}
	if is := uniqueness(after); is != "" && is != uniqueness(before) {
		c.say(path, "its items must be unique in another way now")
	}
	if after.ExclusiveMinimum && !before.ExclusiveMinimum {
		c.say(path, "its minimum itself is refused now")
	}
	if after.ExclusiveMaximum && !before.ExclusiveMaximum {
		c.say(path, "its maximum itself is refused now")
	}
	for _, rule := range after.XValidations {
		if !slices.ContainsFunc(before.XValidations, func(r apiextensionsv1.ValidationRule) bool { return r.Rule == rule.Rule }) {
			c.say(path, "it has another rule: %s", rule.Rule)
		}
	}
	tighter(c, path, "minimum", before.Minimum, after.Minimum, 1)
	tighter(c, path, "maximum", before.Maximum, after.Maximum, -1)
	tighter(c, path, "minLength", before.MinLength, after.MinLength, 1)
	tighter(c, path, "maxLength", before.MaxLength, after.MaxLength, -1)
	tighter(c, path, "minItems", before.MinItems, after.MinItems, 1)
	tighter(c, path, "maxItems", before.MaxItems, after.MaxItems, -1)
	tighter(c, path, "minProperties", before.MinProperties, after.MinProperties, 1)
	tighter(c, path, "maxProperties", before.MaxProperties, after.MaxProperties, -1)

	for _, name := range sets.List(sets.KeySet(before.Properties)) {
		was := before.Properties[name]
		if is, has := after.Properties[name]; has {
			c.compare(path+"."+name, &was, &is)
		} else {
			c.say(path+"."+name, "it is gone")
		}
	}
	if before.Items != nil && after.Items != nil {
		c.compare(path+"[]", before.Items.Schema, after.Items.Schema)
	}
	if before.AdditionalProperties != nil && after.AdditionalProperties == nil {
		c.say(path+".*", "it is gone")
	} else if before.AdditionalProperties != nil {
		c.compare(path+".*", before.AdditionalProperties.Schema, after.AdditionalProperties.Schema)
	}
}

// conditions returns the parts of a schema that are compared as a whole.
func conditions(s *apiextensionsv1.JSONSchemaProps) apiextensionsv1.JSONSchemaProps {
	return apiextensionsv1.JSONSchemaProps{AllOf: s.AllOf, AnyOf: s.AnyOf, OneOf: s.OneOf, Not: s.Not, MultipleOf: s.MultipleOf}
}

// uniqueness returns by what items of a list must be unique, or nothing if they need not.
func uniqueness(s *apiextensionsv1.JSONSchemaProps) string {
	if s.XListType == nil || *s.XListType == "atomic" {
		return ""
	}
	return fmt.Sprint(*s.XListType, s.XListMapKeys)
}

// tighter says if a limit is new or has moved in a direction.
func tighter[N int64 | float64](c *comparison, path, limit string, before, after *N, direction N) {
	switch {
	case after == nil:
	case before == nil:
		c.say(path, "it has %s %v now", limit, *after)
	case (*after-*before)*direction > 0:
		c.say(path, "its %s is %v now, and was %v", limit, *after, *before)
	}
}
