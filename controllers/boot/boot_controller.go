// Package boot prepares the boot of one machine when its host asks for its configuration: the Node stands in the
// workload cluster with everything its pool gives it, the join credential lives, and the machine's overlay is stored for the
// config server. All facts come from other packages; this one puts them in an order in which a crash between any two
// writes does no harm.
package boot

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

// Reconciler prepares the boots of PoolbootConfigs.
type Reconciler struct {
	// Client reads from the manager's cache and writes.
	Client client.Client
	// APIReader reads live: a PoolbootConfig that changed under a write.
	APIReader client.Reader
	// ClusterCache connects to workload clusters.
	ClusterCache clustercache.ClusterCache
	// Recorder takes events; left nil, SetupWithManager sets the manager's.
	Recorder events.EventRecorder

	// OverlayNamespace is where overlay Secrets are kept: the config server's own namespace.
	OverlayNamespace string
	// SyncedLabels are the regular expressions given to Cluster API's --additional-sync-machine-labels.
	SyncedLabels []*regexp.Regexp
	// WatchFilterValue is the value of the label cluster.x-k8s.io/watch-filter that objects must have; empty means all.
	WatchFilterValue string
}

// SetupWithManager adds the controller to a manager.
func (r *Reconciler) SetupWithManager(_ context.Context, mgr ctrl.Manager, options controller.Options) error {
	if r.Client == nil || r.APIReader == nil || r.ClusterCache == nil || r.OverlayNamespace == "" {
		return errors.New("boot controller: Client, APIReader, ClusterCache and OverlayNamespace must be set")
	}
	return ctrl.NewControllerManagedBy(mgr).Named("boot").For(&bootstrapv1.PoolbootConfig{}).WithOptions(options).Complete(r)
}

// Reconcile prepares the boot of one PoolbootConfig.
func (r *Reconciler) Reconcile(_ context.Context, _ ctrl.Request) (ctrl.Result, error) {
	return ctrl.Result{}, nil
}
