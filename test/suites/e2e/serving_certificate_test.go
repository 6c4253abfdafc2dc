package e2e

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	certutil "k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/certificate"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

// listServingRequests returns a function that lists the requests of a Node's kubelet for serving certificates.
func listServingRequests(ctx context.Context, node string) func() ([]certificatesv1.CertificateSigningRequest, error) {
	return func() (found []certificatesv1.CertificateSigningRequest, err error) {
		var requests certificatesv1.CertificateSigningRequestList
		err = lab.WorkloadClient.List(ctx, &requests)
		for _, r := range requests.Items {
			if r.Spec.SignerName == certificatesv1.KubeletServingSignerName && r.Spec.Username == "system:node:"+node {
				found = append(found, r)
			}
		}
		return found, err
	}
}

// requestServingCertificate requests a serving certificate for a name and an address with a kubelet's credential.
func requestServingCertificate(ctx context.Context, kubelet client.Client, node, name string, address net.IP) *certificatesv1.CertificateSigningRequest {
	GinkgoHelper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Expect(err).NotTo(HaveOccurred())
	csr, err := certutil.MakeCSR(key, &pkix.Name{CommonName: "system:node:" + node, Organization: []string{"system:nodes"}}, []string{name}, []net.IP{address})
	Expect(err).NotTo(HaveOccurred())
	request := &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "serving-"},
		Spec: certificatesv1.CertificateSigningRequestSpec{Request: csr, SignerName: certificatesv1.KubeletServingSignerName,
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth}},
	}
	Expect(kubelet.Create(ctx, request)).To(Succeed())
	return request
}

var _ = Describe("A kubelet's serving certificate", func() {
	It("is for its Node's name and its host's addresses only", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 1, func(p *poolv1.MachineConfigPool) {
			if p.Spec.PoolRole == "infra" {
				p.Spec.Kubelet.Configuration = &runtime.RawExtension{Raw: []byte(`{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration","serverTLSBootstrap":true}`)}
			}
		})
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		config := t.Config(ctx, "infra")
		expectJoined(ctx, t, config)
		node := t.Node(ctx, config)
		var address net.IP
		for _, a := range node.Status.Addresses {
			if a.Type == corev1.NodeInternalIP {
				address = net.ParseIP(a.Address)
			}
		}
		Expect(address).NotTo(BeNil())

		By("requesting an address that is not on record for the host")
		Eventually(ctx, listServingRequests(ctx, node.Name)).ShouldNot(BeEmpty())
		Eventually(ctx, listEvents(ctx, config, bootstrapv1.EventServingCertificateNotApproved)).Should(ContainElement(ContainSubstring(address.String())))
		Expect(listServingRequests(ctx, node.Name)()).To(HaveEach(HaveField("Status", BeZero())))

		By("recording the address on the BareMetalHost")
		bmh := &bmov1alpha1.BareMetalHost{}
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: config.Status.HostRef.Name}, bmh)).To(Succeed())
		before := bmh.DeepCopy()
		metav1.SetMetaDataAnnotation(&bmh.ObjectMeta, poolv1.HostAddressesAnnotation, address.String())
		Expect(lab.ManagementClient.Patch(ctx, bmh, client.MergeFrom(before))).To(Succeed())
		var signed certificatesv1.CertificateSigningRequest
		Eventually(ctx, func() ([]byte, error) {
			requests, err := listServingRequests(ctx, node.Name)()
			for _, request := range requests {
				if len(request.Status.Certificate) > 0 {
					signed = request
				}
			}
			return signed.Status.Certificate, err
		}).ShouldNot(BeEmpty(), "kube-controller-manager signs the approved request")
		Expect(signed.Status.Conditions).To(HaveExactElements(HaveField("Reason", certificate.ServingApprovedReason)))
		block, _ := pem.Decode(signed.Status.Certificate)
		cert, err := x509.ParseCertificate(block.Bytes)
		Expect(err).NotTo(HaveOccurred())
		Expect(cert.VerifyHostname(node.Name)).To(Succeed())
		Expect(cert.VerifyHostname(address.String())).To(Succeed())

		By("requesting another host's address and the API server's name, as root on the host")
		credential, err := lab.Workload.UserConfig("system:node:"+node.Name, "system:nodes")
		Expect(err).NotTo(HaveOccurred())
		foreign := requestServingCertificate(ctx, newClient(credential), node.Name, node.Name, net.IPv4(192, 0, 2, 99))
		apiServer := requestServingCertificate(ctx, newClient(credential), node.Name, "kubernetes.default.svc", address)
		Eventually(ctx, listEvents(ctx, config, bootstrapv1.EventServingCertificateNotApproved)).Should(ContainElements(
			ContainSubstring("192.0.2.99"), ContainSubstring("kubernetes.default.svc")))
		for _, refused := range []*certificatesv1.CertificateSigningRequest{foreign, apiServer} {
			Expect(getDecision(ctx, refused)).To(BeEmpty())
		}
	}, SpecTimeout(3*time.Minute))
})
