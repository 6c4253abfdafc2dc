package enrollment

import (
	"context"
	"maps"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/access"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/controllertest"
)

var _ = Describe("An Enrollment", func() {
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
			Expect(e.AdmittedNames()).To(Equal([]string{"edge-1", "edge-2", "edge-3"}))
			Expect(e.Status.TokenSecretUID).To(Equal("moved-secret"))
			Expect(e.Status.TokenSHA256).To(Equal(access.Enrollment(key, "moved-secret").Hash(token0)))
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
		copied.Spec.Host = bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeEnrollment, NodeName: "copy", Enrollment: bootstrapv1.EnrolledHost{Name: "edge-copy"}}
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
		Expect(e.AdmittedNames()).To(ConsistOf("edge-7"))
		Expect(w.hosts(ctx)).To(ConsistOf("edge-7"))
		Expect(strings.Join(w.receivedEvents(), "\n")).To(ContainSubstring(poolv1.EventHostRefused))
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
			Expect(w.settle(ctx).AdmittedNames()).To(BeEmpty())

			By("using the token again when the Secret is valid")
			secret.ResourceVersion, secret.UID, secret.Type, secret.Data = "", "another-secret", poolv1.EnrollmentTokenType, map[string][]byte{"token": []byte(token0)}
			Expect(client.IgnoreNotFound(w.Delete(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: secretKey.Namespace, Name: secretKey.Name}}))).To(Succeed())
			Expect(w.Create(ctx, secret)).To(Succeed())
			Expect(w.settle(ctx).Status.TokenSHA256).To(Equal(access.Enrollment(key, "another-secret").Hash(token0)))
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
		Expect(second.Status.TokenSHA256).To(Equal(access.Enrollment(client.ObjectKeyFromObject(second), "secret-uid").Hash(token0)))
		Expect(second.Status.TokenSHA256).NotTo(Equal(first.Status.TokenSHA256))
	})
})
