package certificate

import (
	"crypto/x509"
	"net"
	"net/netip"
	"net/url"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
)

// own is the address that the host of the Machine is known to have.
var own = net.IPv4(192, 0, 2, 7)

// newServingRequest is what the kubelet of the Machine's Node asks for.
func newServingRequest(change ...func(*x509.CertificateRequest)) *certificatesv1.CertificateSigningRequest {
	GinkgoHelper()
	request := newRequest(append([]func(*x509.CertificateRequest){func(r *x509.CertificateRequest) {
		r.DNSNames, r.IPAddresses = []string{name}, []net.IP{own}
	}}, change...)...)
	request.Name, request.UID = "csr-serving", "uid-of-the-request"
	request.Spec.SignerName, request.Spec.Username = certificatesv1.KubeletServingSignerName, nodeUserPrefix+name
	request.Spec.Groups = []string{nodesGroup, "system:authenticated"}
	request.Spec.Usages = []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth}
	return request
}

var _ = Describe("A kubelet's request for its serving certificate", func() {
	request := func(change func(*x509.CertificateRequest)) func(*facts) {
		return func(f *facts) { f.request = newServingRequest(change) }
	}
	usages := func(usages ...certificatesv1.KeyUsage) func(*facts) {
		return func(f *facts) { f.request.Spec.Usages = usages }
	}
	DescribeTable("is for names and addresses of its own host",
		func(expected verdict, change func(*facts)) {
			f := facts{request: newServingRequest(), config: newConfig(), node: newNode(), addresses: []netip.Addr{netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("2001:db8::7")}}
			change(&f)
			got, why := decideServing(f)
			Expect(got).To(Equal(expected), why)
			Expect(why).NotTo(BeEmpty())
		},
		Entry("its Node's name and an address of its host", approve, func(*facts) {}),
		Entry("its Node's name alone", approve, request(func(r *x509.CertificateRequest) { r.IPAddresses = nil })),
		Entry("two addresses of its host", approve, request(func(r *x509.CertificateRequest) {
			r.IPAddresses = append(r.IPAddresses, net.ParseIP("2001:db8::7"))
		})),
		Entry("another host's address", leave, request(func(r *x509.CertificateRequest) { r.IPAddresses = append(r.IPAddresses, net.IPv4(192, 0, 2, 8)) })),
		Entry("an address that the Node alone says it has", leave, func(f *facts) {
			f.addresses = nil
			f.node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: own.String()}}
		}),
		Entry("the API server's name", leave, request(func(r *x509.CertificateRequest) { r.DNSNames = append(r.DNSNames, "kubernetes.default.svc") })),
		Entry("a name that the Node alone says it has", leave, func(f *facts) {
			f.request = newServingRequest(func(r *x509.CertificateRequest) { r.DNSNames = []string{"other"} })
			f.node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "other"}}
		}),
		Entry("no name and no address", leave, request(func(r *x509.CertificateRequest) { r.DNSNames, r.IPAddresses = nil, nil })),
		Entry("an e-mail address", leave, request(func(r *x509.CertificateRequest) { r.EmailAddresses = []string{"a@example.com"} })),
		Entry("a URI", leave, request(func(r *x509.CertificateRequest) { r.URIs = []*url.URL{{Scheme: "spiffe", Host: "x"}} })),
		Entry("another subject", leave, request(func(r *x509.CertificateRequest) { r.Subject.CommonName = nodeUserPrefix + "other" })),
		Entry("another group", leave, request(func(r *x509.CertificateRequest) { r.Subject.Organization = []string{"system:masters"} })),
		Entry("the usage of a client", leave, usages(certificatesv1.UsageServerAuth, certificatesv1.UsageClientAuth)),
		Entry("not the usage of a server", leave, usages(certificatesv1.UsageDigitalSignature)),
		Entry("nothing that can be read", leave, func(f *facts) { f.request.Spec.Request = []byte("hello") }),
		Entry("a Node that does not stand", wait, func(f *facts) { f.node = nil }),
		Entry("a Node of that name made by others", wait, func(f *facts) { f.node.Annotations = nil }),
		Entry("a Node made anew that is not on record", wait, func(f *facts) { f.node.UID = "another" }),
		Entry("no Node on record", wait, func(f *facts) { f.config.Status.Node = nil }),
	)

	DescribeTable("is decided only when its own kubelet asks", func(ours bool, change func(*certificatesv1.CertificateSigningRequest)) {
		request := newServingRequest()
		change(request)
		Expect(isServing(request, name)).To(Equal(ours))
	},
		Entry("its own", true, func(*certificatesv1.CertificateSigningRequest) {}),
		Entry("another Node's", false, func(r *certificatesv1.CertificateSigningRequest) { r.Spec.Username = nodeUserPrefix + "other" }),
		Entry("who is no kubelet", false, func(r *certificatesv1.CertificateSigningRequest) { r.Spec.Groups = []string{"system:authenticated"} }),
		Entry("for another signer", false, func(r *certificatesv1.CertificateSigningRequest) {
			r.Spec.SignerName = certificatesv1.KubeAPIServerClientKubeletSignerName
		}),
		Entry("signed already", false, func(r *certificatesv1.CertificateSigningRequest) { r.Status.Certificate = []byte("x") }),
	)

	It("stays open, told once, while its host is not known to have the address, and is approved when it is", func(ctx SpecContext) {
		bmh := newHost("192.0.2.1")
		s := newServing(bmh)
		s.reconcile(ctx)
		Expect(s.verdict(ctx)).To(BeEmpty())
		Expect(s.told.Events).To(Receive(And(HavePrefix("Warning "+bootstrapv1.EventServingRefused), ContainSubstring(own.String()), ContainSubstring(host.AddressesAnnotation))))
		s.reconcile(ctx)
		Expect(s.told.Events).NotTo(Receive())
		Expect(s.management.Get(ctx, configKey, bmh)).To(Succeed())
		bmh.Annotations = map[string]string{host.AddressesAnnotation: own.String()}
		Expect(s.management.Update(ctx, bmh)).To(Succeed())
		s.reconcile(ctx)
		Expect(s.verdict(ctx)).To(HaveExactElements(And(HaveField("Type", certificatesv1.CertificateApproved), HaveField("Reason", ServingReason))))
	})
})
