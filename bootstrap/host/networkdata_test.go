package host_test

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/networkdata"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/outlook"
)

const staticAddress = "links: [{id: nic1, type: phy, ethernet_mac_address: '02:00:00:00:00:01'}]\n" +
	"networks: [{type: ipv4, link: nic1, ip_address: 192.0.2.10/24}]"

var _ = Describe("The network data of a host", func() {
	var bmh *bmov1alpha1.BareMetalHost
	var objects []client.Object
	BeforeEach(func() {
		bmh = &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "rack1-u12"}}
		bmh.Spec.NetworkData = &corev1.SecretReference{Name: "network"}
		bmh.Status.HardwareDetails = &bmov1alpha1.HardwareDetails{NIC: []bmov1alpha1.NIC{{Name: "eno1", MAC: "02:00:00:00:00:01", IP: "192.0.2.77"}}}
		objects = nil
	})
	reader := func() client.Reader {
		scheme := runtime.NewScheme()
		Expect(bmov1alpha1.AddToScheme(scheme)).To(Succeed())
		Expect(corev1.AddToScheme(scheme)).To(Succeed())
		Expect(apiextensionsv1.AddToScheme(scheme)).To(Succeed())
		return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
	}
	secret := func(namespace, name, key, document string) {
		objects = append(objects, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string][]byte{key: []byte(document)}})
	}
	newData := func(c client.Reader) *host.NetworkData { return host.NewNetworkData(c, c, clock.RealClock{}) }
	files := func(ctx context.Context, renderer poolv1.NetworkRenderer) ([]networkdata.File, error) {
		c := reader()
		return newData(c).Files(ctx, c, bmh, "edge", renderer)
	}
	const networkd = poolv1.NetworkRendererSystemdNetworkd

	It("becomes files of the program of the pool", func(ctx SpecContext) {
		secret(namespace, "network", "networkData", staticAddress)
		found, err := files(ctx, networkd)
		Expect(err).NotTo(HaveOccurred())
		Expect(found).To(ConsistOf(HaveField("Path", "/etc/systemd/network/70-network-data-nic1.network")))
		manager, err := files(ctx, poolv1.NetworkRendererNetworkManager)
		Expect(err).NotTo(HaveOccurred())
		Expect(manager).To(ConsistOf(HaveField("Path", "/etc/NetworkManager/system-connections/70-network-data-nic1.nmconnection")))
	})

	It("is ignored with None, and not read", func(ctx SpecContext) {
		Expect(files(ctx, poolv1.NetworkRendererNone)).To(BeEmpty())
	})

	It("can be that of the inspection, as in Metal3, unless that has only another format", func(ctx SpecContext) {
		bmh.Spec.NetworkData, bmh.Spec.PreprovisioningNetworkDataName = nil, "preprovisioning"
		secret(namespace, "preprovisioning", "value", staticAddress)
		Expect(files(ctx, poolv1.NetworkRendererSystemdNetworkd)).To(HaveLen(1))
		Expect(files(ctx, "")).To(BeEmpty())
		objects = nil
		secret(namespace, "preprovisioning", "nmstate", "interfaces: []")
		Expect(files(ctx, poolv1.NetworkRendererSystemdNetworkd)).To(BeEmpty())
	})

	DescribeTable("that can't be used has a message with object, field and remedy, when",
		func(ctx SpecContext, renderer poolv1.NetworkRenderer, reason, message string, prepare func()) {
			prepare()
			_, err := files(ctx, renderer)
			Expect(err).To(MatchError(message))
			Expect(outlook.ReasonOf(err)).To(Equal(reason))
		},
		Entry("no program applies it", poolv1.NetworkRenderer(""), bootstrapv1.NetworkRendererNotSetReason,
			"spec.networkData of BareMetalHost metal/rack1-u12 has network data for the host, and MachineConfigPool edge does not say what applies it: "+
				"set its spec.hosts.networkRenderer to SystemdNetworkd, NetworkManager or, for a host that uses DHCP, None", func() {}),
		Entry("its Secret does not exist", poolv1.NetworkRendererSystemdNetworkd, bootstrapv1.NetworkDataInvalidReason,
			"spec.networkData of BareMetalHost metal/rack1-u12 is Secret network, which does not exist: create the Secret, or remove the field", func() {}),
		Entry("its Secret has no network data", poolv1.NetworkRendererSystemdNetworkd, bootstrapv1.NetworkDataInvalidReason,
			"spec.networkData of BareMetalHost metal/rack1-u12 is Secret network, which has no key networkData: add it, or remove the field",
			func() { secret(namespace, "network", "password", "hunter2") }),
		Entry("it is invalid", poolv1.NetworkRendererSystemdNetworkd, bootstrapv1.NetworkDataInvalidReason,
			`spec.networkData of BareMetalHost metal/rack1-u12 is Secret network: links[0].type: "wifi" is not a type of link: use phy, bond or vlan`,
			func() { secret(namespace, "network", "networkData", "links: [{id: a, type: wifi}]") }),
		Entry("the host lacks an interface", poolv1.NetworkRendererNetworkManager, bootstrapv1.NetworkDataInvalidReason,
			"spec.networkData of BareMetalHost metal/rack1-u12 is Secret network: links[0].ethernet_mac_address: the host has no interface with the MAC address "+
				"02:00:00:00:00:02: correct it, or inspect the host again",
			func() { secret(namespace, "network", "networkData", strings.ReplaceAll(staticAddress, ":01'", ":02'")) }),
		Entry("it names what can't be a Secret, such as a long text that controls a terminal", poolv1.NetworkRendererSystemdNetworkd, bootstrapv1.NetworkDataInvalidReason,
			"spec.networkData of BareMetalHost metal/rack1-u12 is not the name of a Secret: correct it, or remove the field",
			func() { bmh.Spec.NetworkData.Name = "a\n\x1b[31m" + strings.Repeat("b", 100_000) }),
		Entry("it is in another namespace, which is not read", poolv1.NetworkRendererSystemdNetworkd, bootstrapv1.NetworkDataInvalidReason,
			"spec.networkData of BareMetalHost metal/rack1-u12 names a Secret in another namespace: use one in the namespace of the host",
			func() {
				bmh.Spec.NetworkData.Namespace = "kube-system"
				secret("kube-system", "network", "networkData", staticAddress)
			}),
	)

	It("has addresses of the host, for tokens and serving certificates, unless the host uses DHCP", func(ctx SpecContext) {
		addresses := func(c client.Reader, renderer poolv1.NetworkRenderer) ([]netip.Addr, error) {
			return newData(c).Addresses(ctx, bmh, renderer)
		}
		Expect(addresses(reader(), networkd)).To(BeEmpty(), "there is no Secret")
		secret(namespace, "network", "networkData", staticAddress)
		c := reader()
		Expect(addresses(c, networkd)).To(ConsistOf(netip.MustParseAddr("192.0.2.10")))
		Expect(addresses(c, "")).To(HaveLen(1), "the image can apply it")
		Expect(addresses(c, poolv1.NetworkRendererNone)).To(BeEmpty())
		bmh.Spec.NetworkData.Name = "../network"
		refusing := interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if strings.Contains(key.Name, "/") { // as client-go does
				return errors.New("invalid resource name")
			}
			return c.Get(ctx, key, o, opts...)
		}})
		Expect(addresses(refusing, networkd)).To(BeEmpty())
	})

	Describe("is read", func() {
		var c client.WithWatch
		var metadata client.Reader
		var reads int
		var data *host.NetworkData
		now := clocktesting.NewFakePassiveClock(time.Now())
		BeforeEach(func() {
			secret(namespace, "network", "networkData", staticAddress)
			c, reads = reader().(client.WithWatch), 0
			metadata = c
		})
		look := func(ctx context.Context) ([]networkdata.File, error) {
			if data == nil {
				data = host.NewNetworkData(interceptor.NewClient(c, interceptor.Funcs{
					Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
						reads++
						return c.Get(ctx, key, o, opts...)
					},
				}), metadata, now)
				DeferCleanup(func() { data = nil })
			}
			return data.Files(ctx, c, bmh, "edge", networkd)
		}
		write := func(ctx context.Context, document string) {
			s := &corev1.Secret{}
			Expect(c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "network"}, s)).To(Succeed())
			s.Data["networkData"] = []byte(document)
			Expect(c.Update(ctx, s)).To(Succeed())
		}

		It("once for each version of its Secret, valid or not, for whatever it is needed", func(ctx SpecContext) {
			for i, document := range []string{staticAddress, "hello", strings.ReplaceAll(staticAddress, ".10/", ".11/")} {
				write(ctx, document)
				for range 10 {
					files, err := look(ctx)
					Expect(err == nil).To(Equal(document != "hello"))
					Expect(files == nil).To(Equal(document == "hello"))
					Expect(data.Addresses(ctx, bmh, networkd)).To(HaveLen(len(files)))
				}
				Expect(reads).To(Equal(i + 1))
			}
		})

		DescribeTable("once a minute while no watch reports its Secret,", func(ctx SpecContext, isThere bool, prepare func()) {
			prepare()
			for range 10 {
				_, err := look(ctx)
				Expect(err == nil).To(Equal(isThere))
			}
			Expect(reads).To(Equal(1))
			now.SetTime(now.Now().Add(time.Minute + time.Second))
			Expect(look(ctx)).Error().To(WithTransform(func(err error) bool { return err == nil }, Equal(isThere)))
			Expect(reads).To(Equal(2))
		},
			Entry("because Metal3 has not read it", true, func() { metadata = fake.NewClientBuilder().Build() }),
			Entry("because it does not exist", false, func() {
				Expect(c.Delete(context.Background(), objects[0].DeepCopyObject().(client.Object))).To(Succeed())
			}),
			Entry("because the cache has another version of it", true, func() {
				metadata = fake.NewClientBuilder().WithObjects(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "network", UID: "earlier"}}).Build()
			}),
		)
	})

	Describe("of a Machine", func() {
		metal3 := func(kind, name string, content map[string]any) {
			o := &unstructured.Unstructured{Object: content}
			o.SetAPIVersion(infraAPIVersion)
			o.SetKind(kind)
			o.SetNamespace(namespace)
			o.SetName(name)
			objects = append(objects, o)
		}
		machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "edge-x7k2p"}, Spec: clusterv1.MachineSpec{
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "Metal3Machine", Name: "edge-m3m"}}}
		check := func(ctx context.Context, renderer poolv1.NetworkRenderer) error {
			c := reader()
			return host.CheckNetworkRenderer(ctx, c, c, machine, "edge", renderer)
		}
		withTemplate := map[string]any{"spec": map[string]any{"dataTemplate": map[string]any{"name": "rack"}}}
		BeforeEach(func() {
			objects = append(objects, &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: metal3MachineCRD, Labels: map[string]string{"cluster.x-k8s.io/v1beta2": "v1beta2"}}})
		})

		It("needs a program that applies it", func(ctx SpecContext) {
			metal3("Metal3Machine", "edge-m3m", withTemplate)
			metal3("Metal3DataTemplate", "rack", map[string]any{"spec": map[string]any{"networkData": map[string]any{}}})
			Expect(check(ctx, "")).To(MatchError(HavePrefix("spec.networkData of Metal3DataTemplate metal/rack has network data for the host, and MachineConfigPool edge does not")))
			Expect(check(ctx, poolv1.NetworkRendererNone)).To(Succeed())
		})

		It("can be in a Secret that the Metal3Machine names", func(ctx SpecContext) {
			metal3("Metal3Machine", "edge-m3m", map[string]any{"spec": map[string]any{"networkData": map[string]any{"name": "own"}}})
			Expect(check(ctx, "")).To(MatchError(HavePrefix("spec.networkData of Metal3Machine metal/edge-m3m has network data")))
		})

		It("is none with a template that has only metadata, and without one", func(ctx SpecContext) {
			Expect(check(ctx, "")).To(Succeed(), "there is no Metal3Machine yet")
			metal3("Metal3Machine", "edge-m3m", withTemplate)
			Expect(check(ctx, "")).To(Succeed(), "there is no template yet")
			metal3("Metal3DataTemplate", "rack", map[string]any{"spec": map[string]any{"metaData": map[string]any{}}})
			Expect(check(ctx, "")).To(Succeed())
		})

		It("is not used if Metal3 rendered it for another Machine, and left it on a host that it released", func(ctx SpecContext) {
			secret(namespace, "edge-m3m-networkdata", "networkData", staticAddress)
			objects[len(objects)-1].SetOwnerReferences([]metav1.OwnerReference{{APIVersion: infraAPIVersion, Kind: "Metal3Data", Name: "rack-0", UID: "1", Controller: new(true)}})
			bmh.Spec.NetworkData.Name = "edge-m3m-networkdata"
			bmh.Spec.ConsumerRef = &corev1.ObjectReference{APIVersion: infraAPIVersion, Kind: "Metal3Machine", Namespace: namespace, Name: "edge-m3m"}
			Expect(files(ctx, poolv1.NetworkRendererSystemdNetworkd)).To(HaveLen(1))
			const message = "spec.networkData of BareMetalHost metal/rack1-u12 is Secret edge-m3m-networkdata, which Metal3 rendered for another Machine: remove the field"
			bmh.Spec.ConsumerRef.Name = "another"
			Expect(files(ctx, poolv1.NetworkRendererSystemdNetworkd)).Error().To(MatchError(message))
			Expect(newData(reader()).Addresses(ctx, bmh, networkd)).To(BeEmpty())
			bmh.Spec.ConsumerRef = nil
			Expect(files(ctx, poolv1.NetworkRendererSystemdNetworkd)).Error().To(MatchError(message))
		})

		It("is waited for, and the message has the error of CAPM3, such as that of an IPPool without a free address", func(ctx SpecContext) {
			h := &host.Host{Object: bmh, Metal3Machine: client.ObjectKey{Namespace: namespace, Name: "edge-m3m"}}
			trouble := func() (string, error) {
				c := reader()
				return host.DataTrouble(ctx, c, c, h)
			}
			const waits = "Metal3Machine metal/edge-m3m waits for the data of Metal3DataTemplate rack"
			metal3("Metal3Machine", "edge-m3m", withTemplate)
			Expect(trouble()).To(BeEmpty())
			metal3("Metal3DataClaim", "edge-m3m", map[string]any{"status": map[string]any{"renderedData": map[string]any{"name": "rack-0"}}})
			data := map[string]any{"status": map[string]any{"errorMessage": "IP Allocation for rack failed : Exhausted IP Pools"}}
			metal3("Metal3Data", "rack-0", data)
			Expect(trouble()).To(Equal(waits + ": Metal3Data rack-0: IP Allocation for rack failed : Exhausted IP Pools: if it stays, correct the cause and delete the Machine"))
			data["status"] = map[string]any{}
			Expect(trouble()).To(Equal(waits + ": see the IPClaims of Metal3Data rack-0"))
			data["status"] = map[string]any{"ready": true}
			Expect(trouble()).To(BeEmpty())
		})
	})
})
