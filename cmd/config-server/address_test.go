package main

import (
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
)

var _ = Describe("The address that a token comes from", func() {
	const here, there = "127.0.0.1", "127.0.0.2"
	var s *configServer
	var m *machine
	BeforeEach(func() { s = serve() })

	asks := func(address string) func() (int, error) {
		return func() (int, error) { code, _, err := s.askFrom(address, m.path(), m.token); return code, err }
	}
	noted := func(ctx SpecContext) func() (map[string]bootstrapv1.TokenAddress, error) {
		return func() (map[string]bootstrapv1.TokenAddress, error) {
			err := admin.Get(ctx, client.ObjectKeyFromObject(m.config), m.config)
			return m.config.Status.Boot.Addresses, err
		}
	}

	It("is on record, and so is a second one, until another token is first used", func(ctx SpecContext) {
		m = newMachine(ctx, "two-addresses")
		m.prepare(ctx)
		Eventually(asks(here)).Should(Equal(http.StatusOK))
		Eventually(noted(ctx)).Should(And(HaveLen(1), HaveKey(here)))
		Eventually(asks(there)).Should(Equal(http.StatusOK))
		Eventually(noted(ctx)).Should(And(HaveLen(2), HaveKey(here), HaveKey(there)))
		Expect(m.config.Status.Boot.Addresses[here].FirstUsedTime.Time).To(BeTemporally("<", m.config.Status.Boot.Addresses[there].FirstUsedTime.Time))

		m.rotate(ctx, "another-token")
		Eventually(asks(there)).Should(Equal(http.StatusOK))
		Eventually(noted(ctx)).Should(And(HaveLen(1), HaveKeyWithValue(there, HaveField("Token", m.config.Annotations[bootstrapv1.TokenHashAnnotation][:bootstrapv1.TokenDigits]))))
	})

	It("must be one of the host's when the token is bound to them", func(ctx SpecContext) {
		m = newMachine(ctx, "bound")
		m.prepare(ctx)
		m.config.Spec.ConfigSource = bootstrapv1.ConfigSource{Type: bootstrapv1.ConfigSourceServer, Server: bootstrapv1.ServerSource{TokenBinding: bootstrapv1.BindToHostAddresses}}
		Expect(admin.Update(ctx, m.config)).To(Succeed())
		Eventually(asks(there)).Should(Equal(http.StatusServiceUnavailable))
		before := m.config.DeepCopy()
		m.config.Status.HostAddresses = []string{"192.0.2.7", there}
		Expect(admin.Status().Patch(ctx, m.config, client.MergeFrom(before))).To(Succeed())
		Eventually(asks(there)).Should(Equal(http.StatusOK))
		Expect(asks(here)()).To(Equal(http.StatusServiceUnavailable))
		Eventually(noted(ctx)).Should(And(HaveKey(here), HaveKey(there)))
	})
})
