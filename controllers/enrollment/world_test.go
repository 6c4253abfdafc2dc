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
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/controllertest"
)

const token0 = "v1Wq0J2m8T5s7Yd3Kc9RbNfXzLhPgQaE"

var key = client.ObjectKey{Namespace: "site", Name: "edge"}

var (
	secretKey  = client.ObjectKey{Namespace: "site", Name: "edge-token"}
	clusterKey = client.ObjectKey{Namespace: "site", Name: "c1"}
)

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

func newWorld(uses int) *world {
	GinkgoHelper()
	cluster, pool := controllertest.NewCluster(clusterKey), controllertest.NewPool(clusterKey, "infra")
	cluster.UID, pool.Spec.Hosts.TemplateRef.Name = "cluster-uid", "hosts"
	w := &world{events: events.NewFakeRecorder(1000), workload: controllertest.NewClientBuilder().Build()}
	w.WithWatch = controllertest.NewClientBuilder(cluster, pool, controllertest.NewTemplate(key.Namespace, "hosts"),
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
		}).WithStatusSubresource(&poolv1.Enrollment{}).Build()
	return w
}

// manager returns the reconciler of a manager with this cache.
func (w *world) manager(cache client.Reader) *Reconciler {
	funcs := controllertest.InterceptWrites(w.Write)
	funcs.Get = func(ctx context.Context, _ client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		return cache.Get(ctx, key, o, opts...)
	}
	clusters := controllertest.NewClusterCache(w.workload, clusterKey)
	clusters.Unreachable = w.unreachable
	if w.staleNodes {
		clusters.Cached = controllertest.NewClientBuilder().Build()
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

// receivedEvents returns the events since the last call.
func (w *world) receivedEvents() []string { return controllertest.Events(w.events) }

// stale is a stale cache, which contains an earlier version of an Enrollment.
type stale struct {
	client.Reader
	enrollment *poolv1.Enrollment
}

func (s stale) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if e, ok := o.(*poolv1.Enrollment); ok {
		s.enrollment.DeepCopyInto(e)
		return nil
	}
	return s.Reader.Get(ctx, key, o, opts...)
}
