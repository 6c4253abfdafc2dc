package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/tenant"
)

var _ = Describe("A host without a Machine", func() {
	It("boots into its pool by an enrolment token: no version of its Node was ever outside", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 0)
		template := &bootstrapv1.PoolbootConfigTemplate{ObjectMeta: metav1.ObjectMeta{Name: "hosts"}}
		template.Spec.Template.Spec.Join.Kubelet = &bootstrapv1.KubeletJoin{}
		infra := t.Pool("infra")
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(infra), infra)).To(Succeed())
		before := infra.DeepCopy()
		infra.Spec.HostTemplate = template.Name
		Expect(lab.ManagementClient.Patch(ctx, infra, client.MergeFrom(before))).To(Succeed())
		token, name := strings.Repeat(t.Namespace, 10), t.Namespace+"-7"
		t.Create(ctx, template, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: "edge", Labels: map[string]string{clusterv1.ClusterNameLabel: t.Namespace}},
			Type:       poolv1.EnrolmentTokenType,
			StringData: map[string]string{"token": token, "role": "infra", "names": t.Namespace + "-*", "uses": "1",
				"expires": time.Now().Add(time.Hour).Format(time.RFC3339)},
		})
		enrolment := &poolv1.Enrolment{ObjectMeta: metav1.ObjectMeta{Name: "edge", Namespace: t.Namespace}}
		Eventually(ctx, func(ctx context.Context) (string, error) {
			err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(enrolment), enrolment)
			return enrolment.Status.URL, client.IgnoreNotFound(err)
		}).ShouldNot(BeEmpty())
		userData, err := ignition.Pointer{URL: enrolment.Status.URL + "?name=" + name, Token: token, CA: []byte(enrolment.Status.CertificateAuthority)}.Marshal()
		Expect(err).NotTo(HaveOccurred())
		history, err := site.RecordNodes(ctx, lab.WorkloadClient)
		Expect(err).NotTo(HaveOccurred())

		dir, err := os.MkdirTemp("", "host-") // short: sockets live below it
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(os.RemoveAll, dir)
		server := host.New(host.Options{Name: name, Dir: dir, Log: GinkgoWriter})
		Expect(server.PowerOn(context.WithoutCancel(ctx), userData)).To(Succeed())
		DeferCleanup(server.PowerOff)

		config := &bootstrapv1.PoolbootConfig{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: t.Namespace}}
		Eventually(ctx, func(ctx context.Context) error {
			return lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(config), config)
		}).Should(Succeed())
		Eventually(ctx, t.Condition(config, bootstrapv1.NodeInPoolCondition)).Should(HavePrefix("True"))
		Eventually(ctx, func() []corev1.Taint { return t.Node(ctx, config).Spec.Taints }).
			ShouldNot(ContainElement(Or(HaveField("Key", poolv1.NodeUnassignedTaint), HaveField("Key", clusterv1.NodeUninitializedTaint.Key))))
		Eventually(ctx, server.Joined).Should(BeTrue(), "the sentinel file")
		verdict := site.Judge(history.Of(name), "infra", pools(ctx, t))
		Expect(verdict.Versions).To(BeNumerically(">", 1))
		Expect(verdict).To(Equal(site.Verdict{Versions: verdict.Versions, BornInPool: true}))
		Expect(os.ReadFile(filepath.Join(server.Root(), "/etc/infratest"))).To(BeEquivalentTo("infra"))

		By("being known by its token no more")
		Eventually(ctx, func(ctx context.Context) (string, error) {
			err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(config), config)
			return config.Annotations[bootstrapv1.TokenHashAnnotation] + config.Status.Boot.CredentialID, err
		}).Should(Equal(bootstrapv1.TokenRevoked))
		Expect(overlays(ctx, config)).To(BeEmpty())
	})
})
