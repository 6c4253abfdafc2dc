// Package fairqueue provides a fair workqueue for controllers that call workload clusters. It schedules requests round
// robin among namespaces, within a namespace round robin among Clusters, and within a Cluster round robin among pools.
// It limits how many requests of a Cluster and of a namespace are in flight. So neither a Cluster with a slow API
// server, nor a namespace with any number of them, can occupy all workers.
package fairqueue

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
)

// MaxBusyClusters is how many Clusters of one namespace can have their maximum number of requests in flight before the
// other Clusters of the namespace have to wait for a worker, if nothing else is in flight.
const MaxBusyClusters = 10

// maxRetry is the longest time between two tries after errors. An error of one phase must not delay for longer what
// another phase does at a certain time: it extends a join credential, goes on with a drain, or ends the pause of health
// checks.
const maxRetry = time.Minute

// newRetries returns the delays after errors: they double from 5 ms up to maxRetry.
func newRetries() workqueue.TypedRateLimiter[ctrl.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](5*time.Millisecond, maxRetry)
}

// Options returns controller options with a fair queue, and with delays after errors of at most a minute.
// MaxConcurrentReconciles of the given options becomes the maximum number of requests that each Cluster can have in
// flight. A namespace can have as many requests in flight as there are idle workers, so one namespace occupies half of
// the workers at most. The controller gets so many workers that this half is MaxBusyClusters Clusters. flowOf is called
// each time a request is added, so it must not do I/O.
func Options(options controller.Options, flowOf func(ctrl.Request) Flow) controller.Options {
	maxInFlight := max(options.MaxConcurrentReconciles, 1)
	return withQueue(options, maxInFlight, 2*MaxBusyClusters*maxInFlight, flowOf)
}

// OptionsForClusters returns controller options with a fair queue for a controller whose requests are Clusters.
// MaxConcurrentReconciles stays the number of workers, of which a namespace can have as many as are idle, and at least
// one of two.
func OptionsForClusters(options controller.Options) controller.Options {
	return withQueue(options, 1, max(options.MaxConcurrentReconciles, 2), FlowOfCluster)
}

func withQueue(options controller.Options, maxInFlight, workers int, flowOf func(ctrl.Request) Flow) controller.Options {
	options.MaxConcurrentReconciles, options.RateLimiter = workers, newRetries()
	options.NewQueue = func(name string, limiter workqueue.TypedRateLimiter[ctrl.Request]) workqueue.TypedRateLimitingInterface[ctrl.Request] {
		return newQueue(name, limiter, maxInFlight, workers, flowOf)
	}
	return options
}

// EnqueueLow returns a handler that adds the requests of a map function, for the old and the new object, with a low
// priority: each is scheduled after the other requests of its pool, and a Paced queue delays it. It is for events that
// concern all hosts of a pool, of which few have something to do, and for those of all hosts that concern one pool. The
// controller must have Options.
func EnqueueLow(requests handler.MapFunc) handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[ctrl.Request]
	add := func(ctx context.Context, q queue, objects ...client.Object) {
		for _, object := range objects {
			q.(priorityqueue.PriorityQueue[ctrl.Request]).AddWithOpts(priorityqueue.AddOpts{Priority: ptr.To(handler.LowPriority)}, requests(ctx, object)...)
		}
	}
	return handler.Funcs{
		CreateFunc:  func(ctx context.Context, e event.CreateEvent, q queue) { add(ctx, q, e.Object) },
		UpdateFunc:  func(ctx context.Context, e event.UpdateEvent, q queue) { add(ctx, q, e.ObjectOld, e.ObjectNew) },
		DeleteFunc:  func(ctx context.Context, e event.DeleteEvent, q queue) { add(ctx, q, e.Object) },
		GenericFunc: func(ctx context.Context, e event.GenericEvent, q queue) { add(ctx, q, e.Object) },
	}
}

// queue adds client-go's delays and rate limits, and controller-runtime's priorities, to a scheduler.
type queue struct {
	workqueue.TypedRateLimitingInterface[ctrl.Request]
	scheduler *scheduler
}

var _ priorityqueue.PriorityQueue[ctrl.Request] = &queue{}

func newQueue(name string, limiter workqueue.TypedRateLimiter[ctrl.Request], maxInFlight, workers int, flowOf func(ctrl.Request) Flow) *queue {
	s := &scheduler{
		maxInFlight: maxInFlight, idle: workers, flowOf: flowOf, meter: newMeter(name),
		requests: map[ctrl.Request]*request{}, namespaces: map[string]*namespace{},
	}
	s.changed = sync.NewCond(&s.mu)
	return &queue{scheduler: s, TypedRateLimitingInterface: workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[ctrl.Request]{
		Name: name,
		DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[ctrl.Request]{
			Name: name, Queue: s,
		}),
	})}
}

// AddWithOpts adds requests. Requests with a negative priority, such as those from the initial list of a cache, are
// scheduled after the other requests of their pool. The priority of a delayed request is ignored.
func (q *queue) AddWithOpts(o priorityqueue.AddOpts, requests ...ctrl.Request) {
	for _, r := range requests {
		switch {
		case o.RateLimited:
			q.AddRateLimited(r)
		case o.After > time.Duration(0):
			q.AddAfter(r, o.After)
		default:
			q.scheduler.add(r, o.Priority != nil && *o.Priority < 0)
		}
	}
}

// GetWithPriority blocks until a request is scheduled, and returns it.
func (q *queue) GetWithPriority() (ctrl.Request, int, bool) {
	r, shutdown := q.Get()
	return r, 0, shutdown
}

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
