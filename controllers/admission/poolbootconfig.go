package admission

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/cure"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/identity"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
)

// +kubebuilder:webhook:verbs=create;update,path=/validate-bootstrap-cluster-x-k8s-io-v1alpha1-poolbootconfig,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=bootstrap.cluster.x-k8s.io,resources=poolbootconfigs,versions=v1alpha1,name=validation.poolbootconfig.bootstrap.cluster.x-k8s.io,sideEffects=None,admissionReviewVersions=v1

// PoolbootConfig validates PoolbootConfigs. Cluster API's contract wants fields that an in-place update may change to
// stay mutable, and the bootstrap Secret is written once; so what went into the Secret or onto the Node is immutable:
//
//   - configSource, once the Secret stands, but for its tokenBinding, which is not in there;
//   - with configSource.type: Inline the whole spec, once the Secret stands, because it is all in there;
//   - nodeName, once the Node stands.
//
// With configSource.type: Server everything else stays mutable and counts the next time the host asks.
type PoolbootConfig struct{}

var _ admission.Validator[*bootstrapv1.PoolbootConfig] = &PoolbootConfig{}

// ValidateCreate refuses a PoolbootConfig that no host could boot with.
func (*PoolbootConfig) ValidateCreate(_ context.Context, config *bootstrapv1.PoolbootConfig) (admission.Warnings, error) {
	return nil, invalid(bootstrapv1.GroupVersion.WithKind("PoolbootConfig"), config, validateConfigSpec(&config.Spec, field.NewPath("spec")))
}

// ValidateUpdate refuses changes of what is written already and holds others to what ValidateCreate asks for.
func (*PoolbootConfig) ValidateUpdate(_ context.Context, before, config *bootstrapv1.PoolbootConfig) (admission.Warnings, error) {
	if settled(config, before.Spec, config.Spec) {
		return nil, nil
	}
	spec := field.NewPath("spec")
	errs := slices.Concat(validateConfigSpec(&config.Spec, spec), validateWritten(before, config, spec))
	return nil, invalid(bootstrapv1.GroupVersion.WithKind("PoolbootConfig"), config, errs)
}

// ValidateDelete lets every PoolbootConfig be deleted.
func (*PoolbootConfig) ValidateDelete(context.Context, *bootstrapv1.PoolbootConfig) (admission.Warnings, error) {
	return nil, nil
}

// validateWritten refuses a change of what is in the bootstrap Secret or on the Node.
func validateWritten(before, config *bootstrapv1.PoolbootConfig, spec *field.Path) field.ErrorList {
	another := ": change the PoolbootConfigTemplate, and " + cure.Replace(config)
	hasSecret := before.Status.DataSecretName != ""
	switch {
	case hasSecret && before.Spec.IsInline() != config.Spec.IsInline():
		return field.ErrorList{field.Forbidden(spec.Child("configSource"), "it can't change once the bootstrap Secret stands"+another)}
	case hasSecret && before.Spec.IsInline():
		return field.ErrorList{field.Forbidden(spec, "with configSource.type Inline it is all in the bootstrap Secret, which is written once"+another)}
	case record.HasNode(before) && before.Spec.NodeNamedAfter() != config.Spec.NodeNamedAfter():
		return field.ErrorList{field.Forbidden(spec.Child("nodeNameSource"), "it can't change once Node "+before.Status.NodeRef.Name+" stands"+another)}
	}
	return nil
}

// validateConfigSpec checks the spec of a PoolbootConfig.
func validateConfigSpec(config *bootstrapv1.PoolbootConfigSpec, spec *field.Path) field.ErrorList {
	errs := validateBootSpec(&config.BootSpec, spec)
	if config.Host.IsDefined() {
		if err := (identity.Cluster{}).CheckNodeName(config.Host.NodeName); err != nil {
			errs = append(errs, field.Invalid(spec.Child("host", "nodeName"), config.Host.NodeName, err.Error()))
		}
	}
	return errs
}

// validateBootSpec checks what a PoolbootConfig and a template have in common.
func validateBootSpec(config *bootstrapv1.BootSpec, spec *field.Path) field.ErrorList {
	errs := validateNodeLabelRules(config.NodeLabelRules, nil, spec.Child("nodeLabelRules"))
	if extra := config.ExtraConfig; extra != nil {
		errs = append(errs, validateIgnition(extra.Config, extra.Butane, maxExtraSize, ignition.Guard, spec.Child("extraConfig"))...)
	}
	return errs
}
