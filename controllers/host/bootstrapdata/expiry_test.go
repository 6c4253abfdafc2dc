package bootstrapdata

import (
	"context"
	"maps"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/controllertest"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/scope"
)

const (
	life = 24 * time.Hour
	hash = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
)

// world is a booting host, whose PoolbootConfig has the same name, and the reconciler of its token.
type world struct {
	client.Client
	cluster    *clusterv1.Cluster
	machine    *clusterv1.Machine
	config     *bootstrapv1.PoolbootConfig
	host       *bmov1alpha1.BareMetalHost
	events     *events.FakeRecorder
	reconciler *reconciler
}

// newWorld returns a world whose host was provisioned some time ago.
func newWorld(ago time.Duration) *world {
	edge, key := client.ObjectKey{Namespace: "metal", Name: "edge"}, client.ObjectKey{Namespace: "metal", Name: "rack1-u12"}
	w := &world{
		cluster: controllertest.NewCluster(edge), // without infrastructure, so there is no data Secret yet
		machine: &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}},
		config:  controllertest.NewConfig(edge, key.Name),
		host:    controllertest.NewHost(key, bmov1alpha1.StateProvisioned),
		events:  events.NewFakeRecorder(10),
	}
	w.config.Annotations = map[string]string{bootstrapv1.TokenHashAnnotation: hash}
	w.config.Spec.Host = bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeBareMetalHost, NodeName: key.Name, BareMetalHostName: key.Name}
	w.host.Status.OperationHistory.Provision.End = metav1.NewTime(time.Now().Add(-ago))
	return w
}

// start creates the objects of the world, and starts a reconciler. What the PoolbootConfig has without its token is
// already written, so every write is about the token.
func (w *world) start() {
	GinkgoHelper()
	config := w.config
	w.config = config.DeepCopy()
	delete(w.config.Annotations, bootstrapv1.TokenHashAnnotation)
	w.config.Status.Requests.Addresses, w.config.Status.HostAddresses = nil, nil
	w.create()
	for range 3 {
		w.reconcile(context.Background())
	}
	controllertest.Events(w.events)
	config.Finalizers, config.Status.Conditions = w.config.Finalizers, w.config.Status.Conditions
	config.Status.ObservedGeneration = w.config.Status.ObservedGeneration
	w.config = config
	w.create()
}

// create creates the objects of the world, and starts a reconciler.
func (w *world) create() {
	w.Client = controllertest.NewClientBuilder(w.cluster.DeepCopy(), w.machine.DeepCopy(), w.config.DeepCopy(), w.host.DeepCopy()).
		WithIndex(&bootstrapv1.PoolbootConfig{}, pointerIndex, pointerOf).
		WithStatusSubresource(&bootstrapv1.PoolbootConfig{}).Build()
	Expect(w.Get(context.Background(), client.ObjectKeyFromObject(w.config), w.config)).To(Succeed())
	Expect(w.Get(context.Background(), client.ObjectKeyFromObject(w.host), w.host)).To(Succeed())
	w.restart()
}

// restart replaces the reconciler by a new one.
func (w *world) restart() {
	w.reconciler = newReconciler(&Phases{Env: scope.Env{
		Client: w.Client, APIReader: w.Client, NetworkData: host.NewNetworkData(w.Client, w.Client, clock.RealClock{}), Recorder: w.events, TokenLifetime: life, WatchHardware: func() error { return nil },
	}})
}

// reconcile reconciles once, reads the config again, and returns the time until the next reconcile.
func (w *world) reconcile(ctx context.Context) time.Duration {
	GinkgoHelper()
	result, err := w.reconciler.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(w.config)})
	Expect(err).NotTo(HaveOccurred())
	Expect(w.Get(ctx, client.ObjectKeyFromObject(w.config), w.config)).To(Succeed())
	return result.RequeueAfter
}

var _ = Describe("The token of a host that does not join", func() {
	It("expires when its lifetime after the provisioning has passed, and a condition and an event name the remedy", func(ctx SpecContext) {
		w := newWorld(life + time.Minute)
		w.start()
		Expect(w.reconcile(ctx)).To(BeZero())
		Expect(w.config.Annotations).To(And(HaveKeyWithValue(bootstrapv1.TokenHashAnnotation, hash),
			HaveKeyWithValue(bootstrapv1.TokenStateAnnotation, string(bootstrapv1.TokenStateExpired))))
		usable := conditions.Get(w.config, bootstrapv1.TokenUsableCondition)
		Expect(usable).To(And(HaveField("Status", metav1.ConditionFalse), HaveField("Reason", bootstrapv1.TokenExpiredReason),
			HaveField("Message", ContainSubstring(bootstrapv1.RotateTokenAnnotation))))
		Expect(w.events.Events).To(Receive(HavePrefix("Warning " + bootstrapv1.TokenExpiredReason)))
		w.reconcile(ctx)
		Expect(w.events.Events).NotTo(Receive())

		By("rotating it")
		delete(w.config.Annotations, bootstrapv1.TokenStateAnnotation)
		w.config.Annotations[bootstrapv1.TokenRotatedAnnotation] = time.Now().UTC().Format(time.RFC3339)
		Expect(w.Update(ctx, w.config)).To(Succeed())
		Expect(w.reconcile(ctx)).To(BeNumerically("~", life, time.Minute))
		Expect(w.config.Annotations).NotTo(HaveKey(bootstrapv1.TokenStateAnnotation))
		Expect(conditions.IsTrue(w.config, bootstrapv1.TokenUsableCondition)).To(BeTrue())
	})

	It("is reported as expired even if the manager was killed before it could report that", func(ctx SpecContext) {
		w := newWorld(life + time.Minute)
		w.config.Annotations[bootstrapv1.TokenStateAnnotation] = string(bootstrapv1.TokenStateExpired)
		w.start()
		w.reconcile(ctx)
		Expect(conditions.IsFalse(w.config, bootstrapv1.TokenUsableCondition)).To(BeTrue())
		Expect(w.events.Events).To(Receive())
	})

	DescribeTable("stays valid, without a write,", func(ctx SpecContext, change func(*world)) {
		w := newWorld(life + time.Minute)
		change(w)
		w.start()
		before := maps.Clone(w.config.Annotations)
		w.reconcile(ctx)
		Expect(w.config.Annotations).To(Equal(before))
		Expect(w.config.ResourceVersion).To(Equal("999"), "nothing is written")
		Expect(w.events.Events).NotTo(Receive())
	},
		Entry("while its lifetime has not passed", func(w *world) {
			w.host.Status.OperationHistory.Provision.End = metav1.NewTime(time.Now().Add(-life / 2))
		}),
		Entry("while its host is provisioned again", func(w *world) { w.host.Status.Provisioning.State = bmov1alpha1.StateProvisioning }),
		Entry("while its host is being wiped", func(w *world) { w.host.Status.Provisioning.State = bmov1alpha1.StateDeprovisioning }),
		Entry("while its host has another consumer", func(w *world) {
			w.host.Spec.ConsumerRef = &corev1.ObjectReference{Kind: "Metal3Machine", Name: "other"}
		}),
		Entry("while it waits to be rotated", func(w *world) { w.config.Annotations[bootstrapv1.RotateTokenAnnotation] = "" }),
		Entry("while the Cluster is paused", func(w *world) { w.cluster.Spec.Paused = ptr.To(true) }),
		Entry("when its Machine belongs to another infrastructure provider, whose hosts are unknown to Poolboot", func(w *world) {
			w.config.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: w.machine.Name, UID: "u"}}
			w.machine.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "BareMachine", Name: "b"}
		}),
		Entry("when it was revoked", func(w *world) { record.RevokeToken(w.config) }),
		Entry("when it is an enrollment token", func(w *world) {
			w.config.Spec.Host = bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeEnrollment, NodeName: "edge-7", Enrollment: bootstrapv1.EnrolledHost{Name: "batch"}}
		}),
	)

	It("never expires if no lifetime is set", func(ctx SpecContext) {
		w := newWorld(1000 * life)
		w.start()
		w.reconciler.TokenLifetime = 0
		Expect(w.reconcile(ctx)).To(BeZero())
		Expect(w.config.Annotations).To(HaveKeyWithValue(bootstrapv1.TokenHashAnnotation, hash))
	})
})
