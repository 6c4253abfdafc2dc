package host_test

import (
	"net/netip"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
)

var _ = Describe("The addresses of a host", func() {
	It("are those of its network cards and its annotation, in canonical form", func(ctx SpecContext) {
		scheme := runtime.NewScheme()
		Expect(bmov1alpha1.AddToScheme(scheme)).To(Succeed())
		bmh := &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Name: "h",
			Annotations: map[string]string{poolv1.HostAddressesAnnotation: " 192.0.2.7, not-an-address ,2001:db8::7"}}}
		bmh.Status.HardwareDetails = &bmov1alpha1.HardwareDetails{NIC: []bmov1alpha1.NIC{
			{IP: "192.0.2.1"}, {IP: "::ffff:192.0.2.2"}, {IP: "fe80::1%eth0"}, {IP: ""}, {IP: "127.0.0.1"}, {IP: "0.0.0.0"}, {IP: "192.0.2.3/24"}}}
		Expect(host.Addresses(ctx, fake.NewClientBuilder().WithScheme(scheme).Build(), bmh)).To(ConsistOf(
			netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("2001:db8::7"), netip.MustParseAddr("192.0.2.1"),
			netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("fe80::1"), netip.MustParseAddr("192.0.2.3")))
	})
})
