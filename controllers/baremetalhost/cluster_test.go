package baremetalhost

import (
	"context"
	"strings"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// cluster returns the Cluster of the host.
func (w *world) cluster(ctx context.Context) *clusterv1.Cluster {
	GinkgoHelper()
	cluster := &clusterv1.Cluster{}
	Expect(w.Get(ctx, clusterKey, cluster)).To(Succeed())
	return cluster
}

// deletions are what the garbage collector, or a user who deletes a Cluster, does to the objects that the
// PoolbootConfig of a host depends on.
var deletions = map[string]func(context.Context, *world){
	"deletion": func(ctx context.Context, w *world) {
		cluster := w.cluster(ctx)
		cluster.Finalizers = []string{clusterv1.ClusterFinalizer}
		Expect(w.Update(ctx, cluster)).To(Succeed())
		Expect(w.Delete(ctx, cluster)).To(Succeed())
	},
	"Cluster": func(ctx context.Context, w *world) {
		cluster := w.cluster(ctx)
		if cluster.Finalizers = nil; !cluster.DeletionTimestamp.IsZero() {
			Expect(w.Update(ctx, cluster)).To(Succeed())
			return
		}
		Expect(w.Delete(ctx, cluster)).To(Succeed())
	},
	"pools": func(ctx context.Context, w *world) {
		Expect(w.DeleteAllOf(ctx, &poolv1.MachineConfigPool{}, client.InNamespace(key.Namespace))).To(Succeed())
	},
	"templates": func(ctx context.Context, w *world) {
		Expect(w.DeleteAllOf(ctx, &bootstrapv1.PoolbootConfigTemplate{}, client.InNamespace(key.Namespace))).To(Succeed())
	},
}

var _ = Describe("The PoolbootConfig of a BareMetalHost whose Cluster is deleted", func() {
	DescribeTable("is deleted, and the host's user data with it, in the order",
		func(ctx SpecContext, order string) {
			w := newWorld()
			w.settleWithDataSecret(ctx)
			w.changeConfig(ctx, func(c *bootstrapv1.PoolbootConfig) {
				c.Status.PoolRole, c.Status.NodeRef = "infra", bootstrapv1.NodeReference{Name: key.Name, UID: "node-uid"}
				c.Finalizers = nil
			})
			w.change(ctx, inState(bmov1alpha1.StateProvisioned))
			for part := range strings.FieldsSeq(order) {
				deletions[part](ctx, w)
				w.settle(ctx)
			}
			Expect(w.config(ctx)).To(BeNil())
			Expect(w.host(ctx).Spec.UserData).To(BeNil())
			Expect(w.receivedEvents()).To(ContainSubstring("PoolbootConfig rack1-u12 is deleted: Cluster site is"))
		},
		Entry(nil, "deletion Cluster pools templates"),
		Entry(nil, "Cluster pools templates"),
		Entry(nil, "Cluster templates pools"),
		Entry(nil, "pools Cluster templates"),
		Entry(nil, "pools templates Cluster"),
		Entry(nil, "templates Cluster pools"),
		Entry(nil, "templates pools Cluster"),
		Entry(nil, "deletion pools Cluster"),
	)

	It("is deleted if everything was deleted while no manager ran", func(ctx SpecContext) {
		w := newWorld()
		w.settleWithDataSecret(ctx)
		for _, part := range []string{"Cluster", "pools", "templates"} {
			deletions[part](ctx, w)
		}
		w.settle(ctx)
		Expect(w.config(ctx)).To(BeNil())
		Expect(w.host(ctx).Spec.UserData).To(BeNil())
	})

	It("is deleted if a later Cluster with the same name replaced its own, and the host gets another one", func(ctx SpecContext) {
		w := newWorld()
		w.settleWithDataSecret(ctx)
		w.changeConfig(ctx, func(c *bootstrapv1.PoolbootConfig) { c.Finalizers = nil })
		deletions["Cluster"](ctx, w)
		later := metav1.NewTime(w.config(ctx).CreationTimestamp.Add(time.Hour))
		Expect(w.Create(ctx, &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "site", CreationTimestamp: later}})).To(Succeed())
		Expect(w.reconciler.Reconcile(ctx, request)).Error().NotTo(HaveOccurred())
		Expect(w.config(ctx)).To(BeNil())
		Expect(w.receivedEvents()).To(ContainSubstring("it belongs to an earlier Cluster site"))
	})

	It("leaves no user data if a user deletes it at the same time", func(ctx SpecContext) {
		w := newWorld()
		w.settleWithDataSecret(ctx)
		Expect(w.Delete(ctx, w.config(ctx))).To(Succeed(), "its finalizer keeps it")
		w.settle(ctx)
		Expect(w.host(ctx).Spec.UserData).To(Equal(own), "the next record's")
		deletions["Cluster"](ctx, w)
		w.settle(ctx)
		Expect(w.host(ctx).Spec.UserData).To(BeNil())
	})

	It("stays while the cache does not have the Cluster yet, as after a move", func(ctx SpecContext) {
		w := newWorld()
		w.settleWithDataSecret(ctx)
		before := w.writes
		w.reconciler.Client = interceptor.NewClient(w.reconciler.Client.(client.WithWatch), interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if _, ok := o.(*clusterv1.Cluster); ok {
					return apierrors.NewNotFound(clusterv1.GroupVersion.WithResource("clusters").GroupResource(), key.Name)
				}
				return c.Get(ctx, key, o, opts...)
			},
		})
		Expect(w.reconciler.Reconcile(ctx, request)).Error().NotTo(HaveOccurred())
		Expect(w.writes).To(Equal(before))
		Expect(w.config(ctx)).NotTo(BeNil())
	})
})
