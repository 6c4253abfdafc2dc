package integration

import (
	"context"
	"net/http"
	"slices"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/fetch"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

var _ = Describe("A stolen token of a host", func() {
	const own, attacker = "127.0.0.1", "127.0.0.2"

	It("is reported by an event and a metric when it is used from another address, and is refused there when it is bound to its host's addresses", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 1)
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		config := t.Config(ctx, "infra")
		waitForConfiguration(ctx, t, config)
		addresses := func(ctx context.Context) ([]string, error) {
			err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(config), config)
			var all []string
			for _, source := range config.Status.Requests.Addresses {
				all = append(all, source.Address)
			}
			return slices.Sorted(slices.Values(all)), err
		}
		requestAs := func(address string) func(context.Context) (int, error) {
			return func(ctx context.Context) (int, error) {
				pointer := t.Pointer(ctx, config)
				code, _, err := fetch.GetFrom(ctx, address, pointer, pointer.URL)
				return code, err
			}
		}
		events := func(reason string) func() ([]string, error) {
			return listEvents(ctx, t.Namespace, "PoolbootConfig", config.Name, reason)
		}
		count := func(reason string) func() (float64, error) {
			return sumManagerMetric(ctx, "poolboot_token_events_total", map[string]string{"cluster": t.Namespace + "/" + t.Namespace, "reason": reason})
		}
		Eventually(ctx, addresses).Should(Equal([]string{own}))
		Eventually(ctx, requestAs(attacker)).Should(Equal(http.StatusOK))
		Eventually(ctx, addresses).Should(Equal([]string{own, attacker}))
		Eventually(ctx, events(bootstrapv1.EventTokenUsedFromSecondAddress)).Should(ConsistOf(And(ContainSubstring("from "+attacker), ContainSubstring("first from "+own))))
		Eventually(ctx, count(bootstrapv1.EventTokenUsedFromSecondAddress)).Should(Equal(1.0))

		By("rotating it: the first address that uses the new token is the host's")
		t.Rotate(ctx, config)
		Eventually(ctx, requestAs(attacker)).Should(Equal(http.StatusOK))
		Eventually(ctx, addresses).Should(Equal([]string{attacker}))
		Consistently(ctx, events(bootstrapv1.EventTokenUsedFromSecondAddress)).Should(HaveLen(1))

		By("binding it to the recorded addresses of the host")
		bmh := newHost(t, config.Status.HostRef.Name)
		patch(ctx, bmh, func(h *bmov1alpha1.BareMetalHost) {
			metav1.SetMetaDataAnnotation(&h.ObjectMeta, poolv1.HostAddressesAnnotation, "192.0.2.7")
		})
		patch(ctx, config, func(c *bootstrapv1.PoolbootConfig) {
			c.Spec.ConfigSource = bootstrapv1.ConfigSource{Type: bootstrapv1.ConfigSourceTypeServer, Server: bootstrapv1.ServerSource{TokenBinding: bootstrapv1.TokenBindingHostAddresses}}
		})
		Eventually(ctx, func() ([]string, error) {
			err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(config), config)
			return config.Status.HostAddresses, err
		}).Should(ContainElement("192.0.2.7"))
		Eventually(ctx, requestAs(own)).Should(Equal(http.StatusServiceUnavailable))
		Eventually(ctx, addresses).Should(Equal([]string{own, attacker}))
		refused := func(address string) gomegatypes.GomegaMatcher {
			return And(ContainSubstring("from "+address), ContainSubstring("192.0.2.7"), ContainSubstring(poolv1.HostAddressesAnnotation))
		}
		Eventually(ctx, events(bootstrapv1.EventTokenAddressRefused)).Should(ConsistOf(refused(own), refused(attacker)))
		Eventually(ctx, count(bootstrapv1.EventTokenAddressRefused)).Should(Equal(2.0))
	})
})
