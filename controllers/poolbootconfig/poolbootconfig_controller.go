// Package poolbootconfig reconciles PoolbootConfigs after the Cluster API contract for bootstrap providers: it decides
// the pool, makes the bootstrap data Secret, computes Ready, and cleans up when a config goes. What happens when the host
// asks is the boot controller's, what happens once a kubelet came is the node controller's.
package poolbootconfig

import (
	"context"
	"errors"
	"regexp"

	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
)

// Reconciler reconciles PoolbootConfigs.
type Reconciler struct {
	// Client reads from the manager's cache and writes.
	Client client.Client
	// APIReader reads live: the data Secret, whose token must never be made twice.
	APIReader client.Reader
	// ClusterCache connects to workload clusters.
	ClusterCache clustercache.ClusterCache
	// Recorder takes events; left nil, SetupWithManager sets the manager's.
	Recorder events.EventRecorder

	// ServerURL is the config server's address as hosts reach it, https://host:port without a path.
	ServerURL string
	// ServerCA returns the PEM certificates by which hosts verify the config server.
	ServerCA func() ([]byte, error)
	// OverlayNamespace is where overlay Secrets are kept: the config server's own namespace.
	OverlayNamespace string
	// SyncedLabels are the regular expressions given to Cluster API's --additional-sync-machine-labels.
	SyncedLabels []*regexp.Regexp
	// WatchFilterValue is the value of the label cluster.x-k8s.io/watch-filter that objects must have; empty means all.
	WatchFilterValue string
}

// SetupWithManager adds the controller to a manager.
func (r *Reconciler) SetupWithManager(_ context.Context, mgr ctrl.Manager, options controller.Options) error {
	if r.Client == nil || r.APIReader == nil || r.ClusterCache == nil || r.ServerURL == "" || r.ServerCA == nil || r.OverlayNamespace == "" {
		return errors.New("poolbootconfig controller: Client, APIReader, ClusterCache, ServerURL, ServerCA and OverlayNamespace must be set")
	}
	return ctrl.NewControllerManagedBy(mgr).For(&bootstrapv1.PoolbootConfig{}).WithOptions(options).Complete(r)
}

// Reconcile brings one PoolbootConfig forward.
func (r *Reconciler) Reconcile(_ context.Context, _ ctrl.Request) (ctrl.Result, error) {
	return ctrl.Result{}, nil
}
