package update

import (
	"context"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	barehost "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/assignments"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/controllertest"
)

var _ = Describe("The network data of a running host", func() {
	const path = "70-network-data-nic1.network"
	var w *world
	var h *host
	var in poolContext
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: clusterKey.Namespace, Name: "network"}}
	write := func(ctx context.Context, address string) {
		GinkgoHelper()
		secret.Data = map[string][]byte{"networkData": []byte("links: [{id: nic1, type: phy, name: eno1}]\nnetworks: [{type: ipv4, link: nic1, ip_address: " + address + "}]")}
		Expect(w.management.Update(ctx, secret)).To(Succeed())
	}
	BeforeEach(func(ctx SpecContext) {
		w = newWorld(1)
		bmh := &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: clusterKey.Namespace, Name: "rack1-u12"}}
		bmh.Spec.NetworkData = &corev1.SecretReference{Name: secret.Name}
		bmh.Status.Provisioning.State = bmov1alpha1.StateProvisioned
		secret.ResourceVersion = ""
		Expect(w.management.Create(ctx, bmh)).To(Succeed())
		Expect(w.management.Create(ctx, secret)).To(Succeed())
		Expect(w.management.Create(ctx, &poolv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Namespace: clusterKey.Namespace, Name: "rendered-worker-1"}})).To(Succeed())
		write(ctx, "192.0.2.7/24")
		r := w.reconciler.Updates
		r.NetworkData = barehost.NewNetworkData(w.management, w.management, clock.RealClock{})
		r.Offer = func() (join.Offer, error) {
			return join.Offer{ServerURL: "https://boot.example.com:9444", Agent: assignment.Agent{Version: "v0.1.0", Oldest: "v0.1.0", SHA512: map[string]string{"amd64": "6"}}}, nil
		}
		r.document, r.rendered = r.newDocument, assignments.NewRenderedConfigs(w.management)
		config, _, node := newObjects(hostName(0))
		config.OwnerReferences = nil
		config.Spec.Host = bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeBareMetalHost, BareMetalHostName: bmh.Name}
		config.Spec.Join.Type = bootstrapv1.JoinTypeKubelet
		config.Annotations = map[string]string{bootstrapv1.PointerIDAnnotation: "1-2"}
		cluster := controllertest.NewCluster(clusterKey)
		cluster.Spec.ControlPlaneEndpoint.Host, cluster.Spec.ControlPlaneEndpoint.Port = "site.example", 6443
		p := controllertest.NewPool(clusterKey, poolv1.RoleWorker)
		p.Status.Configuration.Name, p.Spec.Hosts.NetworkRenderer = "rendered-worker-1", poolv1.NetworkRendererSystemdNetworkd
		pools := []poolv1.MachineConfigPool{*p}
		h = &host{Host: rollout.HostOf(pools, config, nil, node)}
		in = r.poolContextOf(ctx, cluster, &pools[0], pools)
	})
	document := func(ctx context.Context) string {
		GinkgoHelper()
		t, err := w.reconciler.targetOf(ctx, h, in)
		Expect(err).NotTo(HaveOccurred())
		return string(t.document)
	}

	It("is part of what it should run, and another one is an update", func(ctx SpecContext) {
		Expect(document(ctx)).To(ContainSubstring(path))
		first, err := w.reconciler.revisionOf(ctx, h, in)
		Expect(err).NotTo(HaveOccurred())
		Expect(w.reconciler.revisionOf(ctx, h, in)).To(Equal(first))
		write(ctx, "192.0.2.8/24")
		Expect(w.reconciler.revisionOf(ctx, h, in)).NotTo(Equal(first))
	})

	It("makes its pool look again when its host gets that of another Secret, and not for other changes of the host", func(ctx SpecContext) {
		before := &bmov1alpha1.BareMetalHost{}
		Expect(w.management.Get(ctx, client.ObjectKey{Namespace: clusterKey.Namespace, Name: "rack1-u12"}, before)).To(Succeed())
		after := before.DeepCopy()
		after.Status.PoweredOn = true
		Expect(networkDataChanged(event.UpdateEvent{ObjectOld: before, ObjectNew: after})).To(BeFalse())
		after.Spec.NetworkData.Name = "another"
		Expect(networkDataChanged(event.UpdateEvent{ObjectOld: before, ObjectNew: after})).To(BeTrue())
		after.Annotations = map[string]string{poolv1.HostPoolAnnotation: poolv1.RoleWorker}
		h.Config.Name, h.Config.ResourceVersion = after.Name, ""
		Expect(w.management.Create(ctx, h.Config)).To(Succeed())
		Expect(w.reconciler.requestPoolOfHost(ctx, after)).To(HaveExactElements(HaveField("Name", in.pool.Name)))
	})

	It("stays on it without its Secret, and without its BareMetalHost, until they are back", func(ctx SpecContext) {
		Expect(w.management.Delete(ctx, secret)).To(Succeed())
		_, err := w.reconciler.revisionOf(ctx, h, in)
		Expect(err).To(MatchError(ContainSubstring("is Secret network, which does not exist")))
		Expect(w.management.Delete(ctx, &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: clusterKey.Namespace, Name: "rack1-u12"}})).To(Succeed())
		_, err = w.reconciler.revisionOf(ctx, h, in)
		Expect(err).To(MatchError("BareMetalHost edge/rack1-u12 does not exist"))
	})

	It("is not used without a program that applies it, as before the pool had the field", func(ctx SpecContext) {
		in.renderer = ""
		Expect(document(ctx)).NotTo(ContainSubstring(path))
	})

	It("is left to the program of its image if it has an inline data Secret, which is older than the choice of the host", func(ctx SpecContext) {
		h.Config.Spec.ConfigSource.Type = bootstrapv1.ConfigSourceTypeInline
		Expect(document(ctx)).NotTo(ContainSubstring(path))
	})
})
