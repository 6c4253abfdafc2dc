package bootstrapdata

import (
	"context"
	"errors"
	"slices"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/controllertest"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/scope"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/scrape"
)

const own, second, third = "192.0.2.7", "192.0.2.8", "2001:db8::9"

// digits distinguish the token from earlier ones.
var digits = hash[:bootstrapv1.TokenHashPrefixLength]

// recordUse records that a token was used from addresses, one after the other, as the config server does.
func (w *world) recordUse(token string, addresses ...string) {
	for _, address := range addresses {
		at := time.Now().Add(time.Duration(len(w.config.Status.Requests.Addresses)-20) * time.Second).Truncate(time.Microsecond)
		w.config.Status.Requests.Addresses = append(slices.DeleteFunc(w.config.Status.Requests.Addresses, func(a bootstrapv1.TokenAddress) bool { return a.Address == address }),
			bootstrapv1.TokenAddress{Address: address, FirstUsedTime: metav1.NewMicroTime(at), Token: token})
	}
}

// save writes the config's status, as the config server does.
func (w *world) save(ctx SpecContext) {
	GinkgoHelper()
	Expect(w.Status().Update(ctx, w.config)).To(Succeed())
}

var _ = Describe("A token that is used from a second address", func() {
	It("is reported by a Warning that names both and the remedy, and counted, once for each address", func(ctx SpecContext) {
		w := newWorld(0)
		w.recordUse(digits, own)
		w.start()
		before := scrape.Sum(metrics.Registry, "poolboot_token_events_total", map[string]string{"reason": bootstrapv1.EventTokenUsedFromSecondAddress})
		w.reconcile(ctx)
		Expect(w.events.Events).NotTo(Receive(), "the first address is not reported")
		Expect(w.config.ResourceVersion).To(Equal("999"), "nothing is written")

		w.recordUse(digits, second)
		w.save(ctx)
		w.reconcile(ctx)
		Expect(w.events.Events).To(Receive(And(HavePrefix("Warning "+bootstrapv1.EventTokenUsedFromSecondAddress), ContainSubstring(own), ContainSubstring(second),
			ContainSubstring(bootstrapv1.RotateTokenAnnotation))))
		w.restart()
		w.reconcile(ctx)
		Expect(w.events.Events).NotTo(Receive())

		w.recordUse(digits, third)
		w.save(ctx)
		w.reconcile(ctx)
		Expect(w.events.Events).To(Receive(And(ContainSubstring("from "+third), Not(ContainSubstring(second)))))
		Expect(w.events.Events).NotTo(Receive())
		Expect(scrape.Sum(metrics.Registry, "poolboot_token_events_total", map[string]string{"reason": bootstrapv1.EventTokenUsedFromSecondAddress}) - before).To(Equal(2.0))
	})

	It("is reported again when another token is used from it, or another host uses it", func(ctx SpecContext) {
		w := newWorld(0)
		w.recordUse(digits, own, second)
		w.start()
		w.reconcile(ctx)
		Expect(w.events.Events).To(Receive(ContainSubstring("from " + second)))

		w.config.Status.Requests.Addresses = nil // as when another host replaces it
		w.recordUse(digits, third, second)
		w.config.Status.Requests.Addresses[1].FirstUsedTime = metav1.NowMicro()
		w.save(ctx)
		w.reconcile(ctx)
		Expect(w.events.Events).To(Receive(ContainSubstring("from " + second)))
		Expect(w.config.Status.ReportedAddresses).To(HaveExactElements(HaveField("Address", second)))
		w.reconcile(ctx)
		Expect(w.events.Events).NotTo(Receive())
	})

	It("is reported even if its Node was Ready first", func(ctx SpecContext) {
		w := newWorld(0)
		w.recordUse(digits, own, second)
		w.config.Annotations[bootstrapv1.TokenStateAnnotation] = string(bootstrapv1.TokenStateRevoked)
		w.start()
		w.reconcile(ctx)
		Expect(w.events.Events).To(Receive(HavePrefix("Warning " + bootstrapv1.EventTokenUsedFromSecondAddress)))
		w.reconcile(ctx)
		Expect(w.events.Events).NotTo(Receive())
	})

	It("is reported with what is known about its host", func(ctx SpecContext) {
		w := newWorld(0)
		w.recordUse(digits, own, second)
		controllertest.SetAddresses(w.host, second)
		w.start()
		w.reconcile(ctx)
		Expect(w.events.Events).To(Receive(ContainSubstring(second + ", a known address of BareMetalHost rack1-u12, but first from " + own)))
	})

	DescribeTable("is not reported", func(ctx SpecContext, change func(*world)) {
		w := newWorld(0)
		change(w)
		w.start()
		w.reconcile(ctx)
		Expect(w.events.Events).NotTo(Receive())
		Expect(w.config.ResourceVersion).To(Equal("999"), "nothing is written")
	},
		Entry("when the other address is that of an earlier token", func(w *world) {
			w.recordUse("0123456789abcdef", second)
			w.recordUse(digits, own)
		}),
		Entry("when it is not an address", func(w *world) { w.recordUse(digits, own, "not-an-address") }),
		Entry("while the Cluster is paused", func(w *world) {
			w.recordUse(digits, own, second)
			w.cluster.Spec.Paused = ptr.To(true)
		}),
	)
})

var _ = Describe("A token that is bound to its host's addresses", func() {
	newBound := func(ago time.Duration) *world {
		w := newWorld(ago)
		w.config.Spec.ConfigSource = bootstrapv1.ConfigSource{Type: bootstrapv1.ConfigSourceTypeServer, Server: bootstrapv1.ServerSource{TokenBinding: bootstrapv1.TokenBindingHostAddresses}}
		w.host.Annotations = map[string]string{poolv1.HostAddressesAnnotation: third}
		controllertest.SetAddresses(w.host, "::ffff:"+own, own+"/24")
		return w
	}

	It("has them recorded, from the inspection and from a user, as long as it is bound", func(ctx SpecContext) {
		w := newBound(0)
		w.start()
		w.reconcile(ctx)
		Expect(w.config.Status.HostAddresses).To(Equal([]string{own, third}))
		version := w.config.ResourceVersion
		w.reconcile(ctx)
		Expect(w.config.ResourceVersion).To(Equal(version), "nothing is written")

		delete(w.host.Annotations, poolv1.HostAddressesAnnotation)
		Expect(w.Update(ctx, w.host)).To(Succeed())
		w.reconcile(ctx)
		Expect(w.config.Status.HostAddresses).To(Equal([]string{own}))

		w.config.Spec.ConfigSource.Server.TokenBinding = bootstrapv1.TokenBindingAny
		Expect(w.Update(ctx, w.config)).To(Succeed())
		w.reconcile(ctx)
		Expect(w.config.Status.HostAddresses).To(BeEmpty())
	})

	It("has none while its host is not installed", func(ctx SpecContext) {
		w := newBound(0)
		w.config.Status.HostAddresses = []string{own}
		w.host.Status.Provisioning.State = bmov1alpha1.StateDeprovisioning
		w.start()
		w.reconcile(ctx)
		Expect(w.config.Status.HostAddresses).To(BeEmpty())
	})

	It("is reported, with the remedy, if it is used from another address, and not if it is used from one of them", func(ctx SpecContext) {
		w := newBound(0)
		w.recordUse(digits, second)
		w.start()
		before := scrape.Sum(metrics.Registry, "poolboot_token_events_total", map[string]string{"reason": bootstrapv1.EventTokenAddressRefused})
		w.reconcile(ctx)
		Expect(w.events.Events).To(Receive(And(HavePrefix("Warning "+bootstrapv1.EventTokenAddressRefused), ContainSubstring("from "+second),
			ContainSubstring("rack1-u12 ("+own+", "+third+")"), ContainSubstring("only this host ever"), ContainSubstring(poolv1.HostAddressesAnnotation), ContainSubstring("privacy extensions"), ContainSubstring(bootstrapv1.RotateTokenAnnotation))))
		Expect(scrape.Sum(metrics.Registry, "poolboot_token_events_total", map[string]string{"reason": bootstrapv1.EventTokenAddressRefused}) - before).To(Equal(1.0))
		w.reconcile(ctx)
		Expect(w.events.Events).NotTo(Receive())

		w = newBound(0)
		w.recordUse(digits, own)
		w.start()
		w.reconcile(ctx)
		Expect(w.events.Events).NotTo(Receive())
	})

	It("is not bound to addresses in network data that its pool ignores", func(ctx SpecContext) {
		w := newBound(0)
		w.host.Spec.NetworkData, w.config.Status.PoolRole = &corev1.SecretReference{Name: "network"}, "infra"
		w.start()
		p := controllertest.NewPool(client.ObjectKeyFromObject(w.cluster), "infra")
		Expect(w.Create(ctx, p)).To(Succeed())
		Expect(w.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.host.Namespace, Name: "network"}, Data: map[string][]byte{
			"networkData": []byte("links: [{id: a, type: phy, name: eno1}]\nnetworks: [{type: ipv4, link: a, ip_address: " + second + "/24}]")}})).To(Succeed())
		w.reconcile(ctx)
		Expect(w.config.Status.HostAddresses).To(Equal([]string{own, second, third}))
		p.Spec.Hosts.NetworkRenderer = poolv1.NetworkRendererNone
		Expect(w.Update(ctx, p)).To(Succeed())
		w.reconcile(ctx)
		Expect(w.config.Status.HostAddresses).To(Equal([]string{own, third}))
	})

	It("causes no more reads of its host's network data once it is revoked", func(ctx SpecContext) {
		w, reads := newBound(0), 0
		w.host.Spec.NetworkData = &corev1.SecretReference{Name: "network"}
		w.start()
		w.reconciler.NetworkData = host.NewNetworkData(w.Client, interceptor.NewClient(w.Client.(client.WithWatch), interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
				reads++
				return c.Get(ctx, key, o, opts...)
			},
		}), clock.RealClock{})
		w.reconcile(ctx)
		Expect(reads).To(Equal(1))
		record.RevokeToken(w.config)
		Expect(w.Update(ctx, w.config)).To(Succeed())
		for range 10 {
			w.reconcile(ctx)
		}
		Expect(reads).To(Equal(1))
		Expect(w.config.Status.HostAddresses).To(Equal([]string{own, third}))
	})

	It("watches what the inspection finds later", func(ctx SpecContext) {
		w := newBound(0)
		w.start()
		w.reconciler.WatchHardware = func() error { return errors.New("seen") }
		Expect(w.reconciler.setAddresses(ctx, &state{Scope: &scope.Scope{Config: w.config}})).Error().To(MatchError(ContainSubstring("seen")))
	})
})
