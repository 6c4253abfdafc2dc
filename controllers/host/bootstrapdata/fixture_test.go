package bootstrapdata

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/finalizers"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/access"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/controllertest"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/pause"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/scope"
)

const (
	namespace   = "site"
	clusterName = "c1"
	machineName = "infra-x7k"
	serverURL   = "https://poolboot.example.com:9444"
	// pointerURL is the URL to which the host of newMachine sends its request.
	pointerURL = serverURL + "/config/infra/" + namespace + "/" + machineName + "/machine-uid"
)

var key = client.ObjectKey{Namespace: namespace, Name: machineName}

func newScheme() *runtime.Scheme {
	scheme := controllertest.Scheme()
	return scheme
}

// site is a management cluster with the Cluster c1, its workload cluster, and the reconciler under test.
type site struct {
	client.Client
	workload client.WithWatch
	// connected is true if the workload cluster is reachable.
	connected bool
	// approval is the answer of the workload cluster's API server to SubjectAccessReviews.
	approval   authorizationv1.SubjectAccessReviewStatus
	events     *events.FakeRecorder
	reconciler *reconciler

	controllertest.Process
	// reads counts the reads from the API server instead of the cache.
	reads int

	// cached is the PoolbootConfig in the reconciler's cache, or nil if the cache is current.
	cached *bootstrapv1.PoolbootConfig
}

func newSite(objects ...client.Object) *site {
	s := &site{connected: true, events: events.NewFakeRecorder(100)}
	s.workload = interceptor.NewClient(fake.NewClientBuilder().WithScheme(newScheme()).Build(), s.faults())
	s.Client = fake.NewClientBuilder().WithScheme(newScheme()).WithObjects(objects...).
		WithStatusSubresource(&bootstrapv1.PoolbootConfig{}, &clusterv1.Cluster{}, &clusterv1.Machine{}, &poolv1.MachineConfigPool{}).
		WithIndex(&bootstrapv1.PoolbootConfig{}, pointerIndex, pointerOf).
		Build()
	s.reconciler = newReconciler(&Phases{Secrets: s.Client, Env: scope.Env{
		Client: interceptor.NewClient(s.Client.(client.WithWatch), s.faults()),
		APIReader: interceptor.NewClient(s.Client.(client.WithWatch), interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				s.reads++
				return c.Get(ctx, key, o, opts...)
			},
		}),
		ClusterCache:     &connection{ClusterCache: clustercache.NewFakeClusterCache(s.workload, client.ObjectKey{Namespace: namespace, Name: clusterName}), site: s},
		Recorder:         s.events,
		ServerURL:        serverURL,
		ServerCA:         func() ([]byte, error) { return nil, nil },
		OverlayNamespace: "poolboot-system",
	}})
	return s
}

// reconciler reconciles with the phases of this package only, in the order of the host controller.
type reconciler struct {
	*Phases
	hosts scope.Hosts
}

func newReconciler(phases *Phases) *reconciler {
	phases.Init()
	return &reconciler{Phases: phases, hosts: scope.Hosts{Client: phases.Client, Live: phases.APIReader}}
}

func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	return r.hosts.Reconcile(ctx, request, func(ctx context.Context, s *scope.Scope) (ctrl.Result, error) {
		if err := r.ReportDuplicates(ctx, s.Config); err != nil || s.Machine == nil && IsAwaitingMachine(s.Config) {
			return ctrl.Result{}, err
		}
		if NeedsFinalizer(s.Config) {
			if added, err := finalizers.EnsureFinalizer(ctx, r.Client, s.Config, bootstrapv1.Finalizer); err != nil || added {
				return ctrl.Result{}, err
			}
		}
		if isPaused, requeue, err := pause.EnsureCondition(ctx, r.Client, s.Cluster, s.Config); err != nil || isPaused || requeue {
			return ctrl.Result{}, err
		}
		reconcile := r.Phases.Reconcile
		if !s.Config.DeletionTimestamp.IsZero() {
			reconcile = r.Delete
		}
		result, err := reconcile(ctx, s)
		s.Observed(err)
		return result, err
	})
}

func (s *site) faults() interceptor.Funcs {
	faults := controllertest.InterceptWrites(func(ctx context.Context, o client.Object, write func() error) error {
		if review, ok := o.(*authorizationv1.SubjectAccessReview); ok { // not a write
			review.Status = s.approval
			return nil
		}
		return s.Write(ctx, o, write)
	})
	faults.Get = func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		if config, ok := o.(*bootstrapv1.PoolbootConfig); ok && s.cached != nil {
			s.cached.DeepCopyInto(config)
			return nil
		}
		return c.Get(ctx, key, o, opts...)
	}
	return faults
}

// connection is a cluster cache with one connection that can be cut.
type connection struct {
	clustercache.ClusterCache
	site *site
}

func (c *connection) GetRESTConfig(context.Context, client.ObjectKey) (*rest.Config, error) {
	if !c.site.connected {
		return nil, clustercache.ErrClusterNotConnected
	}
	return &rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: []byte("CA of c1")}}, nil
}

func (c *connection) GetUncachedClient(ctx context.Context, cluster client.ObjectKey) (client.Client, error) {
	if !c.site.connected {
		return nil, clustercache.ErrClusterNotConnected
	}
	return c.ClusterCache.GetUncachedClient(ctx, cluster)
}

// settle reconciles until nothing changes.
func (s *site) settle(ctx context.Context) *bootstrapv1.PoolbootConfig {
	GinkgoHelper()
	s.Settle(s.reconcile(ctx))
	config := &bootstrapv1.PoolbootConfig{}
	Expect(client.IgnoreNotFound(s.Get(ctx, key, config))).To(Succeed())
	return config
}

func (s *site) reconcile(ctx context.Context) func() (ctrl.Result, error) {
	return func() (ctrl.Result, error) { return s.reconciler.Reconcile(ctx, ctrl.Request{NamespacedName: key}) }
}

// reconciles runs Reconcile once, and reports whether that wrote anything.
func (s *site) reconciles(ctx context.Context) bool {
	GinkgoHelper()
	before := s.Writes
	s.Reconcile(s.reconcile(ctx))
	return s.Writes > before
}

func (s *site) secret(ctx context.Context) *corev1.Secret {
	GinkgoHelper()
	secret := &corev1.Secret{}
	Expect(s.Get(ctx, key, secret)).To(Succeed())
	return secret
}

// newEvents returns the events since the last call.
func (s *site) newEvents() []string { return controllertest.Events(s.events) }

func newCluster() *clusterv1.Cluster {
	cluster := &clusterv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: clusterName, UID: "cluster-uid"},
		Spec:       clusterv1.ClusterSpec{ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: "10.0.0.1", Port: 6443}},
	}
	cluster.Status.Initialization.InfrastructureProvisioned = ptr.To(true)
	conditions.Set(cluster, metav1.Condition{Type: clusterv1.ClusterControlPlaneInitializedCondition, Status: metav1.ConditionTrue, Reason: "Initialized"})
	return cluster
}

func newMachine(labels map[string]string) *clusterv1.Machine {
	return &clusterv1.Machine{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: machineName, UID: "machine-uid", Labels: labels},
		Spec:       clusterv1.MachineSpec{ClusterName: clusterName},
	}
}

func newConfig(change ...func(*bootstrapv1.PoolbootConfig)) *bootstrapv1.PoolbootConfig {
	config := &bootstrapv1.PoolbootConfig{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: machineName, UID: "config-uid", Generation: 1,
			Labels: map[string]string{clusterv1.ClusterNameLabel: clusterName},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: machineName, UID: "machine-uid", Controller: ptr.To(true),
			}},
		},
		Spec: bootstrapv1.PoolbootConfigSpec{BootSpec: bootstrapv1.BootSpec{
			ConfigSource:   bootstrapv1.ConfigSource{Type: bootstrapv1.ConfigSourceTypeServer},
			Join:           bootstrapv1.Join{Type: bootstrapv1.JoinTypeKubelet},
			NodeNameSource: bootstrapv1.NodeNameSourceMachine,
		}},
	}
	for _, c := range change {
		c(config)
	}
	return config
}

func inlineSource(config *bootstrapv1.PoolbootConfig) {
	config.Spec.ConfigSource = bootstrapv1.ConfigSource{Type: bootstrapv1.ConfigSourceTypeInline}
}

// deleted turns a config into one whose deletion started some time ago.
func deleted(since time.Duration) func(*bootstrapv1.PoolbootConfig) {
	return func(config *bootstrapv1.PoolbootConfig) {
		config.Finalizers = []string{bootstrapv1.Finalizer}
		config.DeletionTimestamp = &metav1.Time{Time: time.Now().Add(-since)}
	}
}

// haveToken matches the annotations of a config whose token is recorded and bound to it.
func haveToken(config *bootstrapv1.PoolbootConfig, token string) OmegaMatcher {
	return And(HaveKeyWithValue(bootstrapv1.TokenHashAnnotation, access.Config(key, config.UID).Hash(token)),
		HaveKeyWithValue(bootstrapv1.TokenUIDAnnotation, string(config.UID)))
}

func newPool(role string) *poolv1.MachineConfigPool {
	return &poolv1.MachineConfigPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: role, UID: types.UID(role + "-uid")},
		Spec:       poolv1.MachineConfigPoolSpec{ClusterName: clusterName, PoolRole: role},
	}
}

func role(roles ...string) map[string]string {
	labels := map[string]string{}
	for _, r := range roles {
		labels[poolv1.NodeRoleLabelPrefix+r] = ""
	}
	return labels
}

// newUsualSite returns a site with a Machine whose labels name the pool infra, and with the pools worker and infra.
func newUsualSite() *site {
	return newSite(newCluster(), newMachine(role("infra")), newConfig(), newPool("worker"), newPool("infra"))
}

// secretAfter returns the data Secret after the reconciler has settled.
func (s *site) secretAfter(ctx context.Context) *corev1.Secret {
	GinkgoHelper()
	s.settle(ctx)
	return s.secret(ctx)
}
