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

// flowOf returns a function that reads the object of a request with a reader, which must be a cache, and returns its
// flow. Requests for deleted objects of a namespace are one flow.
func flowOf[T any, Object interface {
	*T
	client.Object
}](objects client.Reader, flow func(Object) Flow) func(ctrl.Request) Flow {
	return func(r ctrl.Request) Flow {
		object := Object(new(T))
		if err := objects.Get(context.Background(), r.NamespacedName, object, client.UnsafeDisableDeepCopy); err != nil {
			return Flow{Cluster: client.ObjectKey{Namespace: r.Namespace}}
		}
		return flow(object)
	}
}

// FlowOfConfig returns a function that returns the flow of requests for PoolbootConfigs, as flowOf reads them. Those
// that are being deleted, or have no pool yet, do not wait behind the hosts of a pool.
func FlowOfConfig(configs client.Reader) func(ctrl.Request) Flow {
	return flowOf(configs, func(config *bootstrapv1.PoolbootConfig) Flow {
		if !config.DeletionTimestamp.IsZero() {
			return Flow{Cluster: record.ClusterKey(config)}
		}
		return Flow{Cluster: record.ClusterKey(config), Pool: config.Status.PoolRole}
	})
}

// FlowOfPool returns a function that returns the flow of requests for MachineConfigPools, as flowOf reads them.
func FlowOfPool(pools client.Reader) func(ctrl.Request) Flow {
	return flowOf(pools, func(p *poolv1.MachineConfigPool) Flow {
		return Flow{Cluster: client.ObjectKey{Namespace: p.Namespace, Name: p.Spec.ClusterName}, Pool: p.Spec.PoolRole}
	})
}

// FlowOfEnrollment returns a function that returns the flow of requests for Enrollments, as flowOf reads them.
func FlowOfEnrollment(enrollments client.Reader) func(ctrl.Request) Flow {
	return flowOf(enrollments, func(e *poolv1.Enrollment) Flow {
		return Flow{Cluster: client.ObjectKey{Namespace: e.Namespace, Name: e.Spec.ClusterName}}
	})
}

// FlowOfCluster returns the flow of requests for Clusters.
func FlowOfCluster(r ctrl.Request) Flow { return Flow{Cluster: r.NamespacedName} }
