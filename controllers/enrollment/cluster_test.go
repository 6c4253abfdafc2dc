package enrollment

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// withoutCluster is a cache that does not have the Cluster.
type withoutCluster struct{ client.Reader }

func (w withoutCluster) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if _, is := o.(*clusterv1.Cluster); is {
		return apierrors.NewNotFound(clusterv1.GroupVersion.WithResource("clusters").GroupResource(), key.Name)
	}
	return w.Reader.Get(ctx, key, o, opts...)
}

var _ = Describe("The enrollment of a Cluster that is deleted", func() {
	request := ctrl.Request{NamespacedName: key}
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "c1"}}
	reconcile := func(ctx context.Context, w *world) {
		GinkgoHelper()
		Expect(w.manager(w).Reconcile(ctx, request)).Error().NotTo(HaveOccurred())
	}
	gone := func(ctx context.Context, w *world) func() error {
		return func() error { return w.Get(ctx, key, &poolv1.Enrollment{}) }
	}

	It("is deleted too, and one that is published for a later Cluster of that name has admitted nobody", func(ctx SpecContext) {
		w := newWorld(1)
		w.settle(ctx)
		w.ask(ctx, "edge-1")
		Expect(w.settle(ctx).Spec.Admitted).To(ConsistOf("edge-1"))
		Expect(w.Delete(ctx, cluster.DeepCopy())).To(Succeed())
		Expect(w.DeleteAllOf(ctx, &poolv1.MachineConfigPool{}, client.InNamespace(key.Namespace))).To(Succeed())
		reconcile(ctx, w)
		Expect(gone(ctx, w)()).To(Satisfy(apierrors.IsNotFound))
		Expect(w.told()).To(ContainElement(ContainSubstring("EnrollmentDeleted")))
		reconcile(ctx, w)
		Expect(gone(ctx, w)()).To(Satisfy(apierrors.IsNotFound), "it is not published again")

		Expect(w.Create(ctx, cluster.DeepCopy())).To(Succeed())
		Expect(w.settle(ctx).Spec.Admitted).To(BeEmpty())
	})

	It("is deleted also when a Cluster of that name came while no manager ran", func(ctx SpecContext) {
		w := newWorld(1)
		e := w.settle(ctx)
		Expect(w.Delete(ctx, cluster.DeepCopy())).To(Succeed())
		later := cluster.DeepCopy()
		later.CreationTimestamp = metav1.NewTime(e.CreationTimestamp.Add(time.Hour))
		Expect(w.Create(ctx, later)).To(Succeed())
		reconcile(ctx, w)
		Expect(gone(ctx, w)()).To(Satisfy(apierrors.IsNotFound))
	})

	It("stays while the cache does not have the Cluster yet, as after a move", func(ctx SpecContext) {
		w := newWorld(1)
		w.settle(ctx)
		Expect(w.manager(withoutCluster{w}).Reconcile(ctx, request)).Error().NotTo(HaveOccurred())
		Expect(gone(ctx, w)()).To(Succeed())
	})

	It("admits nobody while the Cluster is being deleted", func(ctx SpecContext) {
		w := newWorld(1)
		w.settle(ctx)
		going := cluster.DeepCopy()
		Expect(w.Get(ctx, client.ObjectKeyFromObject(going), going)).To(Succeed())
		going.Finalizers = []string{clusterv1.ClusterFinalizer}
		Expect(w.Update(ctx, going)).To(Succeed())
		Expect(w.Delete(ctx, going)).To(Succeed())
		w.ask(ctx, "edge-1")
		e := w.settle(ctx)
		Expect(e.Spec.Admitted).To(BeEmpty())
		Expect(e.Status.Requests["edge-1"].Refused).To(ContainSubstring("is being deleted"))
		Expect(w.hosts(ctx)).To(BeEmpty())
	})
})
