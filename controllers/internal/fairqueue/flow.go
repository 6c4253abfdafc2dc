package fairqueue

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
)

// Flow identifies the requests that share a first-in, first-out queue: those of one pool of one Cluster.
type Flow struct {
	Cluster client.ObjectKey
	// Pool is the pool role. It is empty if the role is not known yet, or if all requests of the Cluster are one flow.
	Pool string
}

// FlowOfConfig returns a function that returns the flow of requests for PoolbootConfigs. It reads the PoolbootConfigs
// with the given reader, which must be a cache. Requests for deleted PoolbootConfigs of a namespace are one flow. Those
// that are being deleted, or have no pool yet, do not wait behind the hosts of a pool.
func FlowOfConfig(configs client.Reader) func(ctrl.Request) Flow {
	return func(r ctrl.Request) Flow {
		config := &bootstrapv1.PoolbootConfig{}
		if err := configs.Get(context.Background(), r.NamespacedName, config, client.UnsafeDisableDeepCopy); err != nil {
			return Flow{Cluster: client.ObjectKey{Namespace: r.Namespace}}
		}
		if !config.DeletionTimestamp.IsZero() {
			return Flow{Cluster: record.ClusterKey(config)}
		}
		return Flow{Cluster: record.ClusterKey(config), Pool: config.Status.PoolRole}
	}
}

// FlowOfPool returns a function that returns the flow of requests for MachineConfigPools. It reads the pools with the
// given reader, which must be a cache. Requests for deleted pools of a namespace are one flow.
func FlowOfPool(pools client.Reader) func(ctrl.Request) Flow {
	return func(r ctrl.Request) Flow {
		p := &poolv1.MachineConfigPool{}
		if err := pools.Get(context.Background(), r.NamespacedName, p, client.UnsafeDisableDeepCopy); err != nil {
			return Flow{Cluster: client.ObjectKey{Namespace: r.Namespace}}
		}
		return Flow{Cluster: client.ObjectKey{Namespace: p.Namespace, Name: p.Spec.ClusterName}, Pool: p.Spec.PoolRole}
	}
}

// FlowOfEnrollment returns a function that returns the flow of requests for Enrollments. It reads the Enrollments with
// the given reader, which must be a cache. Requests for deleted Enrollments of a namespace are one flow.
func FlowOfEnrollment(enrollments client.Reader) func(ctrl.Request) Flow {
	return func(r ctrl.Request) Flow {
		e := &poolv1.Enrollment{}
		if err := enrollments.Get(context.Background(), r.NamespacedName, e, client.UnsafeDisableDeepCopy); err != nil {
			return Flow{Cluster: client.ObjectKey{Namespace: r.Namespace}}
		}
		return Flow{Cluster: client.ObjectKey{Namespace: e.Namespace, Name: e.Spec.ClusterName}}
	}
}

// FlowOfCluster returns the flow of requests for Clusters.
func FlowOfCluster(r ctrl.Request) Flow { return Flow{Cluster: r.NamespacedName} }
