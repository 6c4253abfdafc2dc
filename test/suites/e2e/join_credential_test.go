package e2e

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/certificate"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

var _ = Describe("A join credential", func() {
	It("gets a certificate for the pre-registered Node only, once", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 0)
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		config := t.Config(ctx, "infra")
		Eventually(ctx, t.Condition(config, clusterv1.ReadyCondition)).Should(HavePrefix("True"))
		boot := assignPausedHost(ctx, t, config)
		pointer := t.Pointer(ctx, config)
		Eventually(ctx, fetchStatus).WithArguments(pointer).Should(Equal(200), "an attacker asks in place of the host")
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(config), config)).To(Succeed())
		credential := stealCredential(ctx, config)
		attacker := newClient(credential)
		own, user := config.Status.NodeRef.Name, bootstrapapi.BootstrapUserPrefix+config.Status.Boot.CredentialID

		By("requesting other certificates")
		kubelets := certificatesv1.KubeAPIServerClientKubeletSignerName
		another := requestCertificate(ctx, attacker, kubelets, "system:node:another", "system:nodes")
		master := requestCertificate(ctx, attacker, kubelets, "system:node:"+own, "system:nodes", "system:masters")
		admin := requestCertificate(ctx, attacker, certificatesv1.KubeAPIServerClientSignerName, "system:kube-controller-manager")
		for _, refused := range []*certificatesv1.CertificateSigningRequest{another, master} {
			Eventually(ctx, getDecision).WithArguments(refused).Should(Equal("Denied " + certificate.DeniedReason))
		}
		Eventually(ctx, listEvents(ctx, config, bootstrapv1.EventCertificateRequestDenied)).Should(ContainElement(
			And(ContainSubstring("Node another"), ContainSubstring("Node "+own))))
		Expect(attacker.List(ctx, &corev1.SecretList{}, client.InNamespace(metav1.NamespaceSystem))).To(Satisfy(apierrors.IsForbidden))
		Expect(isAutoApproved(ctx, user, "nodeclient")).To(BeFalse(), "otherwise kube-controller-manager approves requests for any Node")

		By("booting the host")
		boot()
		expectJoined(ctx, t, config)
		Expect(listDecisions(ctx, user, "system:node:"+own, "system:nodes")).To(HaveExactElements("Approved " + certificate.ApprovedReason))
		for _, refused := range []*certificatesv1.CertificateSigningRequest{another, master, admin} {
			Expect(lab.WorkloadClient.Get(ctx, client.ObjectKeyFromObject(refused), refused)).To(Succeed())
			Expect(refused.Status.Certificate).To(BeEmpty(), refused.Spec.Username)
		}

		By("using the token and the credential after the host has joined")
		Expect(listJoinTokens(ctx, config)).To(BeEmpty())
		Eventually(ctx, fetchStatus).WithArguments(pointer).Should(Equal(401))
		Eventually(ctx, func() error { return attacker.List(ctx, &corev1.NodeList{}) }).Should(Satisfy(apierrors.IsUnauthorized))
		kubelet, err := lab.Workload.UserConfig("system:node:"+own, "system:nodes")
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, getDecision).WithArguments(requestCertificate(ctx, newClient(kubelet), kubelets, "system:node:"+own, "system:nodes")).
			Should(Equal("Approved AutoApproved"), "kube-controller-manager approves the renewal of a Node's own certificate")
	}, SpecTimeout(3*time.Minute))

	It("gets one certificate: a second request is reported and not approved, and the host gets a new credential", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 0)
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		config := t.Config(ctx, "infra")
		Eventually(ctx, t.Condition(config, clusterv1.ReadyCondition)).Should(HavePrefix("True"))
		assignPausedHost(ctx, t, config)
		pointer := t.Pointer(ctx, config)
		Eventually(ctx, fetchStatus).WithArguments(pointer).Should(Equal(200))
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(config), config)).To(Succeed())
		first := stealCredential(ctx, config)
		own := "system:node:" + config.Status.NodeRef.Name
		kubelets := certificatesv1.KubeAPIServerClientKubeletSignerName
		Eventually(ctx, getDecision).WithArguments(requestCertificate(ctx, newClient(first), kubelets, own, "system:nodes")).Should(Equal("Approved " + certificate.ApprovedReason))
		second := requestCertificate(ctx, newClient(first), kubelets, own, "system:nodes")
		Eventually(ctx, listEvents(ctx, config, bootstrapv1.EventCertificateRequestContested)).Should(And(Not(BeEmpty()), HaveEach(ContainSubstring(second.Name))))
		Expect(getDecision(ctx, second)).To(BeEmpty())

		Eventually(ctx, fetchStatus).WithArguments(pointer).Should(Equal(200))
		Expect(stealCredential(ctx, config).BearerToken).NotTo(Equal(first.BearerToken))
		Eventually(ctx, func() error { return newClient(first).List(ctx, &certificatesv1.CertificateSigningRequestList{}) }).
			Should(Satisfy(apierrors.IsUnauthorized))
	}, SpecTimeout(3*time.Minute))
})
