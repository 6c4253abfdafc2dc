package e2e

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/certificate"
)

var _ = Describe("A host that can choose any name", func() {
	It("does not get the API server's or another Node's name, nor a certificate for them", func(ctx SpecContext) {
		t := newTenantTakingHosts(ctx)
		const apiServer = "kubernetes.default.svc"
		own, taken := t.Namespace+"-own", t.Namespace+"-taken"
		secret, enrollment := t.Enrollment("edge", 2)
		enrollment.Spec.NamePattern = "*"
		token := secret.StringData[poolv1.EnrollmentTokenKey]
		t.Create(ctx, secret)
		t.Create(ctx, enrollment)
		get := func(ctx context.Context) (*poolv1.Enrollment, error) {
			err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(enrollment), enrollment)
			return enrollment, client.IgnoreNotFound(err)
		}
		Eventually(ctx, get).Should(HaveField("Status.URL", Not(BeEmpty())))
		pointer := func(name string) ignition.Pointer {
			return ignition.Pointer{URL: enrollment.Status.URL + "?name=" + name, Token: token, CA: []byte(enrollment.Status.CertificateAuthority)}
		}
		foreign := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: taken}}
		Expect(lab.WorkloadClient.Create(ctx, foreign)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(lab.WorkloadClient.Delete(ctx, foreign)).To(Succeed()) })

		By("requesting the API server's name")
		code, body, err := fetchPointer(ctx, pointer(apiServer))
		Expect(err).NotTo(HaveOccurred())
		Expect(code).To(Equal(403), body)
		Expect(body).To(ContainSubstring("no Node can have the name"))

		By("requesting the name of an existing Node, after the manager has connected to the cluster")
		Eventually(ctx, fetchStatus).WithArguments(pointer(own)).Should(Equal(200))
		Eventually(ctx, func(ctx context.Context) (string, error) {
			_, body, err := fetchPointer(ctx, pointer(taken))
			return body, err
		}).Should(ContainSubstring("Node " + taken + " already exists"))
		Expect(get(ctx)).To(HaveField("AdmittedNames()", ConsistOf(own)), "a refused name does not use up the token")

		By("requesting certificates for other names with its own join credential")
		config := &bootstrapv1.PoolbootConfig{}
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: own}, config)).To(Succeed())
		host := newClient(stealCredential(ctx, config))
		for _, name := range []string{apiServer, taken} {
			request := requestCertificate(ctx, host, certificatesv1.KubeAPIServerClientKubeletSignerName, "system:node:"+name, "system:nodes")
			Eventually(ctx, getDecision).WithArguments(request).Should(Equal("Denied " + certificate.DeniedReason))
			Eventually(ctx, listEvents(ctx, config, bootstrapv1.EventCertificateRequestDenied)).Should(ContainElement(ContainSubstring("Node " + name)))
		}
		Expect(lab.WorkloadClient.Get(ctx, client.ObjectKey{Name: apiServer}, &corev1.Node{})).NotTo(Succeed())
	})
})
