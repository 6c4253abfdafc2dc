package admission

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/cluster-api/util/topology"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

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
