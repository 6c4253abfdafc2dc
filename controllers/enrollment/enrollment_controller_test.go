package enrollment

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/enroll"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hostaccess"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/controllertest"
)

var _ = Describe("An Enrollment", func() {
	It("reports the hash of its token and the URL for requests, and not the token", func(ctx SpecContext) {
		e := newWorld(2).settle(ctx)
		Expect(e.Status.TokenSHA256).To(Equal(hostaccess.Enrollment(key, "secret-uid").Hash(token0)))
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
		Expect(config.Spec.Host).To(HaveValue(Equal(bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeEnrollment, NodeName: "edge-7", Enrollment: bootstrapv1.EnrolledHost{Name: "edge", Address: "192.0.2.7"}})))
		Expect(config.Spec.Join.Type).To(Equal(bootstrapv1.JoinTypeKubelet))
		Expect(config.Labels).To(Equal(map[string]string{clusterv1.ClusterNameLabel: "c1", "example.com/of": "the-template"}))
		Expect(config.OwnerReferences).To(ConsistOf(HaveField("Kind", "Cluster")))
		Expect(config.Finalizers).To(ConsistOf(bootstrapv1.Finalizer))
		Expect(config.Annotations).To(Equal(map[string]string{
			bootstrapv1.TokenHashAnnotation: w.enrollment(ctx).Status.TokenSHA256, bootstrapv1.TokenUIDAnnotation: "secret-uid",
			bootstrapv1.PointerIDAnnotation: enroll.PointerID("site", "edge", "edge-7"),
		}))
		Expect(w.receivedEvents()).To(HaveEach(And(ContainSubstring("host edge-7 with address 192.0.2.7"), ContainSubstring("1 of 2 uses"), Not(ContainSubstring(token0)))))
	})

	It("admits hosts in the order of their requests, and no more than maxUses", func(ctx SpecContext) {
		w := newWorld(2)
		w.settle(ctx)
		w.ask(ctx, "edge-3", "edge-1", "edge-2")
		e := w.settle(ctx)
		Expect(e.Spec.Admitted).To(Equal([]string{"edge-3", "edge-1"}))
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

	It("counts no use for the name of an existing Node, and admits the host once that Node is deleted", func(ctx SpecContext) {
		w := newWorld(1)
		w.settle(ctx)
		taken := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "edge-7"}}
		Expect(w.workload.Create(ctx, taken)).To(Succeed())
		w.ask(ctx, "edge-7")
		e := w.settle(ctx)
		Expect(e.Spec.Admitted).To(BeEmpty())
		Expect(e.Status.Requests).To(ContainElement(And(HaveField("Name", "edge-7"), HaveField("Refused", ContainSubstring("Node edge-7 already exists")))))
		Expect(w.hosts(ctx)).To(BeEmpty())

		Expect(w.workload.Delete(ctx, taken)).To(Succeed())
		w.ask(ctx, "edge-7")
		Expect(w.settle(ctx).Spec.Admitted).To(ConsistOf("edge-7"))
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
		Expect(e.Spec.Admitted).To(BeEmpty())
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
		Expect(e.Spec.Admitted).To(ConsistOf("edge-8"))
		Expect(w.hosts(ctx)).To(ConsistOf("edge-8"))
		Expect(e.Status.Requests).To(ContainElement(And(HaveField("Name", "edge-7"), HaveField("Refused", ContainSubstring("Node edge-7 already exists")))))
	})

	It("creates no PoolbootConfig for an admitted name while it is unknown whether the Node of an earlier host exists", func(ctx SpecContext) {
		w := newWorld(1)
		w.settle(ctx)
		w.ask(ctx, "edge-7")
		Expect(w.settle(ctx).Spec.Admitted).To(ConsistOf("edge-7"))
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
		Expect(w.settle(ctx).Spec.Admitted).To(BeEmpty())
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
		Expect(e.Spec.Admitted).To(ConsistOf("edge-1"))
		Expect(e.Status.Requests).To(HaveLen(2), "they wait, and are not refused")
		Expect(e.Status.Requests).To(HaveEach(HaveField("Refused", BeEmpty())))
		Expect(w.settle(ctx).Spec.Admitted).To(HaveLen(3))
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
		Expect(w.settle(ctx).Spec.Admitted).To(ConsistOf("edge-2"))
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
				Expect(e.Spec.Admitted).To(Equal([]string{"edge-1"}), "write %d", failing)
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
		Expect(w.enrollment(ctx).Spec.Admitted).To(ConsistOf("edge-7"))
	})

	// move creates the Secret and the Enrollment again, as clusterctl move does: with other UIDs, and without a status.
	move := func(ctx context.Context, w *world, token string) {
		GinkgoHelper()
		secret, e := &corev1.Secret{}, w.enrollment(ctx)
		Expect(w.Get(ctx, secretKey, secret)).To(Succeed())
		Expect(w.Delete(ctx, secret.DeepCopy())).To(Succeed())
		Expect(w.Delete(ctx, e.DeepCopy())).To(Succeed())
		secret.ResourceVersion, secret.UID, secret.Data["token"] = "", "moved-secret", []byte(token)
		e.ResourceVersion, e.UID, e.Status = "", "moved", poolv1.EnrollmentStatus{}
		Expect(w.Create(ctx, secret)).To(Succeed())
		Expect(w.Create(ctx, e)).To(Succeed())
	}
	annotations := func(ctx context.Context, w *world, name string) map[string]string {
		GinkgoHelper()
		config := &bootstrapv1.PoolbootConfig{}
		Expect(w.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: name}, config)).To(Succeed())
		return config.Annotations
	}

	It("binds its token, and the PoolbootConfigs of the hosts that it admitted, to the Secret that clusterctl move created, whichever write fails", func(ctx SpecContext) {
		for failing := 1; ; failing++ {
			w := newWorld(3)
			w.settle(ctx)
			w.ask(ctx, "edge-1", "edge-2", "edge-3")
			w.settle(ctx)
			joined := &bootstrapv1.PoolbootConfig{}
			Expect(w.Get(ctx, client.ObjectKey{Namespace: key.Namespace, Name: "edge-3"}, joined)).To(Succeed())
			joined.Annotations[bootstrapv1.TokenStateAnnotation] = string(bootstrapv1.TokenStateRevoked)
			Expect(w.Update(ctx, joined)).To(Succeed())
			move(ctx, w, token0)
			w.Writes, w.CrashAt = 0, failing
			e := w.settle(ctx)
			Expect(e.Spec.Admitted).To(Equal([]string{"edge-1", "edge-2", "edge-3"}))
			Expect(e.Status.TokenSecretUID).To(Equal("moved-secret"))
			Expect(e.Status.TokenSHA256).To(Equal(hostaccess.Enrollment(key, "moved-secret").Hash(token0)))
			for _, name := range []string{"edge-1", "edge-2"} {
				Expect(annotations(ctx, w, name)).To(And(HaveKeyWithValue(bootstrapv1.TokenHashAnnotation, e.Status.TokenSHA256),
					HaveKeyWithValue(bootstrapv1.TokenUIDAnnotation, "moved-secret")))
			}
			Expect(annotations(ctx, w, "edge-3")).To(HaveKeyWithValue(bootstrapv1.TokenStateAnnotation, string(bootstrapv1.TokenStateRevoked)))
			if w.Writes < failing {
				Expect(failing).To(BeNumerically(">", 3))
				break
			}
		}
	})

	It("does not bind a PoolbootConfig again whose host presented another token, or that was copied", func(ctx SpecContext) {
		w := newWorld(2)
		w.settle(ctx)
		w.ask(ctx, "edge-1")
		w.settle(ctx)
		copied := &bootstrapv1.PoolbootConfig{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: "copy", Annotations: maps.Clone(annotations(ctx, w, "edge-1"))}}
		copied.Spec.Host = bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeEnrollment, NodeName: "copy", Enrollment: bootstrapv1.EnrolledHost{Name: "edge-copy", Address: "192.0.2.7"}}
		Expect(w.Create(ctx, copied)).To(Succeed())
		before, beforeCopy := annotations(ctx, w, "edge-1"), annotations(ctx, w, "copy")
		move(ctx, w, "another-"+token0)
		w.settle(ctx)
		Expect(annotations(ctx, w, "edge-1")).To(Equal(before))
		Expect(annotations(ctx, w, "copy")).To(Equal(beforeCopy))
	})

	It("accepts no token when its Secret is deleted, and keeps the names that it admitted", func(ctx SpecContext) {
		w := newWorld(2)
		w.settle(ctx)
		w.ask(ctx, "edge-7")
		w.settle(ctx)
		Expect(w.Delete(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: secretKey.Namespace, Name: secretKey.Name}})).To(Succeed())
		w.ask(ctx, "edge-8")
		e := w.settle(ctx)
		Expect(e.Status.TokenSHA256).To(BeEmpty())
		Expect(e.Spec.Admitted).To(ConsistOf("edge-7"))
		Expect(w.hosts(ctx)).To(ConsistOf("edge-7"))
		Expect(strings.Join(w.receivedEvents(), "\n")).To(ContainSubstring(poolv1.EventHostRefused))
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

	DescribeTable("has no token, and answers no host, while its Secret is not valid",
		func(ctx SpecContext, reason, message string, change func(*corev1.Secret)) {
			w := newWorld(2)
			Expect(w.settle(ctx).Status.TokenSHA256).NotTo(BeEmpty())
			secret := &corev1.Secret{}
			Expect(w.Get(ctx, secretKey, secret)).To(Succeed())
			Expect(w.Delete(ctx, secret.DeepCopy())).To(Succeed())
			if change != nil {
				secret.ResourceVersion = ""
				change(secret)
				Expect(w.Create(ctx, secret)).To(Succeed())
			}
			e := w.settle(ctx)
			Expect(e.Status.TokenSHA256 + e.Status.TokenSecretUID).To(BeEmpty())
			Expect(e.Status.Conditions).To(ContainElement(And(HaveField("Reason", reason), HaveField("Message", ContainSubstring(message)))))
			w.ask(ctx, "edge-7")
			Expect(w.settle(ctx).Spec.Admitted).To(BeEmpty())

			By("using the token again when the Secret is valid")
			secret.ResourceVersion, secret.UID, secret.Type, secret.Data = "", "another-secret", poolv1.EnrollmentTokenType, map[string][]byte{"token": []byte(token0)}
			Expect(client.IgnoreNotFound(w.Delete(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: secretKey.Namespace, Name: secretKey.Name}}))).To(Succeed())
			Expect(w.Create(ctx, secret)).To(Succeed())
			Expect(w.settle(ctx).Status.TokenSHA256).To(Equal(hostaccess.Enrollment(key, "another-secret").Hash(token0)))
		},
		Entry("that was deleted", poolv1.EnrollmentSecretNotFoundReason, "Secret edge-token of type", nil),
		Entry("that is of another type, such as a kubeconfig or a password", poolv1.EnrollmentSecretNotFoundReason, "Secret edge-token of type", func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque }),
		Entry("that has a token which can be guessed", poolv1.EnrollmentInvalidSecretReason, "data.token", func(s *corev1.Secret) { s.Data["token"] = []byte("short") }),
		Entry("that has no token", poolv1.EnrollmentInvalidSecretReason, "data.token", func(s *corev1.Secret) { s.Data = nil }),
	)

	It("removes an invalid token from its status before anything else, even if nothing else can be written", func(ctx SpecContext) {
		w := newWorld(2)
		w.settle(ctx)
		w.ask(ctx, "edge-7")
		Expect(w.Delete(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: secretKey.Namespace, Name: secretKey.Name}})).To(Succeed())
		w.Writes, w.CrashAt = 0, 2
		Expect(w.manager(w).Reconcile(ctx, ctrl.Request{NamespacedName: key})).Error().To(MatchError(controllertest.ErrCrash))
		Expect(w.enrollment(ctx).Status.TokenSHA256).To(BeEmpty())
	})

	It("can share a Secret with another Enrollment, each with its own hash", func(ctx SpecContext) {
		w := newWorld(2)
		first := w.settle(ctx)
		second := first.DeepCopy()
		second.ObjectMeta = metav1.ObjectMeta{Namespace: key.Namespace, Name: "edge-2"}
		Expect(w.Create(ctx, second)).To(Succeed())
		Expect(w.manager(w).Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(second)})).Error().NotTo(HaveOccurred())
		Expect(w.Get(ctx, client.ObjectKeyFromObject(second), second)).To(Succeed())
		Expect(second.Status.TokenSHA256).To(Equal(hostaccess.Enrollment(client.ObjectKeyFromObject(second), "secret-uid").Hash(token0)))
		Expect(second.Status.TokenSHA256).NotTo(Equal(first.Status.TokenSHA256))
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
		Expect(w.enrollment(ctx).Spec.Admitted).To(BeEmpty(), "judged by a spec that is no longer true")
		e := w.settle(ctx)
		Expect(e.Spec).To(And(HaveField("NamePattern", "rack-*"), HaveField("Admitted", BeEmpty()), HaveField("MaxUses", before.Spec.MaxUses)))
	})
})
