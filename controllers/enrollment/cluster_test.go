package enrollment

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// withoutCluster is a cache that does not contain the Cluster.
type withoutCluster struct{ client.Reader }

func (w withoutCluster) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if _, ok := o.(*clusterv1.Cluster); ok {
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
	It("admits no host, and is not written repeatedly", func(ctx SpecContext) {
		w := newWorld(1)
		w.settle(ctx)
		Expect(w.Delete(ctx, cluster.DeepCopy())).To(Succeed())
		w.ask(ctx, "edge-1")
		e := w.settle(ctx)
		Expect(e.AdmittedNames()).To(BeEmpty())
		Expect(e.Status.Conditions).To(ContainElement(And(HaveField("Reason", poolv1.ClusterNotFoundReason), HaveField("Message", ContainSubstring("Cluster c1 does not exist")))))
		version := e.ResourceVersion
		reconcile(ctx, w)
		Expect(w.enrollment(ctx).ResourceVersion).To(Equal(version))
	})

	It("does not serve a later Cluster with that name, which would inherit the admitted hosts", func(ctx SpecContext) {
		w := newWorld(2)
		w.settle(ctx)
		w.ask(ctx, "edge-1")
		Expect(w.settle(ctx).AdmittedNames()).To(ConsistOf("edge-1"))
		Expect(w.Delete(ctx, cluster.DeepCopy())).To(Succeed())
		later := cluster.DeepCopy()
		later.UID = "later"
		Expect(w.Create(ctx, later)).To(Succeed())
		w.ask(ctx, "edge-2")
		e := w.settle(ctx)
		Expect(e.AdmittedNames()).To(ConsistOf("edge-1"))
		Expect(e.OwnerReferences).To(ConsistOf(HaveField("UID", BeEquivalentTo("cluster-uid"))), "the garbage collector deletes it")
		Expect(e.Status.Conditions).To(ContainElement(And(HaveField("Reason", poolv1.ClusterNotFoundReason), HaveField("Message", ContainSubstring("create it again")))))

		By("creating it again, as GitOps does: it has admitted no host")
		e.ObjectMeta = metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}
		Expect(w.Delete(ctx, e.DeepCopy())).To(Succeed())
		Expect(w.Create(ctx, e)).To(Succeed())
		e = w.settle(ctx)
		Expect(e.OwnerReferences).To(ConsistOf(HaveField("UID", BeEquivalentTo("later"))))
		Expect(e.Status.Conditions).To(ContainElement(HaveField("Reason", poolv1.EnrollmentAdmitsReason)))
	})

	It("is owned by the Cluster before it admits a host, whichever write fails", func(ctx SpecContext) {
		for failing := 1; failing < 5; failing++ {
			w := newWorld(1)
			w.CrashAt, w.Late = failing, false
			for range 10 {
				w.Crashed = false
				_, _ = w.manager(w).Reconcile(ctx, request)
				if e := w.enrollment(ctx); e.Status.TokenSHA256 != "" && len(e.Status.Requests)+len(e.AdmittedNames()) == 0 {
					w.ask(ctx, "edge-1")
				}
				e := w.enrollment(ctx)
				Expect(len(e.AdmittedNames()) == 0 || ownerCluster(e) == "cluster-uid").To(BeTrue())
			}
			Expect(w.hosts(ctx)).To(ConsistOf("edge-1"))
		}
	})

	It("stays as it is while the cache does not have the Cluster yet, as after a move", func(ctx SpecContext) {
		w := newWorld(1)
		before := w.settle(ctx)
		Expect(w.manager(withoutCluster{w}).Reconcile(ctx, request)).Error().NotTo(HaveOccurred())
		Expect(w.enrollment(ctx)).To(And(HaveField("OwnerReferences", before.OwnerReferences), HaveField("Spec", before.Spec)))
	})

	It("gets no owner if its Cluster was already being deleted when it was created", func(ctx SpecContext) {
		w := newWorld(1)
		going := cluster.DeepCopy()
		Expect(w.Get(ctx, client.ObjectKeyFromObject(going), going)).To(Succeed())
		going.Finalizers = []string{clusterv1.ClusterFinalizer}
		Expect(w.Update(ctx, going)).To(Succeed())
		Expect(w.Delete(ctx, going)).To(Succeed())
		Expect(w.settle(ctx).OwnerReferences).To(BeEmpty())
	})

	It("admits no host while the Cluster is being deleted", func(ctx SpecContext) {
		w := newWorld(1)
		w.settle(ctx)
		going := cluster.DeepCopy()
		Expect(w.Get(ctx, client.ObjectKeyFromObject(going), going)).To(Succeed())
		going.Finalizers = []string{clusterv1.ClusterFinalizer}
		Expect(w.Update(ctx, going)).To(Succeed())
		Expect(w.Delete(ctx, going)).To(Succeed())
		w.ask(ctx, "edge-1")
		e := w.settle(ctx)
		Expect(e.AdmittedNames()).To(BeEmpty())
		Expect(e.Status.Requests).To(ConsistOf(HaveField("Refused", ContainSubstring("is being deleted"))))
		Expect(w.hosts(ctx)).To(BeEmpty())
	})
})
