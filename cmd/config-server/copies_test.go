package main

import (
	"context"
	"maps"
	"net/http"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/access"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/server"
)

// copyOf creates a PoolbootConfig with the annotations of the machine's.
func (m *machine) copyOf(ctx context.Context, namespace, name string, change func(annotations map[string]string)) *bootstrapv1.PoolbootConfig {
	GinkgoHelper()
	copied := &bootstrapv1.PoolbootConfig{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: maps.Clone(m.config.Annotations)}, Spec: *m.config.Spec.DeepCopy(),
	}
	change(copied.Annotations)
	Expect(admin.Create(ctx, copied)).To(Succeed())
	return copied
}

func newNamespace(ctx context.Context, name string) string {
	GinkgoHelper()
	Expect(admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})).To(Succeed())
	return name
}

// newEnrollment creates an Enrollment with the status that the manager computes for a token.
func newEnrollment(ctx context.Context, key client.ObjectKey, token string, expires time.Time) *poolv1.Enrollment {
	GinkgoHelper()
	const secret = "uid-of-the-secret"
	e := &poolv1.Enrollment{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
		Spec: poolv1.EnrollmentSpec{ClusterName: "site", PoolRole: "infra", NamePattern: "edge-*", MaxUses: 1, ExpirationTime: metav1.NewTime(expires),
			TokenSecretRef: poolv1.TokenSecretReference{Name: key.Name}},
	}
	Expect(admin.Create(ctx, e)).To(Succeed())
	e.Status.TokenSHA256, e.Status.TokenSecretUID = access.Enrollment(key, secret).Hash(token), secret
	Expect(admin.Status().Update(ctx, e)).To(Succeed())
	return e
}

var _ = Describe("A user who copies objects", func() {
	It("can't end the boot of the original's host, or change its configuration, whichever object is known first", func(ctx SpecContext) {
		m, elsewhere := newMachine(ctx, "copied"), newNamespace(ctx, "copies")
		m.copyOf(ctx, elsewhere, "junk", func(annotations map[string]string) {
			annotations[bootstrapv1.TokenHashAnnotation] = "0" + annotations[bootstrapv1.TokenHashAnnotation][1:]
		})
		m.copyOf(ctx, elsewhere, m.config.Name, func(annotations map[string]string) {
			annotations[bootstrapv1.TokenStateAnnotation] = string(bootstrapv1.TokenStateRevoked)
		})
		m.copyOf(ctx, metav1.NamespaceDefault, "copy", func(map[string]string) {})
		s := serve()
		m.prepare(ctx)
		Eventually(s.answers(m.path(), m.token)).Should(Equal(http.StatusOK))
		newHost(s, m, authority).boots(ctx)
		Expect(s.answers("/config/infra/default/copy/"+m.config.Name, m.token)()).To(Equal(http.StatusServiceUnavailable))

		By("the host's own record is deleted, as during a restore")
		Expect(admin.Delete(ctx, m.config)).To(Succeed())
		Eventually(s.answers(m.path(), m.token)).Should(Equal(http.StatusServiceUnavailable))
		Expect(s.answers(m.path(), m.token)()).To(Equal(http.StatusServiceUnavailable))

		By("the record is restored with its annotations and another UID, and the manager has not verified the token yet")
		m.config = m.copyOf(ctx, metav1.NamespaceDefault, m.config.Name, func(map[string]string) {})
		m.prepare(ctx)
		Consistently(s.answers(m.path(), m.token), time.Second).Should(Equal(http.StatusServiceUnavailable))
		m.rotate(ctx, m.token)
		Eventually(s.answers(m.path(), m.token)).Should(Equal(http.StatusOK))
		Expect(s.answers(m.path(), "guessed")()).To(Equal(http.StatusUnauthorized))
	})

	It("can't end a boot with a copy of an Enrollment", func(ctx SpecContext) {
		const token = "an-enrollment-token-of-thirty-two-characters"
		own := client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "copied-batch"}
		e := newEnrollment(ctx, own, token, time.Now().Add(time.Hour))
		for _, key := range []client.ObjectKey{{Namespace: newNamespace(ctx, "copied-enrollments"), Name: own.Name}, {Namespace: own.Namespace, Name: "expired-batch"}} {
			copied := newEnrollment(ctx, key, "", time.Now().Add(-time.Hour))
			copied.Status.TokenSHA256 = e.Status.TokenSHA256
			Expect(admin.Status().Update(ctx, copied)).To(Succeed())
		}
		m := newMachine(ctx, "edge-copied")
		Expect(admin.Delete(ctx, m.config)).To(Succeed())
		m.config.ObjectMeta = metav1.ObjectMeta{Namespace: m.config.Namespace, Name: m.config.Name, Annotations: map[string]string{
			bootstrapv1.TokenHashAnnotation: e.Status.TokenSHA256, bootstrapv1.TokenUIDAnnotation: e.Status.TokenSecretUID,
			bootstrapv1.PointerIDAnnotation: access.PointerID(own.Namespace, own.Name, m.config.Name), bootstrapv1.EnrolledFromAnnotation: "127.0.0.1",
		}}
		m.config.Spec.PoolRole, m.config.Spec.Host = "infra", bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeEnrollment, NodeName: m.config.Name,
			Enrollment: bootstrapv1.EnrolledHost{Name: own.Name}}
		Expect(admin.Create(ctx, m.config)).To(Succeed())
		m.prepare(ctx)
		s := serve()
		Eventually(s.answers("/config/infra/default/copied-batch?name=edge-copied", token)).Should(Equal(http.StatusOK))
		Expect(s.answers("/config/infra/copied-enrollments/copied-batch?name=edge-copied", token)()).To(Equal(http.StatusServiceUnavailable))
		Expect(s.answers("/config/infra/default/expired-batch?name=edge-copied", token)()).To(Equal(http.StatusServiceUnavailable))
	})

	It("can't record more requests than an Enrollment allows: other hosts get the remedy, even from a replica with a stale cache", func(ctx SpecContext) {
		const token = "another-enrollment-token-of-thirty-two-characters"
		key := client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "full"}
		newEnrollment(ctx, key, token, time.Now().Add(time.Hour))
		recorder := newAdmissionRecorder(admin)
		record := func(name string) error {
			return recorder.RecordAdmissionRequest(ctx, server.Enrollment{NamespacedName: key}, name, "192.0.2.7", time.Now())
		}
		// At once, because a replica pauses after each write.
		var hosts errgroup.Group
		for i := range poolv1.MaxEnrollmentRequests {
			hosts.Go(func() error { return record("edge-" + string(rune('a'+i/26)) + string(rune('a'+i%26))) })
		}
		Expect(hosts.Wait()).To(Succeed())
		recorder = newAdmissionRecorder(admin)
		Expect(record("edge-one-too-many")).To(MatchError(server.ErrEnrollmentFull))
		Expect(record("edge-aa")).To(Succeed(), "a recorded host can send another request")
		s := serve()
		Eventually(func() (string, error) {
			_, body, err := s.send("/config/infra/default/full?name=edge-last", token)
			return string(body), err
		}).Should(ContainSubstring("EnrollmentFull"))
	})
})

var _ = Describe("A config server for some of the hosts", func() {
	It("serves those in its namespace, or with its watch filter, with overlays from its own namespace", func(ctx SpecContext) {
		inside, labeled := newMachine(ctx, "in-default"), newMachine(ctx, "labeled")
		elsewhere := newNamespace(ctx, "another-site")
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"cluster.x-k8s.io/watch-filter":"mine"}}}`))
		Expect(admin.Patch(ctx, labeled.config, patch)).To(Succeed())
		inside.prepare(ctx)
		labeled.prepare(ctx)

		all, there, filtered := serve("--namespace", metav1.NamespaceDefault), serve("--namespace", elsewhere), serve("--watch-filter", "mine")
		for _, m := range []*machine{inside, labeled} {
			Eventually(all.answers(m.path(), m.token)).Should(Equal(http.StatusOK))
			Expect(there.answers(m.path(), m.token)()).To(Equal(http.StatusServiceUnavailable))
		}
		Eventually(filtered.answers(labeled.path(), labeled.token)).Should(Equal(http.StatusOK))
		Expect(filtered.answers(labeled.renderedPath(), labeled.token)()).To(Equal(http.StatusOK))
		Expect(filtered.answers(inside.path(), inside.token)()).To(Equal(http.StatusServiceUnavailable))
	})
})
