// Package node watches the Nodes that Poolboot pre-registered. It completes a boot when the kubelet is Ready in its
// pool, records the pool of the Node, and restores the labels of a Node that registered again. It creates and deletes
// no Nodes.
package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util"
	capiannotations "sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/metrics"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/ownwrites"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/status"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

const (
	// action is the action in the events of this controller.
	action = "CompareNode"

	// watchName identifies the watch on Nodes in the manager.
	watchName = "node-nodes"
)

// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io,resources=poolbootconfigs,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io,resources=poolbootconfigs/status,verbs=patch
// +kubebuilder:rbac:groups=poolboot.io,resources=machineconfigpools,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines,verbs=list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconciler reconciles the Nodes of PoolbootConfigs.
type Reconciler struct {
	// Client reads from the manager's cache and writes.
	Client client.Client
	// ClusterCache connects to workload clusters.
	ClusterCache clustercache.ClusterCache
	// Recorder creates events. If it is nil, SetupWithManager sets the manager's recorder.
	Recorder events.EventRecorder

	// OverlayNamespace is the namespace of the overlay Secrets: that of the config server.
	OverlayNamespace string
	// WatchFilterValue is the value of the label cluster.x-k8s.io/watch-filter that objects must have; empty means all.
	WatchFilterValue string

	// controller receives the events of the watches in workload clusters.
	controller controller.Controller
	// written tracks the versions of PoolbootConfigs that this controller wrote.
	written ownwrites.Tracker
}

// Reconcile compares the Node of one PoolbootConfig with its record.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	config := &bootstrapv1.PoolbootConfig{}
	if err := r.Client.Get(ctx, req.NamespacedName, config); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if r.written.IsStale(config) {
		return ctrl.Result{RequeueAfter: ownwrites.MaxLag}, nil
	}
	if !config.DeletionTimestamp.IsZero() || r.WatchFilterValue != "" && !labels.HasWatchLabel(config, r.WatchFilterValue) {
		return ctrl.Result{}, nil
	}
	cluster := &clusterv1.Cluster{}
	key := record.ClusterKey(config)
	if err := r.Client.Get(ctx, key, cluster); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if capiannotations.IsPaused(cluster, config) || !conditions.IsTrue(cluster, clusterv1.ClusterControlPlaneInitializedCondition) {
		return ctrl.Result{}, nil
	}
	log := ctrl.LoggerFrom(ctx).WithValues("Cluster", klog.KObj(cluster))
	err := r.reconcile(ctrl.LoggerInto(ctx, log), key, config)
	if workload.IsUnreachable(err) {
		// Without a connection, the cluster source triggers every config when there is one. A call that failed on an
		// existing connection is retried.
		log.V(2).Info("Workload cluster can't be reached, waiting", "error", err.Error())
		if errors.Is(err, clustercache.ErrClusterNotConnected) {
			return ctrl.Result{}, nil
		}
	}
	return status.RetryConflict(ctx, ctrl.Result{}, err)
}

func (r *Reconciler) reconcile(ctx context.Context, cluster client.ObjectKey, config *bootstrapv1.PoolbootConfig) error {
	watch := workload.Watch{Clusters: r.ClusterCache, Controller: r.controller, Name: watchName, Configs: r.Client}
	if err := watch.NodesOfConfigs(ctx, cluster, nodeChanged()); err != nil {
		return err
	}
	w, err := workload.Client(ctx, r.ClusterCache, cluster)
	if err != nil {
		return err
	}
	f, err := r.gather(ctx, w, cluster, config)
	if err != nil {
		return err
	}
	return r.apply(ctx, w, f, decide(f))
}

// gather reads the facts for a decision. Without a record, as after clusterctl move, the annotation on the Node shows
// whether the Node with this name belongs to the config.
func (r *Reconciler) gather(ctx context.Context, w client.Reader, cluster client.ObjectKey, config *bootstrapv1.PoolbootConfig) (facts, error) {
	f := facts{config: config}
	var err error
	if f.machine, err = util.GetOwnerMachine(ctx, r.Client, config.ObjectMeta); client.IgnoreNotFound(err) != nil {
		return f, err
	}
	if name := registration.Name(registration.Naming{Config: config, Machine: f.machine}); name != "" {
		node := &corev1.Node{}
		err := w.Get(ctx, client.ObjectKey{Name: name}, node)
		if client.IgnoreNotFound(err) != nil {
			return f, err
		}
		if err == nil {
			f.node = node
		}
	}
	if record.HasJoined(config) || f.node != nil && (f.node.Labels[poolv1.NodeMetal3UUIDLabel] != "" || !config.Status.HostRef.IsDefined()) {
		if f.host, err = r.findHost(ctx, f); err != nil {
			return f, err
		}
	}
	f.pools, err = workload.PoolsOfCluster(ctx, r.Client, cluster)
	return f, err
}

// apply carries out a decision: first the Node, then the end of the boot and the pool that the host keeps, and the
// record last. So after a crash, the next decision contains what remains to be done.
func (r *Reconciler) apply(ctx context.Context, w client.Client, f facts, d *decision) error {
	if d.node != nil {
		if err := w.Patch(ctx, d.node, status.Locked(f.node)); err != nil {
			return fmt.Errorf("patch Node %s: %w", f.node.Name, err)
		}
	}
	readyTime, isCompleted := metav1.NowMicro(), false
	if d.hasJoined {
		var err error
		if isCompleted, err = r.completeBoot(ctx, w, f.config); err != nil {
			return err
		}
	}
	if err := r.retainPool(ctx, f, d); err != nil {
		return err
	}
	before := f.config.DeepCopy()
	recorded := &f.config.Status
	if isCompleted {
		revokedTime := metav1.NowMicro()
		recorded.Boot.CredentialID, recorded.Boot.CredentialExpirationTime = "", nil
		recorded.Boot.KubeletRegisteredTime = kubeletRegistrationTime(f.node)
		recorded.Boot.NodeReadyTime, recorded.Boot.TokenRevokedTime = &readyTime, &revokedTime
	}
	if d.record != nil {
		recorded.PoolRole, recorded.NodeRef = d.record.pool, d.record.node
		recorded.Boot.ServedConfiguration.Name = cmp.Or(d.record.configuration, recorded.Boot.ServedConfiguration.Name)
		if len(d.record.derived) > 0 && recorded.DerivedNodeLabels == nil {
			recorded.DerivedNodeLabels = d.record.derived
		}
	}
	if d.host != nil {
		recorded.HostRef = *d.host
	}
	if d.fallback != nil && record.HasNode(f.config) {
		recorded.FallbackPoolRole = *d.fallback
	}
	if d.condition != nil {
		conditions.Set(f.config, *d.condition)
	}
	if record.IsPrepared(f.config) && record.HasNode(f.config) { // its pool can have changed
		conditions.Set(f.config, registration.BootPrepared(recorded.NodeRef.Name, recorded.PoolRole, recorded.Boot.ServedConfiguration.Name))
	}
	if err := status.Node.Patch(ctx, r.Client, before, f.config); err != nil {
		return err
	}
	r.written.Record(f.config)
	if isCompleted { // even if an earlier try did some of it
		metrics.BootCompleted(f.config)
	}
	r.reportChanges(before, f.config)
	return nil
}
