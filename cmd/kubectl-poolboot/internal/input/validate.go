package input

import (
	"errors"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/validation"
	objectschema "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/schema"
)

// Own returns Poolboot's objects, in their order.
func (o *Objects) Own() []Item {
	return slices.DeleteFunc(slices.Clone(o.items), func(item Item) bool { return !item.isOwn() })
}

// isOwn reports whether the object is one of Poolboot's.
func (i Item) isOwn() bool { return slices.Contains(ownKinds, i.Kind) }

// Written returns the object as it is written.
func (i Item) Written() *unstructured.Unstructured {
	written := &unstructured.Unstructured{}
	utilruntime.Must(kjson.UnmarshalCaseSensitivePreserveInts(i.raw, &written.Object)) // it was decoded
	written.SetGroupVersionKind(i.Kind)                                                // items of lists leave it out
	return written
}

// Validate returns what the API server would refuse in an object of Poolboot's, and its webhook in a MachineConfig.
// Rendered configs are not validated: nothing reads them from files.
func (i Item) Validate() field.ErrorList {
	config, isConfig := i.Object.(*poolv1.MachineConfig)
	if isConfig && pool.IsRenderedName(config.Name) {
		return nil
	}
	errs := objectschema.Validate(i.Kind, i.Written().Object)
	if isConfig {
		_, more := validation.MachineConfig(config)
		errs = append(errs, more...)
	}
	return errs
}

// ValidateConfig returns what the API server and the webhook would refuse in a MachineConfig of Poolboot that was read
// as one of OpenShift, and what the webhook would warn of, with these pools.
func ValidateConfig(config *poolv1.MachineConfig, pools ...poolv1.MachineConfigPool) (warnings []string, errs field.ErrorList) {
	written, err := runtime.DefaultUnstructuredConverter.ToUnstructured(config)
	utilruntime.Must(err) // the object was read from JSON
	warnings, errs = validation.MachineConfig(config, pools...)
	return warnings, append(errs, objectschema.Validate(ConfigKind, written)...)
}

// validatePools returns what the webhook would refuse in Poolboot's pools, each with the others of its Cluster.
func (o *Objects) validatePools() error {
	var pools []poolv1.MachineConfigPool
	for _, p := range Of[*poolv1.MachineConfigPool](o) {
		if !IsOpenShift(p.TypeMeta) {
			pools = append(pools, *p)
		}
	}
	var refused []error
	for i := range pools {
		refused = append(refused, o.Refuse(PoolKind.Kind, pools[i].Name, ValidatePool(pools, i)))
	}
	return errors.Join(refused...)
}

// ValidatePool returns what the webhook would refuse in one of several pools, except an empty node selector, which the
// schema refuses. It does not compare the pool with those that have an invalid selector, which are refused themselves.
func ValidatePool(pools []poolv1.MachineConfigPool, i int) field.ErrorList {
	others := slices.Concat(pools[:i], pools[i+1:])
	errs := validation.MachineConfigPool(&pools[i], slices.DeleteFunc(others, func(other poolv1.MachineConfigPool) bool {
		_, invalid := pool.Labels(other)
		return invalid != nil || other.Spec.ClusterName != pools[i].Spec.ClusterName || other.Namespace != pools[i].Namespace
	}))
	return slices.DeleteFunc(errs, func(err *field.Error) bool {
		return err.Field == nodeSelectorField && isEmptySelector(&pools[i])
	})
}
