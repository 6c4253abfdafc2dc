package admission

import (
	"errors"

	"k8s.io/apimachinery/pkg/util/validation/field"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

// validateKubelet checks a pool's kubelet section: by itself, with that of worker, and when it is worker's with those
// of the pools that inherit it.
func validateKubelet(p *poolv1.MachineConfigPool, others []poolv1.MachineConfigPool, at *field.Path) field.ErrorList {
	worker, err := pool.OfRole(others, poolv1.RoleWorker)
	if err != nil {
		worker = nil // it can't be looked at; that there are two of a role is their own mistake
	}
	var wrong *pool.KubeletError
	switch err := pool.CheckKubelet(p, worker); {
	case errors.As(err, &wrong) && wrong.Inherited:
		return field.ErrorList{field.Invalid(at, field.OmitValueType{}, err.Error())}
	case errors.As(err, &wrong) && wrong.Pool == p.Name:
		return wrong.Errs
	case errors.As(err, &wrong):
		return nil // worker's own mistake
	case err != nil:
		return field.ErrorList{field.InternalError(at, err)}
	case pool.IsCustom(p.Spec.PoolRole):
		return nil
	}
	var errs field.ErrorList
	for i := range others {
		if err := pool.CheckKubelet(&others[i], p); errors.As(err, &wrong) && wrong.Inherited {
			errs = append(errs, field.Invalid(at, field.OmitValueType{}, err.Error()))
		}
	}
	return errs
}
