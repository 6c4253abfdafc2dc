package validation

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

// validateKubelet validates the kubelet configuration of a pool, alone and merged with that of the worker pool. For the
// worker pool, it also validates the merged result of each pool that inherits from it.
func validateKubelet(p *poolv1.MachineConfigPool, others []poolv1.MachineConfigPool, at *field.Path) field.ErrorList {
	worker, err := pool.OfRole(others, poolv1.RoleWorker)
	if err != nil {
		worker = nil // several worker pools: another rule reports this
	}
	var kubeletErr *pool.KubeletError
	switch err := pool.CheckKubelet(p, worker); {
	case errors.As(err, &kubeletErr) && kubeletErr.Pool == p.Name:
		return kubeletErr.Explain()
	case errors.As(err, &kubeletErr):
		return nil // the error is in the worker pool
	case err != nil:
		return field.ErrorList{field.InternalError(at, err)}
	case pool.IsCustom(p.Spec.PoolRole):
		return nil
	}
	var errs field.ErrorList
	for i := range others {
		if err := pool.CheckKubelet(&others[i], p); errors.As(err, &kubeletErr) && kubeletErr.Inherited {
			for _, err := range kubeletErr.Errs {
				err.Detail += fmt.Sprintf(" (in MachineConfigPool %s, which inherits fields of this pool)", others[i].Name)
			}
			errs = append(errs, kubeletErr.Errs...)
		}
	}
	return errs
}
