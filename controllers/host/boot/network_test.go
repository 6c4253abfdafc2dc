package boot

import (
	"context"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

var _ = Describe("A host with network data", func() {
	var s *setting
	BeforeEach(func() {
		s = newSetting()
		s.host.Spec.NetworkData = &corev1.SecretReference{Name: "network"}
		s.host.Status.HardwareDetails = &bmov1alpha1.HardwareDetails{NIC: []bmov1alpha1.NIC{{Name: "eno1", MAC: "02:00:00:00:00:01"}}}
	})
	newSecret := func(mac string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "network"}, Data: map[string][]byte{
			"networkData": []byte("links: [{id: nic1, type: phy, ethernet_mac_address: '" + mac + "'}]\nnetworks: [{type: ipv4, link: nic1, ip_address: 192.0.2.7/24}]")}}
	}
	paths := func(document []byte) (paths []string) {
		GinkgoHelper()
		config, err := ignition.Parse(document)
		Expect(err).NotTo(HaveOccurred())
		for _, f := range config.Storage.Files {
			paths = append(paths, f.Path)
		}
		return paths
	}
	// expectWaiting expects that the host waits, and that nothing was created for it.
	expectWaiting := func(ctx context.Context, w *world, reason, message string) {
		GinkgoHelper()
		Expect(w.sendRequest(ctx)).To(HaveField("RequeueAfter", BeNumerically(">", 0)), "not every Secret is watched")
		Expect(conditions.Get(w.config(ctx), bootstrapv1.BootPreparedCondition)).To(And(HaveField("Status", metav1.ConditionFalse),
			HaveField("Reason", reason), HaveField("Message", ContainSubstring(message))))
		Expect(w.nodes(ctx)).To(BeEmpty())
		Expect(w.overlays(ctx)).To(BeEmpty())
	}

	It("gets the files of the program that its pool inherits, in its overlay and in what it keeps", func(ctx SpecContext) {
		s.worker.Spec.Hosts.NetworkRenderer = poolv1.NetworkRendererSystemdNetworkd
		w := s.world(newSecret("02:00:00:00:00:01"))
		w.offered = newOffer()
		Expect(w.sendRequest(ctx)).To(BeZero())
		expectPrepared(ctx, w, machineName)
		const path = "/etc/systemd/network/70-network-data-nic1.network"
		Expect(paths(unpacked(w.overlays(ctx)[0]))).To(ContainElement(path))
		Expect(string(w.assignments(ctx)[0].Data[bootstrapv1.AssignmentKey])).To(ContainSubstring(path))
	})

	It("waits for its Secret, and for one that fits, and boots then", func(ctx SpecContext) {
		s.infra.Spec.Hosts.NetworkRenderer = poolv1.NetworkRendererNetworkManager
		w := s.world()
		expectWaiting(ctx, w, bootstrapv1.NetworkDataInvalidReason, "is Secret network, which does not exist: create the Secret, or remove the field")
		secret := newSecret("02:00:00:00:00:02")
		Expect(w.management.Create(ctx, secret)).To(Succeed())
		expectWaiting(ctx, w, bootstrapv1.NetworkDataInvalidReason, "the host has no interface with the MAC address 02:00:00:00:00:02")
		change(ctx, w.management, secret, func(of *corev1.Secret) { of.Data = newSecret("02:00:00:00:00:01").Data })
		Expect(w.reconcile(ctx)).To(BeZero())
		expectPrepared(ctx, w, machineName)
	})

	It("is announced with what is wrong with it, because its image can have no network with it, and then it never sends a request", func(ctx SpecContext) {
		s.infra.Spec.Hosts.NetworkRenderer = poolv1.NetworkRendererSystemdNetworkd
		s.config.Status.PoolRole = "infra"
		s.host.Status.Provisioning.State = bmov1alpha1.StateProvisioned
		secret := newSecret("02:00:00:00:00:02")
		w := s.world(secret)
		Expect(w.reconcile(ctx)).To(HaveField("RequeueAfter", BeNumerically(">", 0)), "not every Secret is watched")
		Expect(conditions.Get(w.config(ctx), bootstrapv1.BootPreparedCondition)).To(And(HaveField("Reason", bootstrapv1.WaitingForRequestReason),
			HaveField("Message", HaveSuffix("yet: spec.networkData of BareMetalHost "+namespace+"/"+hostName+" is Secret network: links[0].ethernet_mac_address: "+
				"the host has no interface with the MAC address 02:00:00:00:00:02: correct it, or inspect the host again"))))
		change(ctx, w.management, secret, func(of *corev1.Secret) { of.Data = newSecret("02:00:00:00:00:01").Data })
		Expect(w.reconcile(ctx)).To(BeZero())
		Expect(conditions.GetMessage(w.config(ctx), bootstrapv1.BootPreparedCondition)).To(ContainSubstring("check on its console"))
	})

	It("waits if the pool does not say which program applies it, and boots by DHCP with None", func(ctx SpecContext) {
		w := s.world(newSecret("02:00:00:00:00:01"))
		expectWaiting(ctx, w, bootstrapv1.NetworkRendererNotSetReason, "set its spec.hosts.networkRenderer to SystemdNetworkd, NetworkManager or, for a host that uses DHCP, None")
		change(ctx, w.management, s.infra, func(p *poolv1.MachineConfigPool) { p.Spec.Hosts.NetworkRenderer = poolv1.NetworkRendererNone })
		Expect(w.reconcile(ctx)).To(BeZero())
		expectPrepared(ctx, w, machineName)
		Expect(paths(unpacked(w.overlays(ctx)[0]))).NotTo(ContainElement(ContainSubstring("network-data")))
	})
})

var _ = It("A Machine with a data template says why it has no data, and is looked at again until it has a host", func(ctx SpecContext) {
	s := newSetting()
	s.host.Status.Provisioning.State = bmov1alpha1.StateAvailable
	s.metal3Machine.SetAnnotations(nil) // CAPM3 has not chosen a host
	Expect(unstructured.SetNestedField(s.metal3Machine.Object, "rack", "spec", "dataTemplate", "name")).To(Succeed())
	metal3 := func(kind, name string, status map[string]any) client.Object {
		o := &unstructured.Unstructured{Object: map[string]any{"status": status}}
		o.SetGroupVersionKind(s.metal3Machine.GroupVersionKind().GroupVersion().WithKind(kind))
		o.SetNamespace(namespace)
		o.SetName(name)
		return o
	}
	w := s.world(metal3("Metal3DataClaim", machineName, map[string]any{"renderedData": map[string]any{"name": "rack-0"}}),
		metal3("Metal3Data", "rack-0", map[string]any{"errorMessage": "Exhausted IP Pools"}))
	Expect(w.reconcile(ctx)).To(HaveField("RequeueAfter", BeNumerically(">", 0)), "no watch reports the host")
	chosen := s.metal3Machine.DeepCopy()
	Expect(w.management.Get(ctx, client.ObjectKeyFromObject(chosen), chosen)).To(Succeed())
	chosen.SetAnnotations(map[string]string{host.Annotation: namespace + "/" + hostName})
	Expect(w.management.Update(ctx, chosen)).To(Succeed())
	Expect(w.reconcile(ctx)).To(HaveField("RequeueAfter", BeNumerically(">", 0)), "nor the data")
	Expect(conditions.GetMessage(w.config(ctx), bootstrapv1.BootPreparedCondition)).To(HaveSuffix("Metal3Machine metal/edge-x7k2p waits for the data of " +
		"Metal3DataTemplate rack: Metal3Data rack-0: Exhausted IP Pools: if it stays, correct the cause and delete the Machine"))
})
