// Package certificate decides certificate signing requests of workload clusters. It approves kubelet client
// certificates that hosts request with Poolboot's join credentials, each only for the Node that Poolboot
// pre-registered, and denies every other request with such a credential. It also approves the serving certificates that
// the kubelets of these Nodes request, for the names and addresses of their hosts.
package certificate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/lru"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/ownwrites"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/status"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

const (
	// ApprovedReason is the reason on a client certificate request that Poolboot approves.
	ApprovedReason = "PoolbootNodeInPool"
	// ServingApprovedReason is the reason on a serving certificate request that Poolboot approves.
	ServingApprovedReason = "PoolbootHostAddresses"
	// DeniedReason is the reason on a request that Poolboot denies.
	DeniedReason = "PoolbootNodeNotAllowed"

	// watchName identifies the watch on certificate signing requests in the manager.
	watchName = "certificate-requests"

	// retryInterval is when a request that cannot be decided yet is checked again.
	retryInterval = 5 * time.Second
	// recordTimeout is how long a request waits for the config server's record of what it served.
	recordTimeout = 2 * time.Second
)

// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io,resources=poolbootconfigs,verbs=get;list;watch
// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io,resources=poolbootconfigs/status,verbs=patch
// +kubebuilder:rbac:groups=poolboot.io,resources=machineconfigpools,verbs=get;list;watch
// +kubebuilder:rbac:groups=poolboot.io,resources=enrollments,verbs=list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines,verbs=list;watch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=metal3machines,verbs=get;list;watch
// +kubebuilder:rbac:groups=metal3.io,resources=baremetalhosts,verbs=get;list;watch
// +kubebuilder:rbac:groups=metal3.io,resources=hardwaredata,verbs=list;watch
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconciler decides certificate signing requests of workload clusters. In the workload cluster it needs the right to
// approve requests for the signers kubernetes.io/kube-apiserver-client-kubelet and kubernetes.io/kubelet-serving.
// Cluster API's kubeconfig has it.
type Reconciler struct {
	// Client reads from the manager's cache, and writes.
	Client client.Client
	// APIReader reads a PoolbootConfig from the API server when the one in the cache is stale.
	APIReader client.Reader
	// NetworkData reads the network data of hosts.
	NetworkData *host.NetworkData
	// ClusterCache connects to workload clusters.
	ClusterCache clustercache.ClusterCache
	// Recorder records events. SetupWithManager sets it.
	Recorder events.EventRecorder

	// WatchFilterValue is the value of the label cluster.x-k8s.io/watch-filter that objects must have; empty means all.
	WatchFilterValue string

	// controller gets the requests of the watches in workload clusters.
	controller controller.Controller
	// written tracks the certificate signing requests that this controller updated.
	written ownwrites.Tracker
	// reported caches why requests are not approved, types.UID → string, to report each reason once.
	reported *lru.Cache
	// awaited caches since when requests wait for the record of their host, types.UID → time.Time.
	awaited *lru.Cache
}

// maxServingRequests is how many serving certificate requests of one Node are checked, starting with the latest. A
// kubelet waits for one request at a time. Root on its host can create any number of requests, which stay open, and
// each check reads from the workload cluster.
const maxServingRequests = 5

// maxReported is the size of the cache of requests that are not approved. A request that is evicted is reported again.
const maxReported = 10000

// canRequest reports whether the host of a PoolbootConfig can request a certificate: with its join credential, or as
// its Node for a serving certificate.
func canRequest(config *bootstrapv1.PoolbootConfig) bool {
	return config.DeletionTimestamp.IsZero() && (record.HasCredential(config) || record.HasNode(config))
}

// Reconcile decides the certificate signing requests of one PoolbootConfig's host. It does so even while the Cluster is
// paused: it changes no object of Cluster API, and a host that has booted does not know about the pause.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	config := &bootstrapv1.PoolbootConfig{}
	if err := r.Client.Get(ctx, req.NamespacedName, config); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !canRequest(config) || r.WatchFilterValue != "" && !labels.HasWatchLabel(config, r.WatchFilterValue) {
		return ctrl.Result{}, nil
	}
	cluster := record.ClusterKey(config)
	result, err := r.decideAll(ctx, cluster, config)
	if workload.IsUnreachable(err) {
		if !record.HasCredential(config) { // the cluster source triggers a reconcile after the connection is established
			return ctrl.Result{}, nil
		}
		ctrl.LoggerFrom(ctx).V(2).Info("The workload cluster is unreachable: retrying", "cluster", cluster, "error", err.Error())
		return ctrl.Result{RequeueAfter: retryInterval}, nil
	}
	return result, err
}

// decideAll decides all certificate signing requests of a host.
func (r *Reconciler) decideAll(ctx context.Context, cluster client.ObjectKey, config *bootstrapv1.PoolbootConfig) (ctrl.Result, error) {
	watch := workload.Watch{Clusters: r.ClusterCache, Controller: r.controller, Name: watchName, Configs: r.Client}
	if err := watch.CertificateSigningRequests(ctx, cluster); err != nil {
		return ctrl.Result{}, err
	}
	cached, err := workload.Client(ctx, r.ClusterCache, cluster)
	if err != nil {
		return ctrl.Result{}, err
	}
	var requests []certificatesv1.CertificateSigningRequest
	for _, requestor := range workload.HostUsers(config) {
		list := &certificatesv1.CertificateSigningRequestList{}
		if err := cached.List(ctx, list, client.MatchingFields{workload.RequestorIndex: requestor}, client.UnsafeDisableDeepCopy); err != nil {
			return ctrl.Result{}, err
		}
		requests = append(requests, list.Items...)
	}
	// The latest request first: if a kubelet restarted several times, it waits for the latest request.
	slices.SortStableFunc(requests, func(a, b certificatesv1.CertificateSigningRequest) int {
		return b.CreationTimestamp.Compare(a.CreationTimestamp.Time)
	})
	var (
		result  ctrl.Result
		errs    []error
		serving int
	)
	for i := range requests {
		if !belongsTo(&requests[i], config) || r.written.IsStale(&requests[i]) {
			continue
		}
		if requests[i].Spec.SignerName == certificatesv1.KubeletServingSignerName {
			if serving++; serving > maxServingRequests {
				continue
			}
		}
		if r.awaitsRecord(config, &requests[i]) {
			result.RequeueAfter = status.ConflictRetry
			continue
		}
		waits, err := r.decideOne(ctx, cluster, client.ObjectKeyFromObject(config), requests[i].DeepCopy())
		if waits && result.RequeueAfter == 0 {
			result.RequeueAfter = retryInterval
		}
		if err != nil {
			errs = append(errs, err)
		}
	}
	return result, errors.Join(errs...)
}

// awaitsRecord reports whether the config server is about to record that the host received its configuration: the host
// has used its join credential. Otherwise recordGrant would conflict with that write. It reports false after
// recordTimeout, because a config server can fail to write the record.
func (r *Reconciler) awaitsRecord(config *bootstrapv1.PoolbootConfig, request *certificatesv1.CertificateSigningRequest) bool {
	if config.Spec.IsInline() || !record.WasPrepared(config) || record.IsServed(config) || !isClientRequest(request, config.Status.Boot.CredentialID) {
		return false
	}
	since, ok := r.awaited.Get(request.UID)
	if !ok {
		since = time.Now()
		r.awaited.Add(request.UID, since)
	}
	return time.Since(since.(time.Time)) < recordTimeout
}

// belongsTo reports whether a request is from the host of a PoolbootConfig and is for Poolboot to decide.
func belongsTo(request *certificatesv1.CertificateSigningRequest, config *bootstrapv1.PoolbootConfig) bool {
	return isClientRequest(request, config.Status.Boot.CredentialID) || record.HasNode(config) && isServingRequest(request, config.Status.NodeRef.Name)
}

// decideOne decides one request. An approval cannot be revoked, so it uses live reads, except for the first certificate
// of a join credential. That approval uses the PoolbootConfig from the cache, which the optimistic lock of recordGrant
// proves to be current, and the Node from the cache. A Node that is deleted or leaves its pool at this moment could
// also do so between a live read and the registration of the kubelet.
func (r *Reconciler) decideOne(ctx context.Context, cluster, key client.ObjectKey, request *certificatesv1.CertificateSigningRequest) (waits bool, err error) {
	live, err := workload.LiveClient(ctx, r.ClusterCache, cluster)
	if err != nil {
		return false, err
	}
	cached, err := workload.Client(ctx, r.ClusterCache, cluster)
	if err != nil {
		return false, err
	}
	serving := request.Spec.SignerName == certificatesv1.KubeletServingSignerName
	var (
		f         = &facts{request: request}
		ok        bool
		verdict   verdict
		why       string
		eventType = corev1.EventTypeNormal
	)
	try := func(configs, nodes client.Reader, again bool) (granted bool, err error) {
		if ok, err = r.gather(ctx, configs, nodes, live, cluster, key, f); err != nil || !ok {
			return false, err
		}
		if verdict, why = decide(*f); verdict != approve || serving {
			return false, nil
		}
		if record.IsCredentialUsed(f.config) {
			if !again || !isForAnotherKey(*f) {
				return false, nil
			}
			eventType = corev1.EventTypeWarning
		}
		err = r.recordGrant(ctx, f)
		return err == nil, err
	}
	granted, err := try(r.Client, cached, false)
	if !granted && (err == nil || apierrors.IsConflict(err)) {
		f.node = nil
		err = retry.RetryOnConflict(retry.DefaultRetry, func() error {
			_, err := try(r.APIReader, live, true)
			return err
		})
	}
	if err != nil || !ok {
		return false, client.IgnoreNotFound(err)
	}
	condition := certificatesv1.CertificateSigningRequestCondition{Status: corev1.ConditionTrue, Message: why}
	event := bootstrapv1.EventCertificateRequestApproved
	switch verdict {
	case wait:
		ctrl.LoggerFrom(ctx).V(2).Info("The certificate signing request cannot be decided yet: retrying", "certificateSigningRequest", request.Name, "reason", why)
		return true, nil
	case contested:
		r.report(f, corev1.EventTypeWarning, bootstrapv1.EventCertificateRequestContested, why)
		return true, nil
	case abstain:
		r.reportNotApproved(f, why)
		return false, nil
	case approve:
		condition.Type, condition.Reason = certificatesv1.CertificateApproved, ApprovedReason
		if serving {
			condition.Reason = ServingApprovedReason
		}
	case deny:
		condition.Type, condition.Reason = certificatesv1.CertificateDenied, DeniedReason
		event, eventType = bootstrapv1.EventCertificateRequestDenied, corev1.EventTypeWarning
	}
	request.Status.Conditions = append(request.Status.Conditions, condition)
	if err := live.SubResource("approval").Update(ctx, request); err != nil {
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			return false, nil // another approver decided it, or it was deleted: the watch triggers a reconcile
		}
		return false, fmt.Errorf("CertificateSigningRequest %s: %w", request.Name, err)
	}
	r.written.Record(request)
	if serving || eventType == corev1.EventTypeWarning { // the status records a normal approval
		r.report(f, eventType, event, why)
	}
	return false, nil
}

// report sends an event, with the request as related object: otherwise the recorder counts events on two requests as
// one that is repeated.
func (r *Reconciler) report(f *facts, eventType, reason, why string) {
	r.Recorder.Eventf(f.config, f.request, eventType, reason, "Decide", "CertificateSigningRequest %s: %s", f.request.Name, why)
}

// recordGrant records the key for which a join credential is used. This happens before the approval, so that only one
// of two concurrent requests can be approved, even after a crash between the two writes.
func (r *Reconciler) recordGrant(ctx context.Context, f *facts) error {
	before := f.config.DeepCopy()
	f.config.Status.Certificate = bootstrapv1.GrantedCertificate{
		CredentialID: f.config.Status.Boot.CredentialID, PublicKeySHA256: join.PublicKeySHA256(f.request.Spec.Request), GrantedTime: metav1.NewTime(f.now),
	}
	return status.Patch(ctx, r.Client, before, f.config)
}

// reportNotApproved reports once why a request is not approved.
func (r *Reconciler) reportNotApproved(f *facts, why string) {
	if reported, ok := r.reported.Get(f.request.UID); ok && reported == why {
		return
	}
	r.reported.Add(f.request.UID, why)
	r.report(f, corev1.EventTypeWarning, bootstrapv1.EventServingCertificateNotApproved, why)
}
