package admission

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/access"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/outlook"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/validation"
)

// +kubebuilder:webhook:verbs=create;update,path=/validate-bootstrap-cluster-x-k8s-io-v1alpha1-poolbootconfig,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=bootstrap.cluster.x-k8s.io,resources=poolbootconfigs,versions=v1alpha1,name=validation.poolbootconfig.bootstrap.cluster.x-k8s.io,sideEffects=None,admissionReviewVersions=v1

// PoolbootConfig validates PoolbootConfigs. Cluster API's contract requires that fields which an in-place update can
// change are mutable. The data Secret is written once. So only what is in the Secret or on the Node is immutable:
//
//   - the type of configSource, after the Secret exists;
//   - with configSource.type Inline, the whole spec, after the Secret exists, because the Secret has all of it;
//   - nodeNameSource, after the Node exists.
//
// With configSource.type Server, every other change takes effect with the next request of the host.
type PoolbootConfig struct{}

var _ admission.Validator[*bootstrapv1.PoolbootConfig] = &PoolbootConfig{}

// ValidateCreate refuses a PoolbootConfig with which no host can boot.
func (*PoolbootConfig) ValidateCreate(_ context.Context, config *bootstrapv1.PoolbootConfig) (admission.Warnings, error) {
	spec := field.NewPath("spec")
	return bootWarnings(&config.Spec.BootSpec, spec), invalid(bootstrapv1.GroupVersion.WithKind("PoolbootConfig"), config, validateConfigSpec(&config.Spec, spec))
}

// ValidateUpdate refuses changes of immutable fields, and validates other changes as ValidateCreate does.
func (*PoolbootConfig) ValidateUpdate(_ context.Context, before, config *bootstrapv1.PoolbootConfig) (admission.Warnings, error) {
	if isUnchanged(config, before.Spec, config.Spec) {
		return nil, nil
	}
	spec := field.NewPath("spec")
	errs := slices.Concat(validateConfigSpec(&config.Spec, spec), validateImmutable(before, config, spec))
	return bootWarnings(&config.Spec.BootSpec, spec), invalid(bootstrapv1.GroupVersion.WithKind("PoolbootConfig"), config, errs)
}

// ValidateDelete allows every deletion.
func (*PoolbootConfig) ValidateDelete(context.Context, *bootstrapv1.PoolbootConfig) (admission.Warnings, error) {
	return nil, nil
}

// validateImmutable refuses a change of what is in the data Secret or on the Node.
func validateImmutable(before, config *bootstrapv1.PoolbootConfig, spec *field.Path) field.ErrorList {
	suffix := ": change the PoolbootConfigTemplate, and " + outlook.HowToReplace(config)
	hasSecret := before.Status.DataSecretName != ""
	switch {
	case hasSecret && before.Spec.IsInline() != config.Spec.IsInline():
		return field.ErrorList{field.Forbidden(spec.Child("configSource"), "its type cannot change after the data Secret exists"+suffix)}
	case hasSecret && before.Spec.IsInline():
		return field.ErrorList{field.Forbidden(spec, "with configSource.type Inline, the data Secret contains all of it and is written only once"+suffix)}
	case record.HasNode(before) && before.Spec.NodeNamedAfter() != config.Spec.NodeNamedAfter():
		return field.ErrorList{field.Forbidden(spec.Child("nodeNameSource"), "it cannot change after Node "+before.Status.NodeRef.Name+" exists"+suffix)}
	}
	return nil
}

// validateConfigSpec validates the spec of a PoolbootConfig.
func validateConfigSpec(config *bootstrapv1.PoolbootConfigSpec, spec *field.Path) field.ErrorList {
	errs := validateBootSpec(&config.BootSpec, spec)
	if config.Host.IsDefined() {
		if err := (access.Cluster{}).CheckNodeName(config.Host.NodeName); err != nil {
			errs = append(errs, field.Invalid(spec.Child("host", "nodeName"), config.Host.NodeName, err.Error()))
		}
	}
	return errs
}

// validateBootSpec validates the fields that a PoolbootConfig and a template have in common.
func validateBootSpec(config *bootstrapv1.BootSpec, spec *field.Path) field.ErrorList {
	errs := validation.NodeLabelRules(config.Node.LabelRules, nil, spec.Child("node", "labelRules"))
	if extra := config.ExtraConfig; extra != nil {
		errs = append(errs, validation.Ignition(extra.Config, extra.Butane, validation.MaxExtraSize, ignition.Guard, spec.Child("extraConfig"))...)
	}
	return errs
}

// bootWarnings returns a warning for each key of the extra config that Ignition ignores without a loss.
func bootWarnings(config *bootstrapv1.BootSpec, spec *field.Path) admission.Warnings {
	if config.ExtraConfig == nil {
		return nil
	}
	return validation.KeyWarnings(config.ExtraConfig.Config, spec.Child("extraConfig"))
}
