package enrollment

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/access"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/controllertest"
)

var _ = Describe("An Enrollment", func() {
	It("reports the hash of its token and the URL for requests, and not the token", func(ctx SpecContext) {
		e := newWorld(2).settle(ctx)
		Expect(e.Status.TokenSHA256).To(Equal(access.Enrollment(key, "secret-uid").Hash(token0)))
		Expect(e.Status.TokenSecretUID).To(Equal("secret-uid"))
		Expect(e.Status.URL).To(Equal("https://poolboot.example.com/config/infra/site/edge"))
		Expect(e.Status.CertificateAuthority).To(Equal("CA"))
		Expect(e.Status.UsedCount).To(HaveValue(BeZero()))
		Expect(e.Status.Conditions).To(ConsistOf(HaveField("Reason", poolv1.EnrollmentAdmitsReason), HaveField("Reason", clusterv1.NotPausedReason)))
		Expect(e.OwnerReferences).To(ConsistOf(And(HaveField("Kind", "Cluster"), HaveField("Controller", BeNil()), HaveField("BlockOwnerDeletion", BeNil()))))
		Expect(fmt.Sprint(e)).NotTo(ContainSubstring(token0))
	})

	It("creates the PoolbootConfig of a host from the template of the pool, owned by the Cluster and not by the Enrollment", func(ctx SpecContext) {
		w := newWorld(2)
		w.settle(ctx)
		w.ask(ctx, "edge-7")
		Expect(w.settle(ctx).Status.Requests).To(BeEmpty())
		config := &bootstrapv1.PoolbootConfig{}
		Expect(w.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: "edge-7"}, config)).To(Succeed())
		Expect(config.Spec.PoolRole).To(Equal("infra"))
		Expect(config.Spec.Host).To(HaveValue(Equal(bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeEnrollment, NodeName: "edge-7", Enrollment: bootstrapv1.EnrolledHost{Name: "edge"}})))
		Expect(config.Spec.Join.Type).To(Equal(bootstrapv1.JoinTypeKubelet))
		Expect(config.Labels).To(Equal(map[string]string{clusterv1.ClusterNameLabel: "c1", "example.com/of": "the-template"}))
		Expect(config.OwnerReferences).To(ConsistOf(HaveField("Kind", "Cluster")))
		Expect(config.Finalizers).To(ConsistOf(bootstrapv1.Finalizer))
		Expect(config.Annotations).To(Equal(map[string]string{
			bootstrapv1.TokenHashAnnotation: w.enrollment(ctx).Status.TokenSHA256, bootstrapv1.TokenUIDAnnotation: "secret-uid",
			bootstrapv1.PointerIDAnnotation: access.PointerID("site", "edge", "edge-7"), bootstrapv1.EnrolledFromAnnotation: "192.0.2.7",
		}))
		Expect(w.receivedEvents()).To(HaveEach(And(ContainSubstring("host edge-7 with address 192.0.2.7"), ContainSubstring("1 of 2 uses"), Not(ContainSubstring(token0)))))
	})

	It("admits hosts in the order of their requests, and no more than maxUses", func(ctx SpecContext) {
		w := newWorld(2)
		w.settle(ctx)
		w.ask(ctx, "edge-3", "edge-1", "edge-2")
		e := w.settle(ctx)
		Expect(e.AdmittedNames()).To(Equal([]string{"edge-3", "edge-1"}))
		Expect(w.hosts(ctx)).To(ConsistOf("edge-3", "edge-1"))
		Expect(e.Status.Requests).To(ContainElement(And(HaveField("Name", "edge-2"), HaveField("Refused", ContainSubstring("all 2 uses are taken")))))
		Expect(e.Status.Conditions).To(ContainElement(HaveField("Reason", poolv1.EnrollmentUsedUpReason)))
		received := w.receivedEvents()
		Expect(received).To(HaveLen(3 + 3 + 2))
		w.settle(ctx)
		Expect(w.receivedEvents()).To(BeEmpty(), "a refusal is reported once")

		By("admitting the refused host once there are more uses")
		w.edit(ctx, func(e *poolv1.Enrollment) { e.Spec.MaxUses = 3 })
		Expect(w.settle(ctx).Status.Requests).To(BeEmpty())
		Expect(w.hosts(ctx)).To(HaveLen(3))
	})

	It("admits nobody after clusterctl has replaced the admitted names by its annotation", func(ctx SpecContext) {
		w := newWorld(1)
		w.settle(ctx)
		w.ask(ctx, "edge-1")
		w.settle(ctx)
		w.edit(ctx, func(e *poolv1.Enrollment) {
			e.Annotations = map[string]string{clusterctlv1.DeleteForMoveAnnotation: ""}
		})
		w.ask(ctx, "edge-2")
		e := w.settle(ctx)
		Expect(e.Status.Conditions).To(ContainElement(HaveField("Reason", poolv1.EnrollmentMovedReason)))
		Expect(w.hosts(ctx)).To(ConsistOf("edge-1"))
	})

	It("counts no use for the name of an existing Node, and admits the host once that Node is deleted", func(ctx SpecContext) {
		w := newWorld(1)
		w.settle(ctx)
		taken := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "edge-7"}}
		Expect(w.workload.Create(ctx, taken)).To(Succeed())
		w.ask(ctx, "edge-7")
		e := w.settle(ctx)
		Expect(e.AdmittedNames()).To(BeEmpty())
		Expect(e.Status.Requests).To(ContainElement(And(HaveField("Name", "edge-7"), HaveField("Refused", ContainSubstring("Node edge-7 already exists")))))
		Expect(w.hosts(ctx)).To(BeEmpty())

		Expect(w.workload.Delete(ctx, taken)).To(Succeed())
		w.ask(ctx, "edge-7")
		Expect(w.settle(ctx).AdmittedNames()).To(ConsistOf("edge-7"))
	})

	It("counts no use, and creates no PoolbootConfig, while it is unknown whether the Node exists", func(ctx SpecContext) {
		w := newWorld(2)
		existing := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "edge-7", UID: "old", Annotations: map[string]string{poolv1.NodeConfigAnnotation: "site/edge-7"}}}
		existing.Status.NodeInfo.KubeletVersion = "v1.36.3"
		Expect(w.workload.Create(ctx, existing)).To(Succeed())
		w.unreachable = true
		w.settle(ctx)
		w.ask(ctx, "edge-7", "edge-8")
		e := w.settle(ctx)
		Expect(e.AdmittedNames()).To(BeEmpty())
		Expect(w.hosts(ctx)).To(BeEmpty())
		Expect(e.Status.Requests).To(ContainElement(And(HaveField("Name", "edge-7"), HaveField("Refused", BeEmpty()))), "it is held, not refused")
		Expect(w.events.Events).To(BeEmpty())
		Expect(e.Status.Conditions).To(ContainElement(HaveField("Message", ContainSubstring("new hosts wait because the Nodes of Cluster c1 cannot be read: Poolboot retries"))))
		result, err := w.manager(w).Reconcile(ctx, ctrl.Request{NamespacedName: key})
		Expect(err).NotTo(HaveOccurred())
		Expect(result.RequeueAfter).To(BeNumerically("<=", time.Minute))

		By("continuing on its own once there is a connection")
		w.unreachable = false
		e = w.settle(ctx)
		Expect(e.Status.Conditions).To(ContainElement(HaveField("Message", Not(ContainSubstring("can't be read")))))
		Expect(e.AdmittedNames()).To(ConsistOf("edge-8"))
		Expect(w.hosts(ctx)).To(ConsistOf("edge-8"))
		Expect(e.Status.Requests).To(ContainElement(And(HaveField("Name", "edge-7"), HaveField("Refused", ContainSubstring("Node edge-7 already exists")))))
	})

	It("creates no PoolbootConfig for an admitted name while it is unknown whether the Node of an earlier host exists", func(ctx SpecContext) {
		w := newWorld(1)
		w.settle(ctx)
		w.ask(ctx, "edge-7")
		Expect(w.settle(ctx).AdmittedNames()).To(ConsistOf("edge-7"))
		record := &bootstrapv1.PoolbootConfig{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "edge-7"}}
		Expect(w.Get(ctx, client.ObjectKeyFromObject(record), record)).To(Succeed())
		record.Finalizers = nil
		Expect(w.Update(ctx, record)).To(Succeed())
		Expect(client.IgnoreNotFound(w.Delete(ctx, record))).To(Succeed())
		Expect(w.hosts(ctx)).To(BeEmpty())
		w.unreachable = true
		w.ask(ctx, "edge-7")
		w.settle(ctx)
		Expect(w.hosts(ctx)).To(BeEmpty())
		w.unreachable = false
		w.settle(ctx)
		Expect(w.hosts(ctx)).To(ConsistOf("edge-7"))
	})

	It("reads the Node live before it admits a host", func(ctx SpecContext) {
		w := newWorld(1)
		w.settle(ctx)
		w.staleNodes = true
		Expect(w.workload.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "edge-7"}})).To(Succeed())
		w.ask(ctx, "edge-7")
		Expect(w.settle(ctx).AdmittedNames()).To(BeEmpty())
	})

	It("stops after a slow answer of the workload cluster, which occupies the worker for at most five seconds, and continues with the rest", func(ctx SpecContext) {
		w := newWorld(3)
		w.settle(ctx)
		w.ask(ctx, "edge-1", "edge-2", "edge-3")
		now := time.Now()
		reads := 0
		slow := w.manager(w)
		slow.Now = func() time.Time { return now }
		slow.ClusterCache.(*controllertest.ClusterCache).Live = interceptor.NewClient(w.workload, interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				deadline, bounded := ctx.Deadline()
				Expect(bounded).To(BeTrue())
				Expect(time.Until(deadline)).To(BeNumerically("<=", 5*time.Second))
				reads++
				now = now.Add(2 * time.Second)
				return c.Get(ctx, key, o, opts...)
			},
		})
		result, err := slow.Reconcile(ctx, ctrl.Request{NamespacedName: key})
		Expect(err).NotTo(HaveOccurred())
		Expect(reads).To(Equal(1))
		Expect(result.RequeueAfter).To(BeNumerically("<=", time.Second))
		e := w.enrollment(ctx)
		Expect(e.AdmittedNames()).To(ConsistOf("edge-1"))
		Expect(e.Status.Requests).To(HaveLen(2), "they wait, and are not refused")
		Expect(e.Status.Requests).To(HaveEach(HaveField("Refused", BeEmpty())))
		Expect(w.settle(ctx).AdmittedNames()).To(HaveLen(3))
	})

	It("admits no more hosts than it has uses if two managers work at the same time without seeing each other's writes", func(ctx SpecContext) {
		w := newWorld(1)
		w.settle(ctx)
		w.ask(ctx, "edge-1")
		before := w.enrollment(ctx)
		w.ask(ctx, "edge-2")
		both := w.enrollment(ctx)
		both.Status.Requests = both.Status.Requests[1:]
		for _, seen := range []*poolv1.Enrollment{both, before} {
			_, err := w.manager(stale{w, seen}).Reconcile(ctx, ctrl.Request{NamespacedName: key})
			Expect(err).NotTo(HaveOccurred())
		}
		Expect(w.hosts(ctx)).To(ConsistOf("edge-2"))
		Expect(w.settle(ctx).AdmittedNames()).To(ConsistOf("edge-2"))
		Expect(w.hosts(ctx)).To(ConsistOf("edge-2"))
	})

	It("admits each host once, and no other, whichever write fails, before or after it takes effect", func(ctx SpecContext) {
		for _, late := range []bool{false, true} {
			for failing := 1; ; failing++ {
				w := newWorld(1)
				w.CrashAt, w.Late = failing, late
				w.settle(ctx)
				w.ask(ctx, "edge-1", "edge-2")
				e := w.settle(ctx)
				Expect(e.AdmittedNames()).To(Equal([]string{"edge-1"}), "write %d", failing)
				Expect(w.hosts(ctx)).To(ConsistOf("edge-1"), "write %d", failing)
				if w.Writes < failing {
					Expect(failing).To(BeNumerically(">", 4))
					break
				}
			}
		}
	})

	It("counts a name once, however often its host is installed", func(ctx SpecContext) {
		w := newWorld(1)
		w.settle(ctx)
		for range 2 {
			w.ask(ctx, "edge-7")
			w.settle(ctx)
			Expect(w.hosts(ctx)).To(ConsistOf("edge-7"))
			config := &bootstrapv1.PoolbootConfig{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "edge-7"}}
			Expect(w.Patch(ctx, config, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))).To(Succeed())
			Expect(w.Delete(ctx, config)).To(Succeed())
		}
		Expect(w.enrollment(ctx).AdmittedNames()).To(ConsistOf("edge-7"))
	})

	It("reports a refusal once, whichever write fails before it is recorded", func(ctx SpecContext) {
		for failing := 1; ; failing++ {
			w := newWorld(1)
			w.settle(ctx)
			w.ask(ctx, "edge-7")
			w.settle(ctx)
			w.ask(ctx, "edge-8")
			w.receivedEvents()
			w.Writes, w.CrashAt = 0, failing
			w.settle(ctx)
			Expect(w.receivedEvents()).To(HaveExactElements(ContainSubstring("refuses host edge-8"), ContainSubstring("refuses host edge-8")),
				"write %d: one event on the Enrollment, and one on its pool", failing)
			if w.Writes < failing {
				break
			}
		}
	})

	It("changes nothing while its Cluster is paused, as during a move", func(ctx SpecContext) {
		w := newWorld(2)
		w.settle(ctx)
		cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "c1"}}
		Expect(w.Patch(ctx, cluster, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"paused":true}}`)))).To(Succeed())
		w.ask(ctx, "edge-7")
		e := w.settle(ctx)
		Expect(w.hosts(ctx)).To(BeEmpty())
		Expect(e.Status.Requests).To(ContainElement(And(HaveField("Name", "edge-7"), HaveField("Refused", BeEmpty()))))
		paused := meta.FindStatusCondition(e.Status.Conditions, clusterv1.PausedCondition)
		Expect(paused).To(HaveValue(And(HaveField("Status", metav1.ConditionTrue), HaveField("Reason", clusterv1.PausedReason), HaveField("Message", ContainSubstring("Cluster spec.paused")))))
		Expect(meta.IsStatusConditionTrue(e.Status.Conditions, poolv1.EnrollmentReadyCondition)).To(BeTrue(), "beside Ready, which stays as it was")

		By("continuing when its own annotation, which alone pauses it, is removed")
		Expect(w.Patch(ctx, cluster, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"paused":null}}`)))).To(Succeed())
		w.edit(ctx, func(e *poolv1.Enrollment) { e.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} })
		paused = meta.FindStatusCondition(w.settle(ctx).Status.Conditions, clusterv1.PausedCondition)
		Expect(paused).To(HaveValue(HaveField("Message", ContainSubstring("Enrollment has the "+clusterv1.PausedAnnotation))))
		w.edit(ctx, func(e *poolv1.Enrollment) { e.Annotations = nil })
		Expect(meta.IsStatusConditionFalse(w.settle(ctx).Status.Conditions, clusterv1.PausedCondition)).To(BeTrue())
		Expect(w.hosts(ctx)).To(ConsistOf("edge-7"))
	})

	It("admits no host if its pattern matches only names that no Node can have", func(ctx SpecContext) {
		w := newWorld(2)
		w.edit(ctx, func(e *poolv1.Enrollment) { e.Spec.NamePattern = "*.default.svc" })
		Expect(w.settle(ctx).Status.Conditions).To(ContainElement(And(HaveField("Reason", poolv1.EnrollmentInvalidNamePatternReason), HaveField("Message", HavePrefix("spec.namePattern: ")))))
	})

	It("loses neither what a user writes into the spec at the moment of an admission, nor the admission", func(ctx SpecContext) {
		w := newWorld(2)
		before := w.settle(ctx)
		w.ask(ctx, "edge-1")
		asked := w.enrollment(ctx)
		w.edit(ctx, func(e *poolv1.Enrollment) { e.Spec.NamePattern = "rack-*" })
		Expect(w.manager(stale{w, asked}).Reconcile(ctx, ctrl.Request{NamespacedName: key})).Error().NotTo(HaveOccurred())
		Expect(w.enrollment(ctx).AdmittedNames()).To(BeEmpty(), "judged by a spec that is no longer true")
		e := w.settle(ctx)
		Expect(e.Spec).To(And(HaveField("NamePattern", "rack-*"), HaveField("MaxUses", before.Spec.MaxUses)))
		Expect(e.AdmittedNames()).To(BeEmpty())
	})
})
