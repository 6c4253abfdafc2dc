// Package schema validates objects as the API server does when it stores them: their metadata, the schemas of the
// CustomResourceDefinitions with their defaults, and the CEL rules. It knows no webhook: see bootstrap/validation.
package schema

import (
	"context"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/config"
)

// definition is what an object of one kind must satisfy.
type definition struct {
	structural *structuralschema.Structural
	values     validation.SchemaValidator
	rules      *cel.Validator
}

// definitions has the definition of each kind, which is compiled when it is used first: the rules of a pool take longer
// than all else that a command does.
var definitions = sync.OnceValue(func() map[schema.GroupVersionKind]func() definition {
	all := map[schema.GroupVersionKind]func() definition{}
	for _, crd := range config.CRDs() {
		for _, version := range crd.Spec.Versions {
			kind := schema.GroupVersionKind{Group: crd.Spec.Group, Version: version.Name, Kind: crd.Spec.Names.Kind}
			all[kind] = sync.OnceValue(func() definition { return compile(version.Schema.OpenAPIV3Schema) })
		}
	}
	return all
})

// compile compiles a schema. It panics on an error: the schemas are part of this program, and the API server takes
// them.
func compile(of *apiextensionsv1.JSONSchemaProps) definition {
	internal := &apiextensions.JSONSchemaProps{}
	utilruntime.Must(apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(of, internal, nil))
	structural, err := structuralschema.NewStructural(internal)
	utilruntime.Must(err)
	values, _, err := validation.NewSchemaValidator(internal)
	utilruntime.Must(err)
	return definition{structural: structural, values: values, rules: cel.NewValidator(structural, true, celconfig.PerCallLimit)}
}

// Validate returns what the API server would refuse when it creates an object of one of Poolboot's kinds, with the
// defaults of the schema. It does not report unknown fields and ignores the status. The namespace may be missing, as in
// files for kubectl apply -n. Other kinds are valid.
func Validate(kind schema.GroupVersionKind, object map[string]any) field.ErrorList {
	compiled, isOurs := definitions()[kind]
	if !isOurs {
		return nil
	}
	of := compiled()
	object = runtime.DeepCopyJSON(object)
	delete(object, "status")
	defaulting.PruneNonNullableNullsWithoutDefaults(object, of.structural)
	defaulting.Default(object, of.structural)

	whole := &unstructured.Unstructured{Object: object}
	if whole.GetNamespace() == "" {
		whole.SetNamespace(metav1.NamespaceDefault)
	}
	errs := apivalidation.ValidateObjectMetaAccessor(whole, true, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	errs = append(errs, validation.ValidateCustomResource(nil, object, of.values)...)
	errs = append(errs, listtype.ValidateListSetsAndMaps(nil, of.structural, object)...)
	if hasWrongShape(errs) {
		return errs // rules read values of the types in the schema
	}
	broken, _ := of.rules.Validate(context.Background(), nil, of.structural, object, nil, celconfig.RuntimeCELCostBudget)
	return append(errs, broken...)
}

// hasWrongShape reports whether there is an error for which the API server evaluates no rules.
func hasWrongShape(errs field.ErrorList) bool {
	for _, err := range errs {
		switch err.Type {
		case field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid:
			return true
		}
	}
	return false
}
