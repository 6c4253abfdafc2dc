package validation

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
)

// MachineConfigPool validates a pool, alone and together with the other pools of its Cluster.
func MachineConfigPool(p *poolv1.MachineConfigPool, others []poolv1.MachineConfigPool) field.ErrorList {
	var errs field.ErrorList
	spec := field.NewPath("spec")
	errs = append(errs, metav1validation.ValidateLabelSelector(p.Spec.MachineConfigSelector, metav1validation.LabelSelectorValidationOptions{},
		spec.Child("machineConfigSelector"))...)
	errs = append(errs, metav1validation.ValidateLabelSelector(p.Spec.NodeSelector, metav1validation.LabelSelectorValidationOptions{},
		spec.Child("nodeSelector"))...)
	errs = append(errs, NodeLabelRules(p.Spec.Node.LabelRules, labelKeysInUse(p, others), spec.Child("node", "labelRules"))...)
	errs = append(errs, validateKubelet(p, others, spec.Child("kubelet", "configuration"))...)
	errs = append(errs, metav1validation.ValidateLabelSelector(p.Spec.Updates.Canary.NodeSelector, metav1validation.LabelSelectorValidationOptions{},
		spec.Child("updates", "canary", "nodeSelector"))...)
	_, windowErrs := rollout.ParseWindow(p.Spec.Updates.MaintenanceWindow, spec.Child("updates", "maintenanceWindow"))
	errs = append(errs, windowErrs...)
	errs = append(errs, rollout.CheckGates(p.Spec.Updates.Gates, spec.Child("updates", "gates"))...)
	errs = append(errs, PausedConfiguration(p)...)
	if name := p.Spec.ConfigurationName; name != "" && !pool.IsRenderedNameOf(p.Name, name) {
		errs = append(errs, NotRendered(p))
	}
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

// PausedConfiguration validates the name of what a paused pool hands out. Whether it exists is in a condition.
func PausedConfiguration(p *poolv1.MachineConfigPool) field.ErrorList {
	name := p.Annotations[poolv1.PausedConfigurationAnnotation]
	if !p.Spec.IsPaused() || name == "" || pool.IsRenderedNameOf(p.Name, name) {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata", "annotations").Key(poolv1.PausedConfigurationAnnotation), name, fmt.Sprintf(
		"it is no name of a rendered config of this pool: use one that %s -o wide lists, or leave it out", rollout.Command("history", p)))}
}

// NotRendered returns the error about a spec.configurationName that names no rendered config of the pool.
func NotRendered(p *poolv1.MachineConfigPool) *field.Error {
	return field.Invalid(field.NewPath("spec", "configurationName"), p.Spec.ConfigurationName, fmt.Sprintf(
		"it is no rendered config of this pool that exists: use one that %s -o wide lists, or leave it out", rollout.Command("history", p)))
}

// validateMembership validates that the derived labels of the pool select no other pool, and that those of other pools
// do not select this pool.
func validateMembership(p *poolv1.MachineConfigPool, others []poolv1.MachineConfigPool) field.ErrorList {
	if p.Spec.PoolRole == poolv1.RoleControlPlane { // the Nodes with its labels are in no other pool, whatever that selects
		return nil
	}
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
	var conflict *pool.ConflictError
	var reported []string // roles of other pools
	switch decision, err := pool.Decide(own, append(slices.Clone(others), *p)); {
	case errors.As(err, &conflict):
		reported = conflict.Roles
		errs = append(errs, field.Invalid(nodeSelector, field.OmitValueType{}, fmt.Sprintf(
			"Nodes with these labels are in the pools %s, and a Node can be in one custom pool only: select labels that no other pool selects",
			strings.Join(conflict.Roles, " and "))))
	case err != nil:
		errs = append(errs, field.Invalid(nodeSelector, field.OmitValueType{}, err.Error()))
	case decision.Role != p.Spec.PoolRole:
		errs = append(errs, field.Invalid(nodeSelector, field.OmitValueType{}, fmt.Sprintf(
			"Nodes with these labels are in the pool %q: select another label", decision.Role)))
	}
	for _, other := range others {
		otherLabels, err := pool.Labels(other)
		if err != nil || slices.Contains(reported, other.Spec.PoolRole) || other.Spec.PoolRole == poolv1.RoleControlPlane {
			continue // with err, the error is in the other pool
		}
		// A third pool changes nothing about these two.
		decision, err := pool.Decide(otherLabels, []poolv1.MachineConfigPool{other, *p})
		if decision.Role == p.Spec.PoolRole || errors.As(err, &conflict) && slices.Contains(conflict.Roles, p.Spec.PoolRole) {
			errs = append(errs, field.Invalid(nodeSelector, field.OmitValueType{}, fmt.Sprintf(
				"it also selects the Nodes of MachineConfigPool %s (role %s): select a label that they do not have", other.Name, other.Spec.PoolRole)))
		}
	}
	return errs
}

// validateSelectorLabels refuses a node selector that requires labels which Poolboot sets. The rules for node.labels
// are in the CRD.
func validateSelectorLabels(labels map[string]string, role string, path *field.Path) (errs field.ErrorList) {
	if _, ok := labels[poolv1.NodeMetal3UUIDLabel]; ok {
		errs = append(errs, field.Forbidden(path.Key(poolv1.NodeMetal3UUIDLabel), "Poolboot sets it to the UID of the BareMetalHost of the Node: leave it out"))
	}
	if value, ok := labels[poolv1.NodePoolLabel]; ok && value != role {
		errs = append(errs, field.Forbidden(path.Key(poolv1.NodePoolLabel), "Poolboot sets it to the pool role of the Node: leave it out"))
	}
	return errs
}

// validateKubelet validates the kubelet configuration of a pool, alone and merged with that of the worker pool. For the
// worker pool, it also validates the merged result of each pool that inherits from it.
func validateKubelet(p *poolv1.MachineConfigPool, others []poolv1.MachineConfigPool, at *field.Path) field.ErrorList {
	parent, _ := pool.ParentOf(p, others) // several worker pools: another rule reports this
	var kubeletErr *pool.KubeletError
	switch err := pool.CheckKubelet(p, parent); {
	case errors.As(err, &kubeletErr) && kubeletErr.Pool == p.Name:
		return kubeletErr.Explain()
	case errors.As(err, &kubeletErr):
		return nil // the error is in the worker pool
	case err != nil:
		return field.ErrorList{field.InternalError(at, err)}
	case p.Spec.PoolRole != poolv1.RoleWorker:
		return nil
	}
	var errs field.ErrorList
	for i := range others {
		if !pool.IsCustom(others[i].Spec.PoolRole) {
			continue
		}
		if err := pool.CheckKubelet(&others[i], p); errors.As(err, &kubeletErr) && kubeletErr.Inherited {
			for _, err := range kubeletErr.Errs {
				err.Detail += fmt.Sprintf(" (in MachineConfigPool %s, which inherits fields of this pool)", others[i].Name)
			}
			errs = append(errs, kubeletErr.Errs...)
		}
	}
	return errs
}
