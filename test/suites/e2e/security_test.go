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

var _ = Describe("What a host is given", func() {
	It("makes it the one Node that was made for it, once", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 0)
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		config := t.Config(ctx, "infra")
		Eventually(ctx, t.Condition(config, clusterv1.ReadyCondition)).Should(HavePrefix("True"))
		boot := switchedOff(ctx, t, config)
		pointer := t.Pointer(ctx, config)
		Eventually(ctx, answer).WithArguments(pointer).Should(Equal(200), "a thief asks in the host's place")
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(config), config)).To(Succeed())
		credential := stolen(ctx, config)
		thief := clientOf(credential)
		own, user := config.Status.NodeRef.Name, bootstrapapi.BootstrapUserPrefix+config.Status.Boot.CredentialID

		By("asking for what is not its own")
		kubelets := certificatesv1.KubeAPIServerClientKubeletSignerName
		another := ask(ctx, thief, kubelets, "system:node:another", "system:nodes")
		master := ask(ctx, thief, kubelets, "system:node:"+own, "system:nodes", "system:masters")
		admin := ask(ctx, thief, certificatesv1.KubeAPIServerClientSignerName, "system:kube-controller-manager")
		for _, refused := range []*certificatesv1.CertificateSigningRequest{another, master} {
			Eventually(ctx, decision).WithArguments(refused).Should(Equal("Denied " + certificate.DeniedReason))
		}
		Eventually(ctx, eventsOf(ctx, config, bootstrapv1.EventRequestDenied)).Should(ContainElement(
			And(ContainSubstring("Node another"), ContainSubstring("Node "+own))))
		Expect(thief.List(ctx, &corev1.SecretList{}, client.InNamespace(metav1.NamespaceSystem))).To(Satisfy(apierrors.IsForbidden))
		Expect(mayApproveItself(ctx, user, "nodeclient")).To(BeFalse(), "kube-controller-manager would approve any Node's request")

		By("letting the host boot")
		boot()
		joined(ctx, t, config)
		Expect(decisions(ctx, user, "system:node:"+own, "system:nodes")).To(HaveExactElements("Approved " + certificate.ApprovedReason))
		for _, refused := range []*certificatesv1.CertificateSigningRequest{another, master, admin} {
			Expect(lab.WorkloadClient.Get(ctx, client.ObjectKeyFromObject(refused), refused)).To(Succeed())
			Expect(refused.Status.Certificate).To(BeEmpty(), refused.Spec.Username)
		}

		By("coming back later")
		Expect(joinTokens(ctx, config)).To(BeEmpty())
		Eventually(ctx, answer).WithArguments(pointer).Should(Equal(401))
		Eventually(ctx, func() error { return thief.List(ctx, &corev1.NodeList{}) }).Should(Satisfy(apierrors.IsUnauthorized))
		kubelet, err := lab.Workload.UserConfig("system:node:"+own, "system:nodes")
		Expect(err).NotTo(HaveOccurred())
		Eventually(ctx, decision).WithArguments(ask(ctx, clientOf(kubelet), kubelets, "system:node:"+own, "system:nodes")).
			Should(Equal("Approved AutoApproved"), "kube-controller-manager approves, but only a Node's renewal of its own")
	}, SpecTimeout(3*time.Minute))

	It("gets it one certificate: who comes second waits, that is told, and the host gets another credential", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 0)
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		config := t.Config(ctx, "infra")
		Eventually(ctx, t.Condition(config, clusterv1.ReadyCondition)).Should(HavePrefix("True"))
		switchedOff(ctx, t, config)
		pointer := t.Pointer(ctx, config)
		Eventually(ctx, answer).WithArguments(pointer).Should(Equal(200))
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(config), config)).To(Succeed())
		first := stolen(ctx, config)
		own := "system:node:" + config.Status.NodeRef.Name
		kubelets := certificatesv1.KubeAPIServerClientKubeletSignerName
		Eventually(ctx, decision).WithArguments(ask(ctx, clientOf(first), kubelets, own, "system:nodes")).Should(Equal("Approved " + certificate.ApprovedReason))
		second := ask(ctx, clientOf(first), kubelets, own, "system:nodes")
		Eventually(ctx, eventsOf(ctx, config, bootstrapv1.EventRequestContested)).Should(And(Not(BeEmpty()), HaveEach(ContainSubstring(second.Name))))
		Expect(decision(ctx, second)).To(BeEmpty())

		Eventually(ctx, answer).WithArguments(pointer).Should(Equal(200))
		Expect(stolen(ctx, config).BearerToken).NotTo(Equal(first.BearerToken))
		Eventually(ctx, func() error { return clientOf(first).List(ctx, &certificatesv1.CertificateSigningRequestList{}) }).
			Should(Satisfy(apierrors.IsUnauthorized))
	}, SpecTimeout(3*time.Minute))
})
