// Package boot prepares the boot of one machine when its host asks for its configuration: the Node stands in the
// workload cluster with everything its pool gives it, the join credential lives, and the machine's overlay is stored
// for the config server. All facts come from other packages; this one puts them in an order in which a crash between
// any two writes does no harm.
package boot

import (
	"context"
	"errors"
	"regexp"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/metrics"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io,resources=poolbootconfigs,verbs=get;list;watch
// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io,resources=poolbootconfigs/status,verbs=patch
// +kubebuilder:rbac:groups=pool.cluster.x-k8s.io,resources=machineconfigpools,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines,verbs=list;watch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=metal3machines,verbs=get;list;watch
// +kubebuilder:rbac:groups=metal3.io,resources=baremetalhosts,verbs=get;list;watch
// +kubebuilder:rbac:groups=metal3.io,resources=hardwaredata,verbs=list;watch
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=get;list;watch
// +kubebuilder:rbac:groups="",resources=secrets,verbs=get
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconciler prepares the boots of PoolbootConfigs.
type Reconciler struct {
	// Client reads from the manager's cache and writes.
	Client client.Client
	// APIReader reads live: the PoolbootConfig of a boot that was prepared before, because a stale one would cost its
	// host the join credential that it has.
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

	// watchHardware begins to watch HardwareData, once. SetupWithManager sets it.
	watchHardware func() error
	// outages remembers which clusters don't answer.
	outages outages
	// approval remembers which clusters leave it to Poolboot to approve certificates.
	approval workload.ApprovalChecker
	// rights remembers, as clusterRights, where this process has seen to the credentials' rights.
	rights sync.Map
}

// Reconcile prepares the boot of one PoolbootConfig, as far as its host is.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	config := &bootstrapv1.PoolbootConfig{}
	if err := r.Client.Get(ctx, request.NamespacedName, config); err != nil || needOf(config) == nothing || !r.watches(config) {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	need := needOf(config)
	s, err := r.gather(ctx, config)
	switch {
	case err != nil || s == nil:
		return ctrl.Result{}, err
	case annotations.IsPaused(s.cluster, config):
		return r.keepPaused(ctx, s, need)
	case need == preparation:
		return r.settle(ctx, s, s.run(ctx, r.preparation()))
	case need == adoption:
		return r.adopt(ctx, s)
	case need == inlineUpkeep:
		current := &bootstrapv1.PoolbootConfig{}
		if err := r.APIReader.Get(ctx, request.NamespacedName, current); err != nil || needOf(current) != inlineUpkeep {
			return ctrl.Result{}, client.IgnoreNotFound(err) // the event that brings this change comes yet
		}
		s.config = current
		return r.keepInline(ctx, s)
	default:
		return r.watch(ctx, s, need)
	}
}

// watch looks, by what the caches have, after a boot for which there is mostly nothing to do: its host has not asked
// yet, or has its configuration.
func (r *Reconciler) watch(ctx context.Context, s *scope, need need) (ctrl.Result, error) {
	if need == announcement {
		return ctrl.Result{}, r.announce(ctx, s)
	}
	over, err := r.guard(ctx, s)
	switch failed := failureOf(err); {
	case err != nil && failed.waits:
		return ctrl.Result{RequeueAfter: failed.retry}, nil
	case err != nil || over:
		return ctrl.Result{}, err
	case need == standing:
		return r.keepStanding(ctx, s)
	}
	if left := untilExtension(s.config); left > 0 {
		return ctrl.Result{RequeueAfter: left}, nil
	}
	current := &bootstrapv1.PoolbootConfig{}
	if err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(s.config), current); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if needOf(current) != upkeep {
		return ctrl.Result{}, nil
	}
	s.config = current
	return r.keepServed(ctx, s)
}

// watches tells whether a config is one of those that this manager looks after.
func (r *Reconciler) watches(config *bootstrapv1.PoolbootConfig) bool {
	return r.WatchFilterValue == "" || labels.HasWatchLabel(config, r.WatchFilterValue)
}

// need is what a PoolbootConfig wants of this controller.
type need int

const (
	nothing      need = iota
	announcement      // no host has asked yet: say whether one is was chosen, and whether it will never ask
	preparation       // a host asked the config server, or the Node that was made for it is gone before its kubelet came
	upkeep            // a host has its configuration, or may have it, and has not joined yet
	standing          // a host has had its configuration for so long that its credential is left to end, or nobody knows since when
	inlineUpkeep      // a host may boot at any time from its data Secret
	adoption          // clusterctl move or a restore lost what was made for a host that may have its configuration
)

// needOf reads from a PoolbootConfig alone what it wants.
func needOf(config *bootstrapv1.PoolbootConfig) need {
	boot := config.Status.Boot
	switch {
	case !config.DeletionTimestamp.IsZero(),
		record.IsBootComplete(config),
		config.Status.DataSecretName == "" && !record.IsEnrolled(config):
		return nothing
	case config.Spec.IsInline():
		if !record.HasCredential(config) {
			return nothing
		}
		return inlineUpkeep
	case record.IsRequestPending(config) && !record.IsTokenExpired(config):
		return preparation
	case record.WasPrepared(config) && record.HasCredential(config) && record.IsNodeMissing(config):
		return preparation
	case record.HasCredential(config) && time.Since(handedOut(boot)) < joinPatience:
		return upkeep
	case record.HasCredential(config):
		return standing
	case !record.HasRequested(config) && !record.WasPrepared(config) && record.HasNode(config):
		return adoption
	case !record.HasRequested(config):
		return announcement
	default:
		return nothing
	}
}

// handedOut is when a host may last have been given its configuration: as soon as it was prepared. That it was is on
// record only if the config server lived, and reached the API server, long enough to write it.
func handedOut(boot bootstrapv1.BootStatus) time.Time {
	var last time.Time
	for _, at := range []*metav1.MicroTime{boot.PreparedTime, boot.ServedTime} {
		if at != nil && at.After(last) {
			last = at.Time
		}
	}
	return last
}

// preparation is what is done, in this order, for a host that asked the config server.
func (r *Reconciler) preparation() []phase {
	return []phase{
		r.findDeployedHost,
		r.choosePool,
		r.register,
		r.remote(r.connect),
		r.remote(r.checkApproval),
		r.remote(r.ensureRights),
		r.remote(r.ensureNode),
		r.read,
		r.remote(r.ensureCredential),
		r.storeOverlay,
		r.record,
	}
}

// settle turns the outcome of a run into the condition, the event, the metric and the time of the next try.
func (r *Reconciler) settle(ctx context.Context, s *scope, err error) (ctrl.Result, error) {
	if err == nil {
		return ctrl.Result{}, nil
	}
	switch {
	case errors.Is(err, errAbandoned):
		return ctrl.Result{}, r.withdraw(ctx, s)
	case errors.Is(err, errPrepared):
		return ctrl.Result{}, nil
	}
	failed := failureOf(err)
	isNew, err := r.setCondition(ctx, s, failed)
	if err != nil {
		return ctrl.Result{}, errors.Join(failed, err)
	}
	if isNew && failed.reason != bootstrapv1.WaitingForHostReason {
		metrics.StageBlocked(s.config, record.StagePreparing, failed.reason)
	}
	if isNew && failed.reason == bootstrapv1.NodeNameTakenReason {
		metrics.PreRegistered(s.config, s.pool.Spec.PoolRole, metrics.NodeTaken)
	}
	if failed.waits {
		return ctrl.Result{RequeueAfter: failed.retry}, nil
	}
	return ctrl.Result{}, failed
}
