package update

import (
	"context"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	nodev1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/node/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/controllertest"
)

var _ = Describe("A host that asks for its Node before its kubelet starts", func() {
	requested := metav1.NewMicroTime(time.Now().Truncate(time.Microsecond))

	ask := func(ctx context.Context, w *world, at metav1.MicroTime) {
		GinkgoHelper()
		config := w.config(ctx, 0)
		config.Status.Requests.RegistrationRequestedTime = &at
		Expect(w.management.Status().Update(ctx, config)).To(Succeed())
	}
	deleteNode := func(ctx context.Context, w *world) {
		GinkgoHelper()
		Expect(w.workload.Delete(ctx, w.node(ctx, 0))).To(Succeed())
	}
	registeredTime := func(ctx context.Context, w *world) *metav1.MicroTime {
		return w.config(ctx, 0).Status.Update.RegisteredTime
	}

	It("is answered at once if the Node exists, and the Node does not change", func(ctx SpecContext) {
		w := newWorld(1)
		w.adopt(ctx)
		before := w.node(ctx, 0)
		ask(ctx, w, requested)
		w.settle(ctx)
		Expect(w.node(ctx, 0)).To(Equal(before))
		Expect(registeredTime(ctx, w).Before(&requested)).To(BeFalse())
	})

	It("gets a Node with the UID of its BareMetalHost, also if clusterctl move dropped which one that is", func(ctx SpecContext) {
		w := newWorld(1)
		bmh := &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: clusterKey.Namespace, Name: "server-0", UID: "uid-after-the-move"}}
		bmh.Status.Provisioning.State = bmov1alpha1.StateProvisioned
		Expect(w.management.Create(ctx, bmh)).To(Succeed())
		config := w.config(ctx, 0)
		config.OwnerReferences = nil
		config.Spec.Host = bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeBareMetalHost, NodeName: config.Name, BareMetalHostName: bmh.Name}
		Expect(w.management.Update(ctx, config)).To(Succeed())
		deleteNode(ctx, w)
		ask(ctx, w, requested)
		Expect(w.reconcileHost(ctx, 0)).Error().NotTo(HaveOccurred())
		Expect(w.node(ctx, 0).Labels).To(HaveKeyWithValue(poolv1.NodeMetal3UUIDLabel, "uid-after-the-move"))
	})

	It("gets the Node of its recorded pool, with its labels and taints, if the Node was deleted", func(ctx SpecContext) {
		w := newWorld(1)
		infra := controllertest.NewPool(clusterKey, "infra")
		infra.Status.Configuration.Name = "rendered-infra-1"
		infra.Spec.Node.Labels = nodev1.Labels{"example.com/team": "infra"}
		infra.Spec.Node.Taints = []nodev1.Taint{{Key: "infra", Effect: corev1.TaintEffectNoSchedule}}
		Expect(w.management.Create(ctx, infra)).To(Succeed())
		config := w.config(ctx, 0)
		config.Status.PoolRole = "infra" // the Node has moved there after its first boot
		config.Status.DerivedNodeLabels = map[string]string{"example.com/rack": "12"}
		Expect(w.management.Status().Update(ctx, config)).To(Succeed())
		deleteNode(ctx, w)
		ask(ctx, w, requested)
		Expect(w.reconcileHost(ctx, 0)).Error().NotTo(HaveOccurred())
		node := w.node(ctx, 0)
		Expect(node.Labels).To(And(HaveKeyWithValue("node-role.kubernetes.io/infra", ""), HaveKeyWithValue("example.com/team", "infra"),
			HaveKeyWithValue("example.com/rack", "12"), HaveKeyWithValue(poolv1.NodePoolLabel, "infra")))
		Expect(node.Spec.Taints).To(ContainElements(
			HaveField("Key", "infra"), HaveField("Key", poolv1.NodeUnassignedTaint)))
		Expect(node.Annotations).To(HaveKeyWithValue(poolv1.NodeConfigAnnotation, "edge/host-0"))
		Expect(registeredTime(ctx, w).Before(&requested)).To(BeFalse())
	})

	It("waits while the Node can't be created, and is answered later", func(ctx SpecContext) {
		w := newWorld(1)
		deleteNode(ctx, w)
		ask(ctx, w, requested)
		w.CrashesAt = func(o client.Object) bool { _, isNode := o.(*corev1.Node); return isNode }
		Expect(w.reconcileHost(ctx, 0)).Error().To(MatchError(controllertest.ErrCrash))
		Expect(registeredTime(ctx, w)).To(BeNil())
		w.CrashesAt, w.Crashed = nil, false
		Expect(w.reconcileHost(ctx, 0)).Error().NotTo(HaveOccurred())
		Expect(registeredTime(ctx, w)).NotTo(BeNil())
	})

	It("is answered although the manager crashed between both writes", func(ctx SpecContext) {
		w := newWorld(1)
		deleteNode(ctx, w)
		ask(ctx, w, requested)
		w.CrashAt = w.Writes + 2
		Expect(w.reconcileHost(ctx, 0)).Error().To(HaveOccurred())
		Expect(w.node(ctx, 0)).NotTo(BeNil())
		w.Crashed = false
		Expect(w.reconcileHost(ctx, 0)).Error().NotTo(HaveOccurred())
		Expect(registeredTime(ctx, w)).NotTo(BeNil())
	})

	It("waits while the Node is being deleted", func(ctx SpecContext) {
		w := newWorld(1)
		w.changeNode(ctx, 0, func(node *corev1.Node) { node.Finalizers = []string{"example.com/slow"} })
		deleteNode(ctx, w)
		ask(ctx, w, requested)
		Expect(w.reconcileHost(ctx, 0)).Error().To(MatchError(errNodeDeleting))
		Expect(registeredTime(ctx, w)).To(BeNil())
	})

	It("does not get the Node of another host", func(ctx SpecContext) {
		w := newWorld(1)
		w.changeNode(ctx, 0, func(node *corev1.Node) { node.Annotations[poolv1.NodeConfigAnnotation] = "edge/another" })
		ask(ctx, w, requested)
		Expect(w.reconcileHost(ctx, 0)).Error().To(MatchError(ContainSubstring("belongs to PoolbootConfig edge/another")))
		Expect(registeredTime(ctx, w)).To(BeNil())
	})

	It("is not answered by what was seen before it asked, also if the Node was deleted in between", func(ctx SpecContext) {
		w := newWorld(1)
		w.adopt(ctx)
		deleteNode(ctx, w)
		ask(ctx, w, requested)
		later := metav1.NewMicroTime(requested.Add(time.Millisecond))
		w.afterWrite = func() { // the Node was created for the first request
			w.afterWrite = nil
			deleteNode(ctx, w)
			ask(ctx, w, later)
		}
		_, _ = w.reconcileHost(ctx, 0)
		Expect(registeredTime(ctx, w)).To(Or(BeNil(), HaveValue(HaveField("Time", BeTemporally("<", later.Time)))))
		Expect(w.workload.Get(ctx, client.ObjectKey{Name: hostName(0)}, &corev1.Node{})).To(Satisfy(apierrors.IsNotFound))
		w.Settle(func() (ctrl.Result, error) { return w.reconcileHost(ctx, 0) })
		Expect(w.workload.Get(ctx, client.ObjectKey{Name: hostName(0)}, &corev1.Node{})).To(Succeed())
		Expect(registeredTime(ctx, w).Equal(&later)).To(BeTrue())
	})

	It("is not answered by a Node that is not in the pool and appears while its own is created", func(ctx SpecContext) {
		w := newWorld(1)
		w.adopt(ctx)
		deleteNode(ctx, w)
		ask(ctx, w, requested)
		clusters := controllertest.NewClusterCache(interceptor.NewClient(w.workload, interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				if node, isNode := o.(*corev1.Node); isNode {
					Expect(c.Create(ctx, controllertest.NewNode(node.Name, "other"))).To(Succeed())
				}
				return c.Create(ctx, o, opts...)
			},
		}), clusterKey)
		clusters.RESTConfig = w.reconciler.ClusterCache.(*controllertest.ClusterCache).RESTConfig
		w.reconciler.ClusterCache = clusters
		Expect(w.reconcileHost(ctx, 0)).Error().To(MatchError(errNodeAppeared))
		Expect(registeredTime(ctx, w)).To(BeNil())
	})

	It("is answered once for each request, also if the clock of the config server is ahead", func(ctx SpecContext) {
		w := newWorld(1)
		w.adopt(ctx)
		ahead := metav1.NewMicroTime(requested.Add(time.Hour))
		ask(ctx, w, ahead)
		w.settle(ctx)
		Expect(registeredTime(ctx, w).Equal(&ahead)).To(BeTrue())
		deleteNode(ctx, w)
		w.settle(ctx)
		Expect(w.workload.Get(ctx, client.ObjectKey{Name: hostName(0)}, &corev1.Node{})).To(Satisfy(apierrors.IsNotFound))
		ask(ctx, w, metav1.NewMicroTime(ahead.Add(time.Second)))
		Expect(w.reconcileHost(ctx, 0)).Error().NotTo(HaveOccurred())
		Expect(w.workload.Get(ctx, client.ObjectKey{Name: hostName(0)}, &corev1.Node{})).To(Succeed())
	})
})
