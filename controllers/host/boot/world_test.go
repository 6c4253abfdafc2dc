package boot

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/annotations"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/assignments"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/controllertest"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/scope"
)

// world is a management cluster, a workload cluster, and the reconciler between them. The objects in both clusters
// survive a crash of the reconciler.
type world struct {
	management, workload client.WithWatch
	clusters             *clusters
	events               *events.FakeRecorder
	reconciler           *reconciler

	// hardwareWatched is true once the reconciler has started the watch on HardwareData.
	hardwareWatched bool

	// offered is the agent that hosts get. By default, there is none.
	offered join.Offer

	// approval is the answer of the workload cluster's API server to SubjectAccessReviews.
	approval authorizationv1.SubjectAccessReviewStatus

	// writes counts the reconciler's writes. before is called before each write, with its number, and can refuse it.
	// after is called when the write has taken effect, and can lose its response.
	writes        int
	before, after func(n int) error
	// cached is the PoolbootConfig in the reconciler's cache, or nil if the cache is current. liveReads counts the
	// reads from the API server.
	cached    *bootstrapv1.PoolbootConfig
	liveReads int
	// stopped makes every call of the reconciler fail, as in a process that has stopped.
	stopped bool
}

var errStopped = errors.New("this process is no more")

// newWorld returns a world with these objects, and two rendered configs of each pool, in the management cluster.
func newWorld(objects ...client.Object) *world {
	GinkgoHelper()
	scheme := controllertest.Scheme()
	w := &world{events: events.NewFakeRecorder(1000)}
	for _, o := range slices.Clone(objects) {
		if _, ok := o.(*poolv1.MachineConfigPool); ok {
			for _, number := range []string{"1", "2"} {
				objects = append(objects, &poolv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{
					Namespace: o.GetNamespace(), Name: poolv1.RenderedNamePrefix + o.GetName() + "-" + number}})
			}
		}
	}
	kinds := meta.NewDefaultRESTMapper(nil)
	kinds.Add(bmov1alpha1.GroupVersion.WithKind("HardwareData"), meta.RESTScopeNamespace)
	w.management = fake.NewClientBuilder().WithScheme(scheme).WithRESTMapper(kinds).WithObjects(objects...).
		WithIndex(&bmov1alpha1.BareMetalHost{}, host.NetworkDataIndex, host.IndexNetworkData).
		WithStatusSubresource(&bootstrapv1.PoolbootConfig{}, &poolv1.MachineConfigPool{}).Build()
	nodes := 0
	w.workload = fake.NewClientBuilder().WithScheme(scheme).
		WithIndex(&corev1.Secret{}, "type", func(o client.Object) []string { return []string{string(o.(*corev1.Secret).Type)} }).
		WithIndex(&certificatesv1.CertificateSigningRequest{}, "spec.signerName", func(o client.Object) []string {
			return []string{o.(*certificatesv1.CertificateSigningRequest).Spec.SignerName}
		}).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				nodes++
				o.SetUID(types.UID(fmt.Sprintf("uid-%d", nodes)))
				return c.Create(ctx, o, opts...)
			},
		}).Build()
	w.restart()
	return w
}

// restart starts a new process on the same clusters.
func (w *world) restart() {
	w.stopped, w.before, w.after, w.writes = false, nil, nil, 0
	w.clusters = &clusters{ClusterCache: clustercache.NewFakeEmptyClusterCache(), workload: w.observed(w.workload)}
	w.reconciler = &reconciler{Phases: Phases{Env: scope.Env{
		Client: interceptor.NewClient(w.observed(w.management), interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if config, ok := o.(*bootstrapv1.PoolbootConfig); ok && w.cached != nil {
					w.cached.DeepCopyInto(config)
					return nil
				}
				return c.Get(ctx, key, o, opts...)
			},
		}),
		APIReader: interceptor.NewClient(w.observed(w.management), interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				w.liveReads++
				return c.Get(ctx, key, o, opts...)
			},
		}),
		NetworkData:      host.NewNetworkData(w.management, w.management, clock.RealClock{}),
		ClusterCache:     w.clusters,
		Recorder:         w.events,
		ServerURL:        "https://boot.example.com:9444",
		OverlayNamespace: overlayNamespace,
		Offer:            func() (join.Offer, error) { return w.offered, nil },
		WatchHardware: func() error {
			w.hardwareWatched = true
			return nil
		},
	}, rendered: assignments.NewRenderedConfigs(w.management)}}
	w.reconciler.hosts = scope.Hosts{Client: w.reconciler.Client, Live: w.reconciler.APIReader}
}

// reconciler reconciles with the phases of this package only.
type reconciler struct {
	Phases
	hosts scope.Hosts
}

func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	return r.hosts.Reconcile(ctx, request, func(ctx context.Context, s *scope.Scope) (ctrl.Result, error) {
		if annotations.IsPaused(s.Cluster, s.Config) {
			return r.ReconcilePaused(ctx, s)
		}
		return r.Phases.Reconcile(ctx, s)
	})
}

// observed returns a client of a cluster whose calls are counted and can fail.
func (w *world) observed(store client.WithWatch) client.WithWatch {
	read := func(do func() error) error {
		if w.stopped {
			return errStopped
		}
		return do()
	}
	funcs := controllertest.InterceptWrites(func(_ context.Context, o client.Object, write func() error) error {
		if review, ok := o.(*authorizationv1.SubjectAccessReview); ok { // not a write
			review.Status = w.approval
			return read(func() error { return nil })
		}
		if w.stopped {
			return errStopped
		}
		w.writes++
		n := w.writes
		if w.before != nil {
			if err := w.before(n); err != nil {
				return err
			}
		}
		err := write()
		if w.after != nil {
			if lost := w.after(n); lost != nil {
				return lost
			}
		}
		return err
	})
	funcs.Get = func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		return read(func() error { return c.Get(ctx, key, o, opts...) })
	}
	funcs.List = func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
		return read(func() error { return c.List(ctx, list, opts...) })
	}
	return interceptor.NewClient(store, funcs)
}

// clusters is a cluster cache with one workload cluster, which can be unreachable.
type clusters struct {
	clustercache.ClusterCache
	workload client.Client
	down     bool
}

func (c *clusters) GetUncachedClient(context.Context, client.ObjectKey) (client.Client, error) {
	if c.down {
		return nil, clustercache.ErrClusterNotConnected
	}
	return c.workload, nil
}

func (c *clusters) GetRESTConfig(context.Context, client.ObjectKey) (*rest.Config, error) {
	return &rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: []byte("the cluster's CA")}}, nil
}

// reconcile reconciles the config once.
func (w *world) reconcile(ctx context.Context) (ctrl.Result, error) {
	return w.reconciler.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKey{Namespace: namespace, Name: machineName}})
}

// sendRequest sends the host's request for its configuration, as the config server records it, and reconciles.
func (w *world) sendRequest(ctx context.Context) (ctrl.Result, error) {
	GinkgoHelper()
	change(ctx, w.management, w.config(ctx), func(c *bootstrapv1.PoolbootConfig) {
		at := time.Now()
		if last := c.Status.Requests.RequestedTime; last != nil && !at.After(last.Time) {
			at = last.Add(time.Microsecond)
		}
		if !record.IsRequestPending(c) {
			c.Status.Requests.FirstRequestedTime = microTime(at)
		}
		c.Status.Requests.RequestedTime = microTime(at)
	})
	return w.reconcile(ctx)
}

// config returns the current PoolbootConfig.
func (w *world) config(ctx context.Context) *bootstrapv1.PoolbootConfig {
	GinkgoHelper()
	config := &bootstrapv1.PoolbootConfig{}
	Expect(w.management.Get(ctx, client.ObjectKey{Namespace: namespace, Name: machineName}, config)).To(Succeed())
	return config
}

// nodes returns the Nodes of the workload cluster.
func (w *world) nodes(ctx context.Context) []corev1.Node {
	GinkgoHelper()
	list := &corev1.NodeList{}
	Expect(w.workload.List(ctx, list)).To(Succeed())
	return list.Items
}

// node returns the only Node of the workload cluster.
func (w *world) node(ctx context.Context) *corev1.Node {
	GinkgoHelper()
	nodes := w.nodes(ctx)
	Expect(nodes).To(HaveLen(1))
	return &nodes[0]
}

// credentials returns the bootstrap tokens in the workload cluster.
func (w *world) credentials(ctx context.Context) []corev1.Secret {
	GinkgoHelper()
	list := &corev1.SecretList{}
	Expect(w.workload.List(ctx, list, client.InNamespace("kube-system"))).To(Succeed())
	return list.Items
}

// overlays returns the overlay Secrets.
func (w *world) overlays(ctx context.Context) []corev1.Secret {
	GinkgoHelper()
	return w.secrets(ctx, bootstrapv1.OverlayLabel)
}

// assignments returns the assignment Secrets.
func (w *world) assignments(ctx context.Context) []corev1.Secret {
	GinkgoHelper()
	return w.secrets(ctx, bootstrapv1.AssignmentLabel)
}

// secrets returns the Secrets with a label in the namespace of the config server.
func (w *world) secrets(ctx context.Context, label string) []corev1.Secret {
	GinkgoHelper()
	list := &corev1.SecretList{}
	Expect(w.management.List(ctx, list, client.InNamespace(overlayNamespace), client.HasLabels{label})).To(Succeed())
	return list.Items
}

// change changes an object and its status in a cluster, as another client would.
func change[object client.Object](ctx context.Context, store client.Client, o object, do func(object)) {
	GinkgoHelper()
	before := o.DeepCopyObject().(client.Object)
	do(o)
	after := o.DeepCopyObject().(client.Object)
	Expect(store.Patch(ctx, o, client.MergeFrom(before))).To(Succeed())
	Expect(client.IgnoreNotFound( // the kind can have no status subresource
		store.Status().Patch(ctx, after, client.MergeFrom(before)))).To(Succeed())
}

// newEvents returns the events since the last call.
func (w *world) newEvents() []string { return controllertest.Events(w.events) }
