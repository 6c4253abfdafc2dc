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

var _ = Describe("A host's token that somebody has copied", func() {
	const own, thiefs = "127.0.0.1", "127.0.0.2"

	It("tells on who uses it elsewhere, by event and metric, and is of no use there once it is bound to its host's addresses", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 1)
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		config := t.Config(ctx, "infra")
		asking(ctx, t, config)
		noted := func(ctx context.Context) ([]string, error) {
			err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(config), config)
			var addresses []string
			for _, noted := range config.Status.Boot.Addresses {
				addresses = append(addresses, noted.Address)
			}
			return slices.Sorted(slices.Values(addresses)), err
		}
		asks := func(address string) func(context.Context) (int, error) {
			return func(ctx context.Context) (int, error) {
				pointer := t.Pointer(ctx, config)
				code, _, err := fetch.GetFrom(ctx, address, pointer, pointer.URL)
				return code, err
			}
		}
		events := func(reason string) func() ([]string, error) {
			return told(ctx, t.Namespace, "PoolbootConfig", config.Name, reason)
		}
		counted := func(reason string) func() (float64, error) {
			return managerMetric(ctx, "poolboot_token_events_total", map[string]string{"cluster": t.Namespace + "/" + t.Namespace, "reason": reason})
		}
		Eventually(ctx, noted).Should(Equal([]string{own}))
		Eventually(ctx, asks(thiefs)).Should(Equal(http.StatusOK))
		Eventually(ctx, noted).Should(Equal([]string{own, thiefs}))
		Eventually(ctx, events(bootstrapv1.EventTokenUsedFromSecondAddress)).Should(ConsistOf(And(ContainSubstring("from "+thiefs), ContainSubstring("first from "+own))))
		Eventually(ctx, counted(bootstrapv1.EventTokenUsedFromSecondAddress)).Should(Equal(1.0))

		By("rotating it: what comes with the new token is the host, wherever it is")
		t.Rotate(ctx, config)
		Eventually(ctx, asks(thiefs)).Should(Equal(http.StatusOK))
		Eventually(ctx, noted).Should(Equal([]string{thiefs}))
		Consistently(ctx, events(bootstrapv1.EventTokenUsedFromSecondAddress)).Should(HaveLen(1))

		By("binding it to the addresses that the host is known to have")
		bmh := hostAt(t, config.Status.HostRef.Name)
		patched(ctx, bmh, func(h *bmov1alpha1.BareMetalHost) {
			metav1.SetMetaDataAnnotation(&h.ObjectMeta, poolv1.HostAddressesAnnotation, "192.0.2.7")
		})
		patched(ctx, config, func(c *bootstrapv1.PoolbootConfig) {
			c.Spec.ConfigSource = bootstrapv1.ConfigSource{Type: bootstrapv1.ConfigSourceTypeServer, Server: bootstrapv1.ServerSource{TokenBinding: bootstrapv1.TokenBindingHostAddresses}}
		})
		Eventually(ctx, func() ([]string, error) {
			err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(config), config)
			return config.Status.HostAddresses, err
		}).Should(ContainElement("192.0.2.7"))
		Eventually(ctx, asks(own)).Should(Equal(http.StatusServiceUnavailable))
		Eventually(ctx, noted).Should(Equal([]string{own, thiefs}))
		refused := func(address string) gomegatypes.GomegaMatcher {
			return And(ContainSubstring("from "+address), ContainSubstring("192.0.2.7"), ContainSubstring(poolv1.HostAddressesAnnotation))
		}
		Eventually(ctx, events(bootstrapv1.EventTokenAddressRefused)).Should(ConsistOf(refused(own), refused(thiefs)))
		Eventually(ctx, counted(bootstrapv1.EventTokenAddressRefused)).Should(Equal(2.0))
	})
})
