package certificate

import (
	"context"
	"crypto/x509"
	"net"
	"net/netip"
	"net/url"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/identity"
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
			f := facts{request: newServingRequest(), config: newConfig(), node: newNode(), cluster: identity.Of(newCluster()),
				addresses: addresses{known: []netip.Addr{netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("2001:db8::7")}, cure: "do something"}}
			f.cluster.ServiceAddresses = []netip.Addr{netip.MustParseAddr("198.51.100.1")}
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
			f.addresses.known = nil
			f.node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: own.String()}}
		}),
		Entry("a Node with the API server's name", leave, func(f *facts) {
			rename("kubernetes.default.svc")(f)
			f.request = newServingRequest(named("kubernetes.default.svc"), func(r *x509.CertificateRequest) { r.DNSNames = []string{"kubernetes.default.svc"} })
		}),
		Entry("a Node with the name of the control plane endpoint", leave, func(f *facts) {
			rename("api.example.com")(f)
			f.request = newServingRequest(named("api.example.com"), func(r *x509.CertificateRequest) { r.DNSNames = []string{"api.example.com"} })
		}),
		Entry("an address of its host that is the control plane endpoint", leave, func(f *facts) { f.cluster.Endpoints = []string{own.String()} }),
		Entry("an address of its host that is in the range of the Services", leave, func(f *facts) {
			f.cluster.ServiceRanges = []netip.Prefix{netip.MustParsePrefix("192.0.0.0/16")}
		}),
		Entry("an address of its host that is the API server's Service", leave, alsoKnown("198.51.100.1")),
		Entry("a loopback address that its host is said to have", leave, alsoKnown("127.0.0.1")),
		Entry("a link-local address that its host is said to have", leave, alsoKnown("fe80::1")),
		Entry("an address that somebody else has too", leave, func(f *facts) {
			f.addresses.taken = map[netip.Addr]string{netip.MustParseAddr("192.0.2.7"): "BareMetalHost other"}
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
		Entry("no Node on record", wait, func(f *facts) { f.config.Status.NodeRef = bootstrapv1.NodeReference{} }),
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

	DescribeTable("counts what others than the host know of its addresses", func(ctx SpecContext, approved bool, why string, make func() *serving) {
		s := make()
		s.reconcile(ctx)
		if approved {
			Expect(s.verdict(ctx)).To(HaveExactElements(HaveField("Type", certificatesv1.CertificateApproved)))
			return
		}
		Expect(s.verdict(ctx)).To(BeEmpty())
		Expect(s.told.Events).To(Receive(And(HavePrefix("Warning "+bootstrapv1.EventServingCertificateNotApproved), ContainSubstring(own.String()), ContainSubstring(why))))
	},
		Entry("what inspection found", true, "", func() *serving { return newServing(unchanged, newHost(own.String())) }),
		Entry("what inspection found for two hosts", false, "BareMetalHost other has the address", func() *serving {
			other := newHost(own.String())
			other.Name = "other"
			return newServing(unchanged, newHost(own.String()), other)
		}),
		Entry("what inspection found for two hosts and a person stated for this one", true, "", func() *serving {
			bmh, other := newHost(own.String()), newHost(own.String())
			bmh.Annotations, other.Name = map[string]string{poolv1.HostAddressesAnnotation: own.String()}, "other"
			return newServing(unchanged, bmh, other)
		}),
		Entry("what a control plane Node has", false, "Node cp-1 has the address", func() *serving {
			s := newServing(unchanged, newHost(own.String()))
			Expect(s.workload.Create(context.Background(), otherNode("cp-1", own.String(), map[string]string{"node-role.kubernetes.io/control-plane": ""}))).To(Succeed())
			return s
		}),
		Entry("and not what root on another host has its Node say", true, "", func() *serving {
			s := newServing(unchanged, newHost(own.String()))
			Expect(s.workload.Create(context.Background(), otherNode("liar", own.String(), nil))).To(Succeed())
			return s
		}),
		Entry("not where a host enrolled from, without address ranges", false, "spec.addressRanges of Enrollment edge", func() *serving {
			return newServing(enrolled, enrollment())
		}),
		Entry("not where a host enrolled from, outside the address ranges", false, "spec.addressRanges of Enrollment edge", func() *serving {
			return newServing(enrolled, enrollment("198.51.100.0/24"))
		}),
		Entry("where a host enrolled from, within the address ranges", true, "", func() *serving { return newServing(enrolled, enrollment("192.0.2.0/24")) }),
		Entry("where a host enrolled from, by the address ranges of an Enrollment that is gone", true, "", func() *serving {
			return newServing(func(c *bootstrapv1.PoolbootConfig) {
				enrolled(c)
				c.Spec.Host.Enrollment.AddressRanges = []string{"2001:db8::/32", "192.0.2.0/24"}
			})
		}),
		Entry("what a person stated of a host that enrolled", true, "", func() *serving {
			return newServing(func(c *bootstrapv1.PoolbootConfig) {
				enrolled(c)
				c.Annotations[poolv1.HostAddressesAnnotation] = own.String()
			}, enrollment())
		}),
		Entry("not where a host enrolled from when another Node has the address", false, "Node other has the address", func() *serving {
			s := newServing(enrolled, enrollment("192.0.2.0/24"))
			Expect(s.workload.Create(context.Background(), otherNode("other", own.String(), nil))).To(Succeed())
			return s
		}),
		Entry("not where a host enrolled from when another one enrolled from there too", false, "PoolbootConfig other has the address", func() *serving {
			other := newConfig()
			enrolled(other)
			other.Name = "other"
			return newServing(enrolled, enrollment("192.0.2.0/24"), other)
		}),
		Entry("not where a host enrolled from when a BareMetalHost has the address", false, "BareMetalHost other has the address", func() *serving {
			other := newHost(own.String())
			other.Name = "other"
			return newServing(enrolled, enrollment("192.0.2.0/24"), other)
		}),
	)

	It("stays open, told once, while its host is not known to have the address, and is approved when it is", func(ctx SpecContext) {
		bmh := newHost("192.0.2.1")
		s := newServing(unchanged, bmh)
		s.reconcile(ctx)
		Expect(s.verdict(ctx)).To(BeEmpty())
		Expect(s.told.Events).To(Receive(And(HavePrefix("Warning "+bootstrapv1.EventServingCertificateNotApproved), ContainSubstring(own.String()), ContainSubstring(poolv1.HostAddressesAnnotation))))
		s.reconcile(ctx)
		Expect(s.told.Events).NotTo(Receive())
		Expect(s.management.Get(ctx, configKey, bmh)).To(Succeed())
		bmh.Annotations = map[string]string{poolv1.HostAddressesAnnotation: own.String()}
		Expect(s.management.Update(ctx, bmh)).To(Succeed())
		s.reconcile(ctx)
		Expect(s.verdict(ctx)).To(HaveExactElements(And(HaveField("Type", certificatesv1.CertificateApproved), HaveField("Reason", ServingReason))))
	})
})

// alsoKnown has the host known to have, and ask for, one address more.
func alsoKnown(address string) func(*facts) {
	return func(f *facts) {
		f.addresses.known = append(f.addresses.known, netip.MustParseAddr(address))
		f.request = newServingRequest(func(r *x509.CertificateRequest) { r.IPAddresses = append(r.IPAddresses, net.ParseIP(address)) })
	}
}

func unchanged(*bootstrapv1.PoolbootConfig) {}
