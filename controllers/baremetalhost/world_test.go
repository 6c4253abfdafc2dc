package baremetalhost

import (
	"context"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/controllertest"
)

var (
	key        = client.ObjectKey{Namespace: "metal", Name: "rack1-u12"}
	clusterKey = client.ObjectKey{Namespace: "metal", Name: "site"}
	request    = ctrl.Request{NamespacedName: key}
)

// world is a management cluster with one host whose annotations name the pool infra.
type world struct {
	client.WithWatch
	events     *events.FakeRecorder
	reconciler *Reconciler
	// writes counts the reconciler's writes. beforeWrite is called before each of them.
	writes      int
	beforeWrite func(context.Context)
}

func newWorld(changes ...func(*bmov1alpha1.BareMetalHost)) *world {
	GinkgoHelper()
	host := controllertest.NewHost(key, bmov1alpha1.StateAvailable)
	host.UID, host.Finalizers = "host-uid", []string{bmov1alpha1.BareMetalHostFinalizer}
	host.Annotations = map[string]string{poolv1.HostPoolAnnotation: "infra", poolv1.HostClusterAnnotation: "site"}
	for _, change := range changes {
		change(host)
	}
	storage := controllertest.NewTemplate(key.Namespace, "storage")
	storage.Spec.Template.Spec.Node.Labels = map[string]string{"example.com/disk": "nvme"}
	pool := func(role, template string) *poolv1.MachineConfigPool {
		pool := controllertest.NewPool(clusterKey, role)
		pool.Spec.Hosts.TemplateRef.Name = template
		return pool
	}
	w := &world{events: events.NewFakeRecorder(100)}
	w.WithWatch = controllertest.NewClientBuilder(controllertest.NewTemplate(key.Namespace, "hosts"), storage, host, controllertest.NewCluster(clusterKey),
		pool("infra", "hosts"), pool("storage", "storage"), pool("worker", ""), pool("edge", "none"),
	).WithStatusSubresource(&bootstrapv1.PoolbootConfig{}).Build()
	writes := controllertest.InterceptWrites(func(ctx context.Context, o client.Object, write func() error) error {
		if w.writes++; w.beforeWrite != nil {
			w.beforeWrite(ctx)
		}
		if o.GetUID() == "" {
			o.SetUID("config-uid")
		}
		return write()
	})
	w.reconciler = &Reconciler{Recorder: w.events, APIReader: w.WithWatch, Client: interceptor.NewClient(w.WithWatch, writes)}
	return w
}

// settle reconciles until nothing more is written.
func (w *world) settle(ctx context.Context) {
	GinkgoHelper()
	for range 10 {
		before := w.writes
		Expect(w.reconciler.Reconcile(ctx, request)).Error().NotTo(HaveOccurred())
		if w.writes == before {
			return
		}
	}
	Fail("the reconciler never settles")
}

func (w *world) host(ctx context.Context) *bmov1alpha1.BareMetalHost {
	GinkgoHelper()
	host := &bmov1alpha1.BareMetalHost{}
	Expect(w.Get(ctx, key, host)).To(Succeed())
	return host
}

// config returns the PoolbootConfig of the host, or nil if there is none or it is being deleted.
func (w *world) config(ctx context.Context) *bootstrapv1.PoolbootConfig {
	GinkgoHelper()
	config := &bootstrapv1.PoolbootConfig{}
	if err := w.Get(ctx, key, config); apierrors.IsNotFound(err) || !config.DeletionTimestamp.IsZero() {
		return nil
	} else {
		Expect(err).NotTo(HaveOccurred())
	}
	return config
}

// change changes the host, and changeConfig its PoolbootConfig, as another client would.
func (w *world) change(ctx context.Context, change func(*bmov1alpha1.BareMetalHost)) {
	GinkgoHelper()
	host := w.host(ctx)
	change(host)
	Expect(w.Update(ctx, host)).To(Succeed())
}

func (w *world) changeConfig(ctx context.Context, change func(*bootstrapv1.PoolbootConfig)) {
	GinkgoHelper()
	config := w.config(ctx)
	change(config)
	status := config.DeepCopy()
	Expect(w.Update(ctx, config)).To(Succeed())
	status.ResourceVersion = config.ResourceVersion
	Expect(w.Status().Update(ctx, status)).To(Succeed())
}

// settleWithDataSecret records a data Secret and settles.
func (w *world) settleWithDataSecret(ctx context.Context) {
	GinkgoHelper()
	w.settle(ctx)
	w.changeConfig(ctx, func(c *bootstrapv1.PoolbootConfig) { c.Status.DataSecretName = c.Name })
	w.settle(ctx)
}

// receivedEvents returns the events since the last call.
func (w *world) receivedEvents() string {
	return strings.Join(controllertest.Events(w.events), "\n")
}

func annotated(key, value string) func(*bmov1alpha1.BareMetalHost) {
	return func(h *bmov1alpha1.BareMetalHost) {
		if delete(h.Annotations, key); value != "" {
			h.Annotations[key] = value
		}
	}
}

func inState(state bmov1alpha1.ProvisioningState) func(*bmov1alpha1.BareMetalHost) {
	return func(h *bmov1alpha1.BareMetalHost) { h.Status.Provisioning.State = state }
}

func consumed(h *bmov1alpha1.BareMetalHost) {
	h.Spec.ConsumerRef = &corev1.ObjectReference{Kind: "Metal3Machine", Name: "m1", Namespace: key.Namespace}
}

var own = &corev1.SecretReference{Namespace: key.Namespace, Name: key.Name}
