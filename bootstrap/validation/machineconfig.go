// Package validation validates MachineConfigs and MachineConfigPools beyond what the schema and the CEL rules of the
// CRDs can express. The webhooks and kubectl poolboot use it, so files are refused for the same reasons as objects. It
// does no I/O: callers pass the other pools of a Cluster.
package validation

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

// MachineConfig validates a MachineConfig: its Ignition or Butane must be valid and must not change what Poolboot
// manages, or kubeadm on the hosts of one of the pools that are given. The name of a rendered config must match its
// content. The warnings name keys that Ignition ignores, modes that were probably meant otherwise, and units that
// nothing starts.
func MachineConfig(config *poolv1.MachineConfig, pools ...poolv1.MachineConfigPool) (warnings []string, errs field.ErrorList) {
	scope, spec := pool.ScopeOf(config, pools), field.NewPath("spec")
	document := spec.Child("config")
	if config.Spec.Config == nil {
		document = spec.Child("butane")
	}
	warnings = KeyWarnings(config.Spec.Config, spec)
	errs = Ignition(config.Spec.Config, config.Spec.Butane, pool.MaxSize, func(parsed ignition.Config) error {
		for _, problem := range append(ignition.CheckModes(parsed), ignition.CheckUnits(parsed)...) {
			warnings = append(warnings, childPath(document, problem.Path).String()+": "+problem.Message)
		}
		return scope.Guard(parsed)
	}, spec)
	errs = append(errs, guardErrors(ignition.GuardArguments(config.Spec.KernelArguments), spec)...)
	return warnings, append(errs, validateRendered(config)...)
}

// validateRendered validates that the name of a rendered config has the hash of its content.
func validateRendered(config *poolv1.MachineConfig) field.ErrorList {
	if !pool.IsRenderedName(config.Name) {
		return nil
	}
	if name, err := pool.NameFor(config.Labels[poolv1.RenderedForLabel], config.Spec); err == nil && name == config.Name {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata", "name"), config.Name, "names that start with "+poolv1.RenderedNamePrefix+
		" are reserved for rendered configs, which are named by their content and never change: "+
		"use another name, or change the MachineConfigs from which it was rendered")}
}
