package convert

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// warnNotRendered names what is wrong with MachineConfigs together: each one alone can be stored, and the pools that
// select them can't be rendered.
func (r *remarks) warnNotRendered(converted []runtime.Object) {
	var pools []poolv1.MachineConfigPool
	var configs []poolv1.MachineConfig
	for _, object := range converted {
		switch object := object.(type) {
		case *poolv1.MachineConfigPool:
			pools = append(pools, *object)
		case *poolv1.MachineConfig:
			configs = append(configs, *object)
		}
	}
	known := sets.New[string]()
	for _, p := range pools {
		_, err := pool.Render(p.Spec.PoolRole, pools, configs)
		if missing := (*pool.NotFoundError)(nil); err == nil || errors.As(err, &missing) {
			continue // it can be rendered, or the pool worker is refused
		}
		for _, one := range input.InOrder(r.objects.Locate(err)) {
			if !known.Has(one.Error()) {
				r.all = append(r.all, &remark{"warning", fmt.Errorf("%w. Until then, the pool %s can't be rendered", one, p.Name)})
			}
			known.Insert(one.Error())
		}
	}
}
