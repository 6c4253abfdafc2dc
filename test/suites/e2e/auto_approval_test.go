package e2e

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

// newAutoApproval returns the ClusterRoleBinding of Kubernetes' guide to TLS bootstrapping.
func newAutoApproval(group string) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "auto-approve-csrs-for-group"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:certificates.k8s.io:certificatesigningrequests:nodeclient"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: group}},
	}
}

var _ = Describe("A cluster that approves certificates for all bootstrap tokens", func() {
	It("gets no join credential, reports the binding that is the cause, and boots its hosts after the binding is changed", func(ctx SpecContext) {
		binding := newAutoApproval(bootstrapapi.BootstrapDefaultGroup)
		Expect(lab.WorkloadClient.Create(ctx, binding)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			Expect(client.IgnoreNotFound(lab.WorkloadClient.Delete(ctx, binding))).To(Succeed())
		})

		By("showing that a certificate for any Node is approved for a token of the same groups")
		credential, err := join.EnsureCredential(ctx, lab.WorkloadClient, "default/a-thief", "", join.Lifetime)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(func(ctx SpecContext) {
			Expect(join.DeleteCredential(ctx, lab.WorkloadClient, credential.ID)).To(Succeed())
		})
		thief := newClient(&rest.Config{Host: lab.Workload.Config.Host, BearerToken: credential.Token(),
			TLSClientConfig: rest.TLSClientConfig{CAData: lab.Workload.Config.CAData}})
		Expect(join.EnsureRBAC(ctx, lab.WorkloadClient, false)).To(Succeed())
		request := requestCertificate(ctx, thief, certificatesv1.KubeAPIServerClientKubeletSignerName, "system:node:any-node", "system:nodes")
		Eventually(ctx, getDecision).WithArguments(request).Should(Equal("Approved AutoApproved"))

		t := tenant.New(ctx, lab, 1)
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		config := t.Config(ctx, "infra")
		Eventually(ctx, t.Condition(config, bootstrapv1.BootPreparedCondition)).Should(And(HavePrefix("False CertificatesAutoApproved"),
			ContainSubstring(`ClusterRoleBinding "auto-approve-csrs-for-group"`), ContainSubstring("system:bootstrappers:kubeadm:default-node-token")))
		inline := t.Deploy(ctx, tenant.Deployment{Name: "inline", Replicas: 1, Config: func(spec *bootstrapv1.BootSpec) {
			spec.ConfigSource = bootstrapv1.ConfigSource{Type: bootstrapv1.ConfigSourceTypeInline}
		}})
		Eventually(ctx, t.Condition(t.Config(ctx, "inline"), clusterv1.ReadyCondition)).Should(HavePrefix("False CertificatesAutoApproved"))
		tokens := func(ctx context.Context) (owned []string) {
			list := &corev1.SecretList{}
			Expect(lab.WorkloadClient.List(ctx, list, client.InNamespace(metav1.NamespaceSystem))).To(Succeed())
			for i := range list.Items {
				for _, deployment := range []string{"infra", "inline"} {
					if join.IsCredentialOf(&list.Items[i], client.ObjectKeyFromObject(t.Config(ctx, deployment)).String()) {
						owned = append(owned, list.Items[i].Name)
					}
				}
			}
			return owned
		}
		Expect(tokens(ctx)).To(BeEmpty())
		Expect(lab.WorkloadClient.Get(ctx, client.ObjectKey{Name: t.Machine(ctx, config).Name}, &corev1.Node{})).To(Satisfy(apierrors.IsNotFound))

		By("binding it to tokens of another group, as kubeadm does")
		t.Scale(ctx, inline, 0)
		binding.Subjects = newAutoApproval("system:bootstrappers:kubeadm:default-node-token").Subjects
		Expect(lab.WorkloadClient.Update(ctx, binding)).To(Succeed())
		expectJoined(ctx, t, config)
	}, SpecTimeout(6*time.Minute))
})
