package enrollment

import (
	"context"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/controllertest"
)

const token0 = "v1Wq0J2m8T5s7Yd3Kc9RbNfXzLhPgQaE"

var key = client.ObjectKey{Namespace: "site", Name: "edge"}

var secretKey = client.ObjectKey{Namespace: "site", Name: "edge-token"}

// world is a management cluster with one Enrollment, and managers that work on it.
type world struct {
	client.WithWatch
	events *events.FakeRecorder
	controllertest.Process
	// workload is the cluster that hosts join.
	workload client.WithWatch
	// unreachable is true if there is no connection to the workload cluster.
	unreachable bool
	// staleNodes is true if the cache of the workload cluster does not contain its Nodes yet.
	staleNodes bool
}

// behindCache is a connection whose cache is empty.
type behindCache struct {
	clustercache.ClusterCache
	empty client.Client
}

func (b behindCache) GetClient(context.Context, client.ObjectKey) (client.Client, error) {
	return b.empty, nil
}

// liveBy is a connection that uses another client for live reads.
type liveBy struct {
	clustercache.ClusterCache
	live client.Client
}

func (l liveBy) GetUncachedClient(context.Context, client.ObjectKey) (client.Client, error) {
	return l.live, nil
}

func newWorld(uses int) *world {
	GinkgoHelper()
	scheme := controllertest.Scheme()
	template := &bootstrapv1.PoolbootConfigTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "hosts"}}
	template.Spec.Template.Spec.Join.Type = bootstrapv1.JoinTypeKubelet
	template.Spec.Template.ObjectMeta.Labels = map[string]string{"example.com/of": "the-template"}
	w := &world{events: events.NewFakeRecorder(1000), workload: fake.NewClientBuilder().WithScheme(scheme).Build()}
	w.WithWatch = fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&poolv1.Enrollment{}).WithObjects(template,
		&clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "c1", UID: "cluster-uid"}},
		&poolv1.MachineConfigPool{
			ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "infra"},
			Spec:       poolv1.MachineConfigPoolSpec{ClusterName: "c1", PoolRole: "infra", HostTemplateRef: poolv1.HostTemplateReference{Name: "hosts"}},
		},
		&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "edge-token", UID: "secret-uid"},
			Type:       poolv1.EnrollmentTokenType,
			Data:       map[string][]byte{"token": []byte(token0)},
		},
		&poolv1.Enrollment{
			ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, UID: "enrollment-uid"},
			Spec: poolv1.EnrollmentSpec{
				ClusterName: "c1", PoolRole: "infra", NamePattern: "edge-*", MaxUses: int32(uses), ExpirationTime: metav1.NewTime(time.Now().Add(time.Hour)),
				TokenSecretRef: poolv1.TokenSecretReference{Name: "edge-token"},
			},
		}).Build()
	return w
}

// manager returns the reconciler of a manager with this cache.
func (w *world) manager(cache client.Reader) *Reconciler {
	funcs := controllertest.InterceptWrites(w.Write)
	funcs.Get = func(ctx context.Context, _ client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		return cache.Get(ctx, key, o, opts...)
	}
	connected := client.ObjectKey{Namespace: key.Namespace, Name: "c1"}
	if w.unreachable {
		connected.Name = "another"
	}
	clusters := clustercache.NewFakeClusterCache(w.workload, connected)
	if w.staleNodes {
		clusters = behindCache{clusters, fake.NewClientBuilder().WithScheme(w.workload.Scheme()).Build()}
	}
	return &Reconciler{
		Client:    interceptor.NewClient(w.WithWatch, funcs),
		APIReader: w.WithWatch, Recorder: w.events, Now: time.Now,
		ClusterCache: clusters,
		ServerURL:    "https://poolboot.example.com", ServerCA: func() ([]byte, error) { return []byte("CA"), nil },
	}
}

// settle reconciles, each time as a new process, until nothing more is written.
func (w *world) settle(ctx context.Context) *poolv1.Enrollment {
	GinkgoHelper()
	w.Settle(func() (ctrl.Result, error) { return w.manager(w).Reconcile(ctx, ctrl.Request{NamespacedName: key}) })
	return w.enrollment(ctx)
}

func (w *world) enrollment(ctx context.Context) *poolv1.Enrollment {
	GinkgoHelper()
	e := &poolv1.Enrollment{}
	Expect(w.Get(ctx, key, e)).To(Succeed())
	return e
}

// ask records requests of hosts, as the config server does.
func (w *world) ask(ctx context.Context, names ...string) {
	GinkgoHelper()
	e := w.enrollment(ctx)
	before := e.DeepCopy()
	for i, name := range names {
		e.Status.Requests = slices.DeleteFunc(e.Status.Requests, func(r poolv1.EnrollmentRequest) bool { return r.Name == name })
		e.Status.Requests = append(e.Status.Requests, poolv1.EnrollmentRequest{
			Name: name, RequestedTime: metav1.MicroTime{Time: time.Now().Add(time.Duration(i) * time.Millisecond).Truncate(time.Microsecond)}, Address: "192.0.2.7", TokenSHA256: e.Status.TokenSHA256,
		})
	}
	Expect(w.Status().Patch(ctx, e, client.MergeFrom(before))).To(Succeed())
}

// edit changes the Enrollment as a user would.
func (w *world) edit(ctx context.Context, change func(*poolv1.Enrollment)) {
	GinkgoHelper()
	e := w.enrollment(ctx)
	change(e)
	Expect(w.Update(ctx, e)).To(Succeed())
}

func (w *world) hosts(ctx context.Context) (names []string) {
	GinkgoHelper()
	var configs bootstrapv1.PoolbootConfigList
	Expect(w.List(ctx, &configs)).To(Succeed())
	for i := range configs.Items {
		names = append(names, configs.Items[i].Name)
	}
	return names
}

func (w *world) told() []string { return controllertest.Events(w.events) }

// stale is a stale cache, which contains an earlier version of an Enrollment.
type stale struct {
	client.Reader
	enrollment *poolv1.Enrollment
}

func (s stale) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if e, is := o.(*poolv1.Enrollment); is {
		s.enrollment.DeepCopyInto(e)
		return nil
	}
	return s.Reader.Get(ctx, key, o, opts...)
}
