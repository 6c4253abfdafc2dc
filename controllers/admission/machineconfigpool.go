package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/maintenance"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/updategate"
)

// +kubebuilder:webhook:verbs=create;update;delete,path=/validate-pool-cluster-x-k8s-io-v1alpha1-machineconfigpool,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=pool.cluster.x-k8s.io,resources=machineconfigpools,versions=v1alpha1,name=validation.machineconfigpool.pool.cluster.x-k8s.io,sideEffects=None,admissionReviewVersions=v1

// MachineConfigPool validates MachineConfigPools: there must be labels that select a Node for this pool and for no
// other pool, and only one pool of a Cluster can have a role. It refuses the deletion of a pool in use.
type MachineConfigPool struct {
	// Reader reads from the API server.
	Reader client.Reader
}

var _ admission.Validator[*poolv1.MachineConfigPool] = &MachineConfigPool{}

// ValidateCreate refuses a pool in which no Node can register, and returns warnings about probable mistakes.
func (w *MachineConfigPool) ValidateCreate(ctx context.Context, p *poolv1.MachineConfigPool) (admission.Warnings, error) {
	others, err := w.otherPools(ctx, p)
	if err != nil {
		return nil, err
	}
	if err := invalid(poolv1.GroupVersion.WithKind("MachineConfigPool"), p, validatePool(p, others)); err != nil {
		return nil, err
	}
	return w.warnings(ctx, p, others)
}

// otherPools returns the other pools of the Cluster of a pool.
func (w *MachineConfigPool) otherPools(ctx context.Context, p *poolv1.MachineConfigPool) ([]poolv1.MachineConfigPool, error) {
	pools := &poolv1.MachineConfigPoolList{}
	if err := w.Reader.List(ctx, pools, client.InNamespace(p.Namespace)); err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("MachineConfigPools of namespace %s: %w", p.Namespace, err))
	}
	return slices.DeleteFunc(pools.Items, func(other poolv1.MachineConfigPool) bool {
		return other.Name == p.Name || other.Spec.ClusterName != p.Spec.ClusterName
	}), nil
}

// ValidateUpdate validates a changed spec as ValidateCreate does.
func (w *MachineConfigPool) ValidateUpdate(ctx context.Context, before, p *poolv1.MachineConfigPool) (admission.Warnings, error) {
	if isUnchanged(p, before.Spec, p.Spec) {
		return nil, nil
	}
	return w.ValidateCreate(ctx, p)
}

// validatePool validates a pool, alone and together with the other pools of its Cluster.
func validatePool(p *poolv1.MachineConfigPool, others []poolv1.MachineConfigPool) field.ErrorList {
	var errs field.ErrorList
	spec := field.NewPath("spec")
	errs = append(errs, metav1validation.ValidateLabelSelector(p.Spec.MachineConfigSelector, metav1validation.LabelSelectorValidationOptions{},
		spec.Child("machineConfigSelector"))...)
	errs = append(errs, metav1validation.ValidateLabelSelector(p.Spec.NodeSelector, metav1validation.LabelSelectorValidationOptions{},
		spec.Child("nodeSelector"))...)
	errs = append(errs, validateNodeLabelRules(p.Spec.NodeLabelRules, labelKeysInUse(p, others), spec.Child("nodeLabelRules"))...)
	errs = append(errs, validateKubelet(p, others, spec.Child("kubeletConfiguration"))...)
	_, windowErrs := maintenance.Parse(p.Spec.MaintenanceWindow, spec.Child("maintenanceWindow"))
	errs = append(errs, windowErrs...)
	errs = append(errs, updategate.Check(p.Spec.UpdateGates, spec.Child("updateGates"))...)
	for _, other := range others {
		if pool.SameRole(&other, p) {
			errs = append(errs, field.Invalid(spec.Child("poolRole"), p.Spec.PoolRole, fmt.Sprintf(
				"MachineConfigPool %s of Cluster %s already has this role: change that pool, or use another role", other.Name, p.Spec.ClusterName)))
		}
	}
	if len(errs) > 0 {
		return errs
	}
	return validateMembership(p, others)
}

// validateMembership validates that the derived labels of the pool select no other pool, and that those of other pools
// do not select this pool.
func validateMembership(p *poolv1.MachineConfigPool, others []poolv1.MachineConfigPool) field.ErrorList {
	nodeSelector := field.NewPath("spec", "nodeSelector")
	own, err := pool.Labels(*p)
	var notRegistrable *pool.NotRegistrableError
	switch {
	case errors.As(err, &notRegistrable):
		return field.ErrorList{field.Invalid(field.NewPath(notRegistrable.Path), field.OmitValueType{}, notRegistrable.Why)}
	case err != nil:
		return field.ErrorList{field.Invalid(nodeSelector, field.OmitValueType{}, err.Error())}
	}
	errs := validateSelectorLabels(own, p.Spec.PoolRole, nodeSelector)
	all := append(slices.Clone(others), *p)
	if decision, err := pool.Decide(own, all); err != nil {
		errs = append(errs, field.Invalid(nodeSelector, field.OmitValueType{}, err.Error()))
	} else if decision.Role != p.Spec.PoolRole {
		errs = append(errs, field.Invalid(nodeSelector, field.OmitValueType{}, fmt.Sprintf(
			"Nodes with these labels are in the pool %q: select another label", decision.Role)))
	}
	for _, other := range others {
		otherLabels, err := pool.Labels(other)
		if err != nil {
			continue // the error is in the other pool
		}
		var conflict *pool.ConflictError
		decision, err := pool.Decide(otherLabels, all)
		if decision.Role == p.Spec.PoolRole || errors.As(err, &conflict) && slices.Contains(conflict.Roles, p.Spec.PoolRole) {
			errs = append(errs, field.Invalid(nodeSelector, field.OmitValueType{}, fmt.Sprintf(
				"it also selects the Nodes of MachineConfigPool %s (role %s): select a label that they do not have", other.Name, other.Spec.PoolRole)))
		}
	}
	return errs
}
