package admission

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/topology"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/access"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/outlook"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
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
	errs := validateConfigSpec(&config.Spec, spec)
	if record.IsAdopted(config) && record.ClusterName(config) == "" {
		errs = append(errs, field.Required(field.NewPath("metadata", "labels").Key(clusterv1.ClusterNameLabel), "it names the Cluster of the Node "+config.Spec.Host.NodeName))
	}
	return bootWarnings(&config.Spec.BootSpec, spec), invalid(bootstrapv1.GroupVersion.WithKind("PoolbootConfig"), config, errs)
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
		errs = append(errs, validation.Ignition(extra.Config, extra.Butane, validation.MaxExtraSize, pool.ScopeOfRole(config.PoolRole).Guard, spec.Child("extraConfig"))...)
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

// +kubebuilder:webhook:verbs=create;update,path=/validate-bootstrap-cluster-x-k8s-io-v1alpha1-poolbootconfigtemplate,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=bootstrap.cluster.x-k8s.io,resources=poolbootconfigtemplates,versions=v1alpha1,name=validation.poolbootconfigtemplate.bootstrap.cluster.x-k8s.io,sideEffects=None,admissionReviewVersions=v1

// PoolbootConfigTemplate validates PoolbootConfigTemplates. Their spec is immutable, except in dry runs of Cluster
// API's topology controller, which determines required changes this way.
type PoolbootConfigTemplate struct{}

var _ admission.Validator[*bootstrapv1.PoolbootConfigTemplate] = &PoolbootConfigTemplate{}

// ValidateCreate refuses a template whose PoolbootConfigs would be refused.
func (*PoolbootConfigTemplate) ValidateCreate(_ context.Context, template *bootstrapv1.PoolbootConfigTemplate) (admission.Warnings, error) {
	resource := field.NewPath("spec", "template")
	errs := append(template.Spec.Template.ObjectMeta.Validate(resource.Child("metadata")),
		validateBootSpec(&template.Spec.Template.Spec, resource.Child("spec"))...)
	warnings := slices.Concat(roleLabelWarnings(template), bootWarnings(&template.Spec.Template.Spec, resource.Child("spec")))
	return warnings, invalid(bootstrapv1.GroupVersion.WithKind("PoolbootConfigTemplate"), template, errs)
}

// roleLabelWarnings returns a warning for each role label in the metadata of a template. Only PoolbootConfigs get these
// labels, not Machines and Nodes, so they do not decide the pool.
func roleLabelWarnings(template *bootstrapv1.PoolbootConfigTemplate) (warnings admission.Warnings) {
	for _, key := range slices.Sorted(maps.Keys(template.Spec.Template.ObjectMeta.Labels)) {
		if strings.HasPrefix(key, poolv1.NodeRoleLabelPrefix) {
			warnings = append(warnings, fmt.Sprintf("spec.template.metadata.labels: %s does not decide the pool and is not set on Nodes: move it to spec.template.metadata.labels of the MachineDeployment, "+
				"or set spec.template.spec.poolRole", key))
		}
	}
	return warnings
}

// ValidateUpdate refuses every change of the spec. In a dry run of the topology controller, it only validates the new
// spec.
func (w *PoolbootConfigTemplate) ValidateUpdate(ctx context.Context, before, template *bootstrapv1.PoolbootConfigTemplate) (admission.Warnings, error) {
	if isUnchanged(template, before.Spec, template.Spec) {
		return nil, nil
	}
	request, err := admission.RequestFromContext(ctx)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	if topology.IsDryRunRequest(request, template) {
		return w.ValidateCreate(ctx, template)
	}
	return nil, invalid(bootstrapv1.GroupVersion.WithKind("PoolbootConfigTemplate"), template, field.ErrorList{field.Forbidden(
		field.NewPath("spec"), "it is immutable: create a new template and reference it in the MachineDeployment")})
}

// ValidateDelete allows every deletion.
func (*PoolbootConfigTemplate) ValidateDelete(context.Context, *bootstrapv1.PoolbootConfigTemplate) (admission.Warnings, error) {
	return nil, nil
}
