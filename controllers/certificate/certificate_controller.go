// Package certificate approves the kubelet client certificates that hosts ask for with Poolboot's join credentials,
// each for the one Node that was made beforehand for its Machine, and denies what else such a credential asks for. It
// approves the serving certificates that the kubelets of these Nodes ask for, for names and addresses that are theirs.
package certificate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/lru"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/fairqueue"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/latecrd"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/ownwrites"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/status"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

const (
	// ApprovedReason is the reason on a certificate signing request that Poolboot approves.
	ApprovedReason = "PoolbootNodeInPool"
	// ServingReason is the reason on one for a serving certificate that Poolboot approves.
	ServingReason = "PoolbootHostAddresses"
	// DeniedReason is the reason on one that it denies.
	DeniedReason = "PoolbootNodeNotAllowed"

	// watchName tells the watch on certificate signing requests from every other in the manager.
	watchName = "certificate-requests"

	// waitRetry is when to look again at a request that waits.
	waitRetry = 5 * time.Second
)

// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io,resources=poolbootconfigs,verbs=get;list;watch
// +kubebuilder:rbac:groups=bootstrap.cluster.x-k8s.io,resources=poolbootconfigs/status,verbs=patch
// +kubebuilder:rbac:groups=pool.cluster.x-k8s.io,resources=machineconfigpools,verbs=get;list;watch
// +kubebuilder:rbac:groups=pool.cluster.x-k8s.io,resources=enrollments,verbs=list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines,verbs=list;watch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=metal3machines,verbs=get;list;watch
// +kubebuilder:rbac:groups=metal3.io,resources=baremetalhosts,verbs=get;list;watch
// +kubebuilder:rbac:groups=metal3.io,resources=hardwaredata,verbs=list;watch
// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Reconciler decides certificate signing requests of workload clusters. Besides the manager's own rights it needs, in
// the workload cluster, those of an approver for the signers kubernetes.io/kube-apiserver-client-kubelet and
// kubernetes.io/kubelet-serving; Cluster API's kubeconfig has them.
type Reconciler struct {
	// Client reads from the manager's cache and writes.
	Client client.Client
	// APIReader reads live: the PoolbootConfig whose record an approval rests on, when the cache's is not the latest.
	APIReader client.Reader
	// ClusterCache connects to workload clusters.
	ClusterCache clustercache.ClusterCache
	// Recorder takes events; left nil, SetupWithManager sets the manager's.
	Recorder events.EventRecorder

	// WatchFilterValue is the value of the label cluster.x-k8s.io/watch-filter that objects must have; empty means all.
	WatchFilterValue string

	// controller is where the watches of workload clusters lead.
	controller controller.Controller
	// written are the certificate signing requests as this controller left them.
	written ownwrites.Tracker
	// left remembers why requests are not approved, types.UID → string: each reason is reported once. It is "" of a
	// request that waited for the record of its host.
	left *lru.Cache
}

// maxServing is how many requests of one Node for its serving certificate are looked at, the last ones. A kubelet waits
// for one at a time; root on its host can make any number, which stay open, and each costs reads of the workload
// cluster whenever another comes.
const maxServing = 5

// maxLeft is how many requests are remembered that are not approved. One that is forgotten costs an event more.
const maxLeft = 10000

// SetupWithManager adds the controller to a manager.
func (r *Reconciler) SetupWithManager(ctx context.Context, mgr ctrl.Manager, options controller.Options) error {
	if r.Client == nil || r.APIReader == nil || r.ClusterCache == nil {
		return errors.New("certificate controller: Client, APIReader and ClusterCache must be set")
	}
	if r.Recorder == nil {
		r.Recorder = mgr.GetEventRecorder("certificate-controller")
	}
	r.left = lru.New(maxLeft)
	err := mgr.GetFieldIndexer().IndexField(ctx, &bootstrapv1.PoolbootConfig{}, workload.HostUserIndex, workload.HostUsers)
	if err != nil {
		return err
	}
	r.controller, err = ctrl.NewControllerManagedBy(mgr).
		Named("certificate").
		For(&bootstrapv1.PoolbootConfig{}).
		Watches(&poolv1.Enrollment{}, handler.EnqueueRequestsFromMapFunc(r.configsOfEnrollment), builder.WithPredicates(rangesMayChange())).
		WatchesRawSource(r.ClusterCache.GetClusterSource("certificate", r.configsOf)).
		WithOptions(fairqueue.Options(options, fairqueue.FlowOfConfig(r.Client))).
		Build(r)
	if err != nil {
		return err
	}
	return latecrd.WhenServed(mgr, "certificate", bmov1alpha1.GroupVersion.WithKind("BareMetalHost"), func() error {
		return r.controller.Watch(source.Kind[client.Object](mgr.GetCache(), &bmov1alpha1.BareMetalHost{},
			handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, bmh client.Object) []ctrl.Request {
				return workload.ConfigOfHost(ctx, r.Client, bmh)
			}), addressesMayChange()))
	})
}

func (r *Reconciler) configsOf(ctx context.Context, cluster client.Object) []ctrl.Request {
	return workload.ConfigsOfCluster(ctx, r.Client, client.ObjectKeyFromObject(cluster), mayAsk)
}

// configsOfEnrollment are the records of hosts that an Enrollment admitted and that have Nodes.
func (r *Reconciler) configsOfEnrollment(ctx context.Context, object client.Object) []ctrl.Request {
	enrollment, is := object.(*poolv1.Enrollment)
	if !is {
		return nil
	}
	cluster := client.ObjectKey{Namespace: enrollment.Namespace, Name: enrollment.Spec.ClusterName}
	return workload.ConfigsOfCluster(ctx, r.Client, cluster, func(config *bootstrapv1.PoolbootConfig) bool {
		return mayAsk(config) && config.Spec.EnrollmentName() == enrollment.Name
	})
}

// rangesMayChange lets those updates of an Enrollment through that change its address ranges.
func rangesMayChange() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		DeleteFunc: func(event.DeleteEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, is := e.ObjectOld.(*poolv1.Enrollment)
			after, isToo := e.ObjectNew.(*poolv1.Enrollment)
			return is && isToo && !slices.Equal(before.Spec.AddressRanges, after.Spec.AddressRanges)
		},
	}
}

// addressesMayChange lets those updates of a BareMetalHost through that change which addresses it is known to have.
func addressesMayChange() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, is := e.ObjectOld.(*bmov1alpha1.BareMetalHost)
		after, isToo := e.ObjectNew.(*bmov1alpha1.BareMetalHost)
		return is && isToo && (before.Annotations[poolv1.HostAddressesAnnotation] != after.Annotations[poolv1.HostAddressesAnnotation] ||
			!equality.Semantic.DeepEqual(before.Status.HardwareDetails, after.Status.HardwareDetails))
	}}
}

// mayAsk says whether a config's host may ask for a certificate: with its join credential or, for its serving
// certificate, as its Node.
func mayAsk(config *bootstrapv1.PoolbootConfig) bool {
	return config.DeletionTimestamp.IsZero() && (record.HasCredential(config) || record.HasNode(config))
}

// hasCredential says whether a host may ask for a certificate with a config's credential.
func hasCredential(config *bootstrapv1.PoolbootConfig) bool {
	return record.HasCredential(config) && config.DeletionTimestamp.IsZero()
}

// Reconcile decides the certificate signing requests made with one PoolbootConfig's credential, also while the Cluster
// is paused: it changes no object of Cluster API's, and a host that has booted can't be told to wait.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	config := &bootstrapv1.PoolbootConfig{}
	if err := r.Client.Get(ctx, req.NamespacedName, config); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !mayAsk(config) || r.WatchFilterValue != "" && !labels.HasWatchLabel(config, r.WatchFilterValue) {
		return ctrl.Result{}, nil
	}
	cluster := record.ClusterKey(config)
	result, err := r.decideAll(ctx, cluster, config)
	if workload.IsUnreachable(err) {
		if !hasCredential(config) { // the cluster source brings it back
			return ctrl.Result{}, nil
		}
		ctrl.LoggerFrom(ctx).V(2).Info("Workload cluster can't be reached, waiting", "cluster", cluster, "error", err.Error())
		return ctrl.Result{RequeueAfter: waitRetry}, nil
	}
	return result, err
}

func (r *Reconciler) decideAll(ctx context.Context, cluster client.ObjectKey, config *bootstrapv1.PoolbootConfig) (ctrl.Result, error) {
	watch := workload.Watch{Clusters: r.ClusterCache, Controller: r.controller, Name: watchName, Configs: r.Client}
	if err := watch.CertificateSigningRequests(ctx, cluster); err != nil {
		return ctrl.Result{}, err
	}
	cached, err := workload.Client(ctx, r.ClusterCache, cluster)
	if err != nil {
		return ctrl.Result{}, err
	}
	var asked []certificatesv1.CertificateSigningRequest
	for _, requestor := range workload.HostUsers(config) {
		requests := &certificatesv1.CertificateSigningRequestList{}
		if err := cached.List(ctx, requests, client.MatchingFields{workload.RequestorIndex: requestor}, client.UnsafeDisableDeepCopy); err != nil {
			return ctrl.Result{}, err
		}
		asked = append(asked, requests.Items...)
	}
	// The last first: of a kubelet that started again and again it is the one that somebody waits for.
	slices.SortStableFunc(asked, func(a, b certificatesv1.CertificateSigningRequest) int {
		return b.CreationTimestamp.Compare(a.CreationTimestamp.Time)
	})
	var (
		result  ctrl.Result
		failed  []error
		serving int
	)
	for i := range asked {
		if !concerns(&asked[i], config) || r.written.IsStale(&asked[i]) {
			continue
		}
		if asked[i].Spec.SignerName == certificatesv1.KubeletServingSignerName {
			if serving++; serving > maxServing {
				continue
			}
		}
		if r.awaitsRecord(config, &asked[i]) {
			result.RequeueAfter = status.ConflictRetry
			continue
		}
		waits, err := r.decideOne(ctx, cluster, client.ObjectKeyFromObject(config), asked[i].DeepCopy())
		if waits && result.RequeueAfter == 0 {
			result.RequeueAfter = waitRetry
		}
		if err != nil {
			failed = append(failed, err)
		}
	}
	return result, errors.Join(failed...)
}

// awaitsRecord reports, once for a request, that the config server is about to record that the host of a config
// received its configuration: the host has used what is in it. The grant would conflict with that write.
func (r *Reconciler) awaitsRecord(config *bootstrapv1.PoolbootConfig, request *certificatesv1.CertificateSigningRequest) bool {
	if config.Spec.IsInline() || !record.WasPrepared(config) || record.IsServed(config) || !isOurs(request, config.Status.Boot.CredentialID) {
		return false
	}
	_, known := r.left.Get(request.UID)
	r.left.Add(request.UID, "")
	return !known
}

// concerns says whether a request is one of a config's host, for Poolboot to decide.
func concerns(request *certificatesv1.CertificateSigningRequest, config *bootstrapv1.PoolbootConfig) bool {
	return isOurs(request, config.Status.Boot.CredentialID) || record.HasNode(config) && isServing(request, config.Status.NodeRef.Name)
}

// decideOne decides one request. An approval can't be revoked. So it rests on what is read live, but for the first
// certificate of a credential: that rests on a record from the cache, which the grant's lock proves to be the latest,
// and on a Node from the cache. A Node that is deleted or leaves its pool at this moment would do so as well between a
// live read and the registration of the kubelet.
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
		f       = &facts{request: request}
		ours    bool
		verdict verdict
		why     string
		kind    = corev1.EventTypeNormal
	)
	try := func(records, nodes client.Reader, again bool) (granted bool, err error) {
		if ours, err = r.gather(ctx, records, nodes, live, cluster, key, f); err != nil || !ours {
			return false, err
		}
		if verdict, why = judge(*f); verdict != approve || serving {
			return false, nil
		}
		if record.IsCredentialUsed(f.config) {
			if !again || !isForAnotherKey(*f) {
				return false, nil
			}
			kind = corev1.EventTypeWarning
		}
		err = r.grant(ctx, f)
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
	if err != nil || !ours {
		return false, client.IgnoreNotFound(err)
	}
	condition := certificatesv1.CertificateSigningRequestCondition{Status: corev1.ConditionTrue, Message: why}
	event := bootstrapv1.EventCertificateRequestApproved
	switch verdict {
	case wait:
		ctrl.LoggerFrom(ctx).V(2).Info("Certificate signing request waits", "certificateSigningRequest", request.Name, "reason", why)
		return true, nil
	case contest:
		r.report(f, corev1.EventTypeWarning, bootstrapv1.EventCertificateRequestContested, why)
		return true, nil
	case leave:
		r.reportRefused(f, why)
		return false, nil
	case approve:
		condition.Type, condition.Reason = certificatesv1.CertificateApproved, ApprovedReason
		if serving {
			condition.Reason = ServingReason
		}
	case deny:
		condition.Type, condition.Reason = certificatesv1.CertificateDenied, DeniedReason
		event, kind = bootstrapv1.EventCertificateRequestDenied, corev1.EventTypeWarning
	}
	request.Status.Conditions = append(request.Status.Conditions, condition)
	if err := live.SubResource("approval").Update(ctx, request); err != nil {
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			return false, nil // another approver was first, or it is gone: the watch tells
		}
		return false, fmt.Errorf("CertificateSigningRequest %s: %w", request.Name, err)
	}
	r.written.Record(request)
	if serving || kind == corev1.EventTypeWarning { // a grant as usual is on record
		r.report(f, kind, event, why)
	}
	return false, nil
}

// report sends an event, with the request as related object: otherwise the recorder counts events on two requests as
// one that is repeated.
func (r *Reconciler) report(f *facts, kind, event, why string) {
	r.Recorder.Eventf(f.config, f.request, kind, event, "Decide", "CertificateSigningRequest %s: %s", f.request.Name, why)
}

// grant puts on record what a credential is used for. That comes before the approval: of two requests made at the same
// time, or after a crash in between, one can be approved.
func (r *Reconciler) grant(ctx context.Context, f *facts) error {
	before := f.config.DeepCopy()
	f.config.Status.Boot.Certificate = bootstrapv1.GrantedCertificate{
		CredentialID: f.config.Status.Boot.CredentialID, PublicKeySHA256: keyOf(f.request), GrantedTime: metav1.NewTime(f.now),
	}
	return status.Certificate.Patch(ctx, r.Client, before, f.config)
}

// reportRefused reports, once, why a request is not approved.
func (r *Reconciler) reportRefused(f *facts, why string) {
	if reported, known := r.left.Get(f.request.UID); known && reported == why {
		return
	}
	r.left.Add(f.request.UID, why)
	r.report(f, corev1.EventTypeWarning, bootstrapv1.EventServingCertificateNotApproved, why)
}

// gatherServing reads what the verdict on a serving certificate rests on beside the record and the Node.
func (r *Reconciler) gatherServing(ctx context.Context, live client.Client, cluster client.ObjectKey, f *facts) (err error) {
	if !record.HasNode(f.config) {
		return nil
	}
	cached, err := workload.Client(ctx, r.ClusterCache, cluster)
	if err != nil {
		return err
	}
	if f.cluster.ServiceAddresses, err = serviceAddresses(ctx, live); err != nil {
		return err
	}
	f.addresses, err = r.gatherAddresses(ctx, cached, f.config)
	return err
}

// gather reads what a verdict rests on, and says whether the request is still one of the config's host. The Node is
// read once for all tries.
func (r *Reconciler) gather(ctx context.Context, records, nodes client.Reader, live client.Client, cluster, key client.ObjectKey, f *facts) (ours bool, err error) {
	f.config, f.now = &bootstrapv1.PoolbootConfig{}, time.Now()
	if err := records.Get(ctx, key, f.config); err != nil {
		return false, err
	}
	if !mayAsk(f.config) || !concerns(f.request, f.config) {
		return false, nil
	}
	if recorded := f.config.Status.NodeRef; recorded.IsDefined() && (f.node == nil || f.node.Name != recorded.Name) {
		node := &corev1.Node{}
		err := nodes.Get(ctx, client.ObjectKey{Name: recorded.Name}, node)
		if client.IgnoreNotFound(err) != nil {
			return false, err
		}
		if f.node = nil; err == nil {
			f.node = node
		}
	}
	of := &clusterv1.Cluster{}
	if err := r.Client.Get(ctx, cluster, of); err != nil {
		return false, err
	}
	f.cluster = workload.Identity(ctx, r.ClusterCache, of)
	if f.request.Spec.SignerName == certificatesv1.KubeletServingSignerName {
		err = r.gatherServing(ctx, live, cluster, f)
	} else {
		f.pools, err = workload.PoolsOfCluster(ctx, r.Client, cluster)
	}
	return true, err
}
