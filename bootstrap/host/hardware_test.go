package host_test

import (
	"context"
	"errors"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
)

var _ = Describe("The hardware of a host", func() {
	named := func(vendor string) *bmov1alpha1.HardwareDetails {
		return &bmov1alpha1.HardwareDetails{SystemVendor: bmov1alpha1.HardwareSystemVendor{Manufacturer: vendor}}
	}
	bmh := func(status *bmov1alpha1.HardwareDetails) *bmov1alpha1.BareMetalHost {
		return &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "rack1-u12"},
			Status: bmov1alpha1.BareMetalHostStatus{HardwareDetails: status}}
	}
	data := func(name string, details *bmov1alpha1.HardwareDetails) *bmov1alpha1.HardwareData {
		return &bmov1alpha1.HardwareData{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: bmov1alpha1.HardwareDataSpec{HardwareDetails: details}}
	}
	reader := func(failure error, objects ...client.Object) client.Client {
		scheme := runtime.NewScheme()
		Expect(bmov1alpha1.AddToScheme(scheme)).To(Succeed())
		return interceptor.NewClient(fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build(), interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
				if failure != nil {
					return failure
				}
				return c.Get(ctx, key, obj, opts...)
			},
		})
	}

	DescribeTable("is found",
		func(ctx SpecContext, of *bmov1alpha1.BareMetalHost, c client.Client, hardware *bmov1alpha1.HardwareDetails, where string) {
			found, from, err := host.Hardware(ctx, c, of)
			Expect(err).NotTo(HaveOccurred())
			Expect(found).To(Equal(hardware))
			Expect(from).To(Equal(where))
		},
		Entry("in HardwareData first", bmh(named("old")), reader(nil, data("rack1-u12", named("new"))), named("new"), host.HardwareFromData),
		Entry("in the status without HardwareData", bmh(named("old")), reader(nil, data("another", named("new"))), named("old"), host.HardwareFromStatus),
		Entry("in the status with an empty HardwareData", bmh(named("old")), reader(nil, data("rack1-u12", nil)), named("old"), host.HardwareFromStatus),
		Entry("in the status if the kind HardwareData does not exist", bmh(named("old")),
			reader(&meta.NoKindMatchError{GroupKind: schema.GroupKind{Kind: "HardwareData"}}), named("old"), host.HardwareFromStatus),
		Entry("nowhere", bmh(nil), reader(nil), nil, ""),
	)

	It("is an error when HardwareData cannot be read, because the status can be outdated", func(ctx SpecContext) {
		_, _, err := host.Hardware(ctx, reader(errors.New("connection refused")), bmh(named("old")))
		Expect(err).To(MatchError("HardwareData metal/rack1-u12: connection refused"))
	})
})
