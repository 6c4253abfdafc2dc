package certificate

import (
	"context"
	"crypto/x509"
	"fmt"
	"net"
	"net/netip"
	"net/url"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/access"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// hostIP is the known address of the host.
var hostIP = net.IPv4(192, 0, 2, 7)

// newServingRequest returns the request of the kubelet for its serving certificate.
func newServingRequest(change ...func(*x509.CertificateRequest)) *certificatesv1.CertificateSigningRequest {
	GinkgoHelper()
	request := newRequest(append([]func(*x509.CertificateRequest){func(r *x509.CertificateRequest) {
		r.DNSNames, r.IPAddresses = []string{name}, []net.IP{hostIP}
	}}, change...)...)
	request.Name, request.UID = "csr-serving", "uid-of-the-request"
	request.Spec.SignerName, request.Spec.Username = certificatesv1.KubeletServingSignerName, workload.NodeUserPrefix+name
	request.Spec.Groups = []string{nodesGroup, "system:authenticated"}
	request.Spec.Usages = []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth}
	return request
}

var _ = Describe("A request of a kubelet for its serving certificate", func() {
	request := func(change func(*x509.CertificateRequest)) func(*facts) {
		return func(f *facts) { f.request = newServingRequest(change) }
	}
	usages := func(usages ...certificatesv1.KeyUsage) func(*facts) {
		return func(f *facts) { f.request.Spec.Usages = usages }
	}
	DescribeTable("is approved only for the name of its Node and known addresses of its host",
		func(want verdict, change func(*facts)) {
			f := facts{request: newServingRequest(), config: newConfig(), node: newNode(), cluster: access.ClusterOf(newCluster()),
				addresses: addresses{known: []netip.Addr{netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("2001:db8::7")}, remedy: "set the address"}}
			f.cluster.ServiceAddresses = []netip.Addr{netip.MustParseAddr("198.51.100.1")}
			change(&f)
			got, why := decideServing(f)
			Expect(got).To(Equal(want), why)
			Expect(why).NotTo(BeEmpty())
		},
		Entry("the name of its Node and an address of its host", approve, func(*facts) {}),
		Entry("only the name of its Node", approve, request(func(r *x509.CertificateRequest) { r.IPAddresses = nil })),
		Entry("two addresses of its host", approve, request(func(r *x509.CertificateRequest) {
			r.IPAddresses = append(r.IPAddresses, net.ParseIP("2001:db8::7"))
		})),
		Entry("an address of another host", abstain, request(func(r *x509.CertificateRequest) { r.IPAddresses = append(r.IPAddresses, net.IPv4(192, 0, 2, 8)) })),
		Entry("an address that is only in the status of the Node", abstain, func(f *facts) {
			f.addresses.known = nil
			f.node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: hostIP.String()}}
		}),
		Entry("a Node with the API server's name", abstain, func(f *facts) {
			renameNode("kubernetes.default.svc")(f)
			f.request = newServingRequest(forNode("kubernetes.default.svc"), func(r *x509.CertificateRequest) { r.DNSNames = []string{"kubernetes.default.svc"} })
		}),
		Entry("a Node with the name of the control plane endpoint", abstain, func(f *facts) {
			renameNode("api.example.com")(f)
			f.request = newServingRequest(forNode("api.example.com"), func(r *x509.CertificateRequest) { r.DNSNames = []string{"api.example.com"} })
		}),
		Entry("an address of its host that is the control plane endpoint", abstain, func(f *facts) { f.cluster.Endpoints = []string{hostIP.String()} }),
		Entry("an address of its host that is in a Service range", abstain, func(f *facts) {
			f.cluster.ServiceRanges = []netip.Prefix{netip.MustParsePrefix("192.0.0.0/16")}
		}),
		Entry("an address of its host that is the API server's Service", abstain, withKnownAddress("198.51.100.1")),
		Entry("a loopback address, even if it is a known address", abstain, withKnownAddress("127.0.0.1")),
		Entry("a link-local address, even if it is a known address", abstain, withKnownAddress("fe80::1")),
		Entry("an address that another host also has", abstain, func(f *facts) {
			f.addresses.usedBy = map[netip.Addr]string{netip.MustParseAddr("192.0.2.7"): "BareMetalHost other"}
		}),
		Entry("the API server's name", abstain, request(func(r *x509.CertificateRequest) { r.DNSNames = append(r.DNSNames, "kubernetes.default.svc") })),
		Entry("a name that is only in the status of the Node", abstain, func(f *facts) {
			f.request = newServingRequest(func(r *x509.CertificateRequest) { r.DNSNames = []string{"other"} })
			f.node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "other"}}
		}),
		Entry("no name and no address", abstain, request(func(r *x509.CertificateRequest) { r.DNSNames, r.IPAddresses = nil, nil })),
		Entry("an e-mail address", abstain, request(func(r *x509.CertificateRequest) { r.EmailAddresses = []string{"a@example.com"} })),
		Entry("a URI", abstain, request(func(r *x509.CertificateRequest) { r.URIs = []*url.URL{{Scheme: "spiffe", Host: "x"}} })),
		Entry("another subject", abstain, request(func(r *x509.CertificateRequest) { r.Subject.CommonName = workload.NodeUserPrefix + "other" })),
		Entry("another group", abstain, request(func(r *x509.CertificateRequest) { r.Subject.Organization = []string{"system:masters"} })),
		Entry("the usage client auth", abstain, usages(certificatesv1.UsageServerAuth, certificatesv1.UsageClientAuth)),
		Entry("without the usage server auth", abstain, usages(certificatesv1.UsageDigitalSignature)),
		Entry("a malformed request", abstain, func(f *facts) { f.request.Spec.Request = []byte("hello") }),
		Entry("a Node that does not exist", wait, func(f *facts) { f.node = nil }),
		Entry("a Node with the name that Poolboot did not pre-register", wait, func(f *facts) { f.node.Annotations = nil }),
		Entry("a Node that was created again, with another UID than the recorded one", wait, func(f *facts) { f.node.UID = "another" }),
		Entry("no recorded Node", wait, func(f *facts) { f.config.Status.NodeRef = bootstrapv1.NodeReference{} }),
	)

	DescribeTable("is decided only if it is from the kubelet of the Node", func(want bool, change func(*certificatesv1.CertificateSigningRequest)) {
		request := newServingRequest()
		change(request)
		Expect(isServingRequest(request, name)).To(Equal(want))
	},
		Entry("from its kubelet", true, func(*certificatesv1.CertificateSigningRequest) {}),
		Entry("from the kubelet of another Node", false, func(r *certificatesv1.CertificateSigningRequest) { r.Spec.Username = workload.NodeUserPrefix + "other" }),
		Entry("from a user that is not a kubelet", false, func(r *certificatesv1.CertificateSigningRequest) { r.Spec.Groups = []string{"system:authenticated"} }),
		Entry("for another signer", false, func(r *certificatesv1.CertificateSigningRequest) {
			r.Spec.SignerName = certificatesv1.KubeAPIServerClientKubeletSignerName
		}),
		Entry("already signed", false, func(r *certificatesv1.CertificateSigningRequest) { r.Status.Certificate = []byte("x") }),
	)

	DescribeTable("uses only addresses from sources other than the host", func(ctx SpecContext, approved bool, why string, newServing func() *servingFixture) {
		s := newServing()
		s.reconcile(ctx)
		if approved {
			Expect(s.conditions(ctx)).To(HaveExactElements(HaveField("Type", certificatesv1.CertificateApproved)))
			return
		}
		Expect(s.conditions(ctx)).To(BeEmpty())
		Expect(s.recorder.Events).To(Receive(And(HavePrefix("Warning "+bootstrapv1.EventServingCertificateNotApproved), ContainSubstring(hostIP.String()), ContainSubstring(why))))
	},
		Entry("the address that the inspection found", true, "", func() *servingFixture { return newServing(unchanged, newHost(hostIP.String())) }),
		Entry("an address that the inspection found for two hosts", false, "BareMetalHost other also has the address", func() *servingFixture {
			other := newHost(hostIP.String())
			other.Name = "other"
			return newServing(unchanged, newHost(hostIP.String()), other)
		}),
		Entry("an address that the inspection found for two hosts, and an administrator set for this host", true, "", func() *servingFixture {
			bmh, other := newHost(hostIP.String()), newHost(hostIP.String())
			bmh.Annotations, other.Name = map[string]string{poolv1.HostAddressesAnnotation: hostIP.String()}, "other"
			return newServing(unchanged, bmh, other)
		}),
		Entry("an address in the network data of the host", true, "", func() *servingFixture {
			return newServing(unchanged, withNetworkData(newHost("192.0.2.99"), hostIP.String())...)
		}),
		Entry("an address in the network data of two hosts", false, "BareMetalHost other also has the address", func() *servingFixture {
			other := newHost("192.0.2.98")
			other.Name = "other"
			return newServing(unchanged, append(withNetworkData(newHost("192.0.2.99"), hostIP.String()), withNetworkData(other, hostIP.String())...)...)
		}),
		Entry("an address that the inspection found, and that is in the network data of another host", false, "BareMetalHost other also has the address", func() *servingFixture {
			other := newHost("192.0.2.98")
			other.Name = "other"
			return newServing(unchanged, append(withNetworkData(other, hostIP.String()), newHost(hostIP.String()))...)
		}),
		Entry("an address in the network data of a host that uses DHCP", false, "add it to the annotation", func() *servingFixture {
			return newServing(unchanged, append(withNetworkData(newHost("192.0.2.99"), hostIP.String()), newPoolOfDHCP())...)
		}),
		Entry("an address that the inspection found, and that is in the network data of another host that uses DHCP", true, "", func() *servingFixture {
			other := newHost("192.0.2.98")
			other.Name, other.Annotations = "other", map[string]string{poolv1.HostPoolAnnotation: "infra"}
			config := newConfig()
			config.Name, config.UID = other.Name, "other"
			return newServing(unchanged, append(withNetworkData(other, hostIP.String()), newHost(hostIP.String()), config, newPoolOfDHCP())...)
		}),
		Entry("an address of a control plane Node", false, "Node cp-1 also has the address", func() *servingFixture {
			s := newServing(unchanged, newHost(hostIP.String()))
			Expect(s.workload.Create(context.Background(), otherNode("cp-1", hostIP.String(), map[string]string{"node-role.kubernetes.io/control-plane": ""}))).To(Succeed())
			return s
		}),
		Entry("an address that another Node also has in its status", true, "", func() *servingFixture {
			s := newServing(unchanged, newHost(hostIP.String()))
			Expect(s.workload.Create(context.Background(), otherNode("other", hostIP.String(), nil))).To(Succeed())
			return s
		}),
		Entry("the address of the enrollment, without address ranges", false, "spec.addressRanges of Enrollment edge", func() *servingFixture {
			return newServing(enrolled, enrollment())
		}),
		Entry("the address of the enrollment, outside the address ranges", false, "spec.addressRanges of Enrollment edge", func() *servingFixture {
			return newServing(enrolled, enrollment("198.51.100.0/24"))
		}),
		Entry("the address of the enrollment, in the address ranges", true, "", func() *servingFixture { return newServing(enrolled, enrollment("192.0.2.0/24")) }),
		Entry("the address of the enrollment, in the recorded address ranges of a deleted Enrollment", true, "", func() *servingFixture {
			return newServing(func(c *bootstrapv1.PoolbootConfig) {
				enrolled(c)
				c.Spec.Host.Enrollment.AddressRanges = []string{"2001:db8::/32", "192.0.2.0/24"}
			})
		}),
		Entry("an address that an administrator set for an enrolled host", true, "", func() *servingFixture {
			return newServing(func(c *bootstrapv1.PoolbootConfig) {
				enrolled(c)
				c.Annotations[poolv1.HostAddressesAnnotation] = hostIP.String()
			}, enrollment())
		}),
		Entry("the address of the enrollment, if another Node has it", false, "Node other also has the address", func() *servingFixture {
			s := newServing(enrolled, enrollment("192.0.2.0/24"))
			Expect(s.workload.Create(context.Background(), otherNode("other", hostIP.String(), nil))).To(Succeed())
			return s
		}),
		Entry("the address of the enrollment, if another host enrolled from it", false, "PoolbootConfig other also has the address", func() *servingFixture {
			other := newConfig()
			enrolled(other)
			other.Name = "other"
			return newServing(enrolled, enrollment("192.0.2.0/24"), other)
		}),
		Entry("the address of the enrollment, if a BareMetalHost has it", false, "BareMetalHost other also has the address", func() *servingFixture {
			other := newHost(hostIP.String())
			other.Name = "other"
			return newServing(enrolled, enrollment("192.0.2.0/24"), other)
		}),
	)

	It("is reported once while its address is unknown, and is approved after the address is set", func(ctx SpecContext) {
		bmh := newHost("192.0.2.1")
		s := newServing(unchanged, bmh)
		s.reconcile(ctx)
		Expect(s.conditions(ctx)).To(BeEmpty())
		Expect(s.recorder.Events).To(Receive(And(HavePrefix("Warning "+bootstrapv1.EventServingCertificateNotApproved), ContainSubstring(hostIP.String()), ContainSubstring(poolv1.HostAddressesAnnotation))))
		s.reconcile(ctx)
		Expect(s.recorder.Events).NotTo(Receive())
		Expect(s.management.Get(ctx, configKey, bmh)).To(Succeed())
		bmh.Annotations = map[string]string{poolv1.HostAddressesAnnotation: hostIP.String()}
		Expect(s.management.Update(ctx, bmh)).To(Succeed())
		s.reconcile(ctx)
		Expect(s.conditions(ctx)).To(HaveExactElements(And(HaveField("Type", certificatesv1.CertificateApproved), HaveField("Reason", ServingApprovedReason))))
	})
})

// withKnownAddress adds an address to the known addresses and to the request.
func withKnownAddress(address string) func(*facts) {
	return func(f *facts) {
		f.addresses.known = append(f.addresses.known, netip.MustParseAddr(address))
		f.request = newServingRequest(func(r *x509.CertificateRequest) { r.IPAddresses = append(r.IPAddresses, net.ParseIP(address)) })
	}
}

func unchanged(*bootstrapv1.PoolbootConfig) {}

var _ = Describe("The network data of hosts", func() {
	It("is read once for all requests, and again after it changed", func(ctx SpecContext) {
		objects := withNetworkData(newHost(hostIP.String()), "192.0.2.97")
		for i := range 20 {
			other := newHost("192.0.2.98")
			other.Name = fmt.Sprintf("other-%d", i)
			objects = append(objects, withNetworkData(other, fmt.Sprintf("203.0.113.%d", i+1))...)
		}
		s, reads := newServing(unchanged, objects...), 0
		s.reconciler.NetworkData = host.NewNetworkData(interceptor.NewClient(s.management, interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				if _, isSecret := o.(*corev1.Secret); isSecret {
					reads++
				}
				return c.Get(ctx, key, o, opts...)
			},
		}), s.management, clock.RealClock{})
		check := func() map[netip.Addr]string {
			GinkgoHelper()
			config := &bootstrapv1.PoolbootConfig{}
			Expect(s.management.Get(ctx, configKey, config)).To(Succeed())
			a, err := s.reconciler.gatherAddresses(ctx, s.workload, config)
			Expect(err).NotTo(HaveOccurred())
			Expect(a.known).To(HaveLen(2))
			return a.usedBy
		}
		for range 3 {
			Expect(check()).To(BeEmpty())
		}
		Expect(reads).To(Equal(21))
		changed := withNetworkData(newHost(""), "192.0.2.97")[1]
		changed.SetName("other-7-network")
		Expect(s.management.Update(ctx, changed)).To(Succeed())
		Expect(check()).To(HaveLen(1))
		Expect(reads).To(Equal(22))
	})
})
