package certificate

import (
	"context"
	"crypto/x509"
	"net"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

var _ = Describe("The serving certificate of a host whose addresses drift", func() {
	const (
		own6  = "2001:db8:0:1::7"
		vip   = "192.0.2.100"
		other = "2001:db8:0:1::8"
	)
	// request makes the kubelet request a certificate for its IPv4 address and another one. Root on the host has also
	// set that one in the status of the Node, as the kubelet does.
	request := func(ctx context.Context, s *servingFixture, address string) {
		GinkgoHelper()
		Expect(s.workload.Delete(ctx, newServingRequest())).To(Succeed())
		Expect(s.workload.Create(ctx, newServingRequest(func(r *x509.CertificateRequest) { r.IPAddresses = append(r.IPAddresses, net.ParseIP(address)) }))).To(Succeed())
		node := &corev1.Node{}
		Expect(s.workload.Get(ctx, client.ObjectKey{Name: name}, node)).To(Succeed())
		node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: hostIP.String()}, {Type: corev1.NodeInternalIP, Address: address}}
		Expect(s.workload.Status().Update(ctx, node)).To(Succeed())
	}

	It("has both addresses of a dual-stack Node, in whatever form the inspection has them", func(ctx SpecContext) {
		s := newServing(unchanged, newHost(hostIP.String(), "2001:0DB8:0000:0001::7/64"))
		request(ctx, s, own6)
		s.reconcile(ctx)
		Expect(s.conditions(ctx)).NotTo(BeEmpty())
	})

	DescribeTable("does not have what is not the host's for good, and the event says what to do instead of giving it to the host,",
		func(ctx SpecContext, address string) {
			neighbor := newHost("192.0.2.8", other)
			neighbor.Name = "neighbor"
			s := newServing(unchanged, newHost(hostIP.String(), own6), neighbor)
			Expect(s.workload.Create(ctx, otherNode("neighbor", vip, nil))).To(Succeed())
			request(ctx, s, address)
			s.reconcile(ctx)
			Expect(s.conditions(ctx)).To(BeEmpty())
			Expect(s.recorder.Events).To(Receive(And(HavePrefix("Warning "+bootstrapv1.EventServingCertificateNotApproved),
				ContainSubstring(address), ContainSubstring("if only this host ever has it"), ContainSubstring("--node-ip"))))

			By("setting --node-ip, with which the kubelet requests a certificate for its own address only")
			request(ctx, s, own6)
			s.reconcile(ctx)
			Expect(s.conditions(ctx)).NotTo(BeEmpty())
		},
		Entry("a temporary address in the network of the host", "2001:db8:0:1:d5a3:61c2:9f0e:77b1"),
		Entry("an address of its neighbor in that network, which root claims", other),
		Entry("a virtual address that another Node had before", vip),
	)

	It("never has the virtual address of the API server, even if a user sets it for the host", func(ctx SpecContext) {
		bmh := newHost(hostIP.String())
		bmh.Annotations = map[string]string{poolv1.HostAddressesAnnotation: vip}
		s := newServing(unchanged, bmh)
		cluster := newCluster()
		Expect(s.management.Get(ctx, client.ObjectKeyFromObject(cluster), cluster)).To(Succeed())
		cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{Host: "::ffff:" + vip, Port: 6443}
		Expect(s.management.Update(ctx, cluster)).To(Succeed())
		request(ctx, s, vip)
		s.reconcile(ctx)
		Expect(s.conditions(ctx)).To(BeEmpty())
		Expect(s.recorder.Events).To(Receive(ContainSubstring("control plane endpoint")))
	})

	It("does not have a virtual address that a user set for another host, although both had it", func(ctx SpecContext) {
		holder := newHost("192.0.2.8")
		holder.Name, holder.Annotations = "holder", map[string]string{poolv1.HostAddressesAnnotation: vip}
		s := newServing(unchanged, newHost(hostIP.String()), holder)
		request(ctx, s, vip)
		s.reconcile(ctx)
		Expect(s.conditions(ctx)).To(BeEmpty())
	})
})
