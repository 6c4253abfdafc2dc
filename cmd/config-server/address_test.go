package main

import (
	"fmt"
	"net/http"
	"net/netip"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/server"
)

var _ = Describe("The address from which a token is used", func() {
	const here, there = "127.0.0.1", "127.0.0.2"
	var s *configServer
	var m *machine
	BeforeEach(func() { s = serve() })

	get := func(address string) func() (int, error) {
		return func() (int, error) { code, _, err := s.sendFrom(address, m.path(), m.token); return code, err }
	}
	recordedAddresses := func(ctx SpecContext) func() ([]bootstrapv1.TokenAddress, error) {
		return func() ([]bootstrapv1.TokenAddress, error) {
			err := admin.Get(ctx, client.ObjectKeyFromObject(m.config), m.config)
			return m.config.Status.Requests.Addresses, err
		}
	}

	It("is recorded, and so is a second one, until another token is used", func(ctx SpecContext) {
		m = newMachine(ctx, "two-addresses")
		m.prepare(ctx)
		Eventually(get(here)).Should(Equal(http.StatusOK))
		Eventually(recordedAddresses(ctx)).Should(HaveExactElements(HaveField("Address", here)))
		Eventually(get(there)).Should(Equal(http.StatusOK))
		Eventually(recordedAddresses(ctx)).Should(HaveExactElements(HaveField("Address", here), HaveField("Address", there)))
		Expect(m.config.Status.Requests.Addresses[0].FirstUsedTime.Time).To(BeTemporally("<", m.config.Status.Requests.Addresses[1].FirstUsedTime.Time))

		m.rotate(ctx, "another-token")
		Eventually(get(there)).Should(Equal(http.StatusOK))
		Eventually(recordedAddresses(ctx)).Should(HaveExactElements(And(HaveField("Address", there),
			HaveField("Token", m.config.Annotations[bootstrapv1.TokenHashAnnotation][:bootstrapv1.TokenHashPrefixLength]))))
	})

	It("must be one of the host's if the token is bound to those", func(ctx SpecContext) {
		m = newMachine(ctx, "bound")
		m.prepare(ctx)
		m.config.Spec.ConfigSource = bootstrapv1.ConfigSource{Type: bootstrapv1.ConfigSourceTypeServer, Server: bootstrapv1.ServerSource{TokenBinding: bootstrapv1.TokenBindingHostAddresses}}
		Expect(admin.Update(ctx, m.config)).To(Succeed())
		Eventually(get(there)).Should(Equal(http.StatusServiceUnavailable))
		before := m.config.DeepCopy()
		m.config.Status.HostAddresses = []string{"192.0.2.7", there}
		Expect(admin.Status().Patch(ctx, m.config, client.MergeFrom(before))).To(Succeed())
		Eventually(get(there)).Should(Equal(http.StatusOK))
		Expect(get(here)()).To(Equal(http.StatusServiceUnavailable))
		Eventually(recordedAddresses(ctx)).Should(ConsistOf(HaveField("Address", here), HaveField("Address", there)))
	})
})

var _ = Describe("An address from which a token is used is recorded", func() {
	const own, second, third = "192.0.2.7", "192.0.2.8", "2001:db8::9"
	var m *machine
	var before server.Record
	recordedAddresses := func(ctx SpecContext) func() ([]bootstrapv1.TokenAddress, error) {
		return func() ([]bootstrapv1.TokenAddress, error) {
			err := admin.Get(ctx, client.ObjectKeyFromObject(m.config), m.config)
			return m.config.Status.Requests.Addresses, err
		}
	}
	recordAddress := func(ctx SpecContext, address string, at time.Time) error {
		return bootRecorder{admin}.RecordAddress(ctx, before, netip.MustParseAddr(address), at)
	}
	now := time.Now().Truncate(time.Microsecond)
	BeforeEach(func(ctx SpecContext) {
		m = newMachine(ctx, fmt.Sprintf("address-%d", CurrentSpecReport().LeafNodeLocation.LineNumber))
		before = recordOf(m.config)
		Expect(recordAddress(ctx, own, now)).To(Succeed())
		Expect(recordedAddresses(ctx)()).To(HaveExactElements(HaveField("Address", own)))
	})

	It("by a replica whose cache does not show what the manager and another replica have written meanwhile", func(ctx SpecContext) {
		m.config.Status.ReportedAddresses = []bootstrapv1.ReportedAddress{{Address: own, FirstUsedTime: metav1.NewMicroTime(now)}}
		Expect(admin.Status().Update(ctx, m.config)).To(Succeed())
		Expect(recordAddress(ctx, second, now.Add(time.Second))).To(Succeed())
		Expect(bootRecorder{admin}.RecordRequest(ctx, before, netip.MustParseAddr(third), now.Add(2*time.Second))).To(Succeed())
		Expect(recordedAddresses(ctx)()).To(HaveExactElements(
			And(HaveField("Address", own), HaveField("FirstUsedTime.Time", BeTemporally("==", now))),
			HaveField("Address", second), HaveField("Address", third)))
		Expect(m.config.Status.Requests.RequestedTime.Time).To(BeTemporally("==", now.Add(2*time.Second)))
		Expect(m.config.Status.ReportedAddresses).To(HaveLen(1))
	})

	It("by replicas at the same time", func(ctx SpecContext) {
		var replicas sync.WaitGroup
		for _, address := range []string{own, second, third} {
			replicas.Go(func() {
				defer GinkgoRecover()
				Expect(recordAddress(ctx, address, now.Add(time.Second))).To(Succeed())
			})
		}
		replicas.Wait()
		Expect(recordedAddresses(ctx)()).To(ConsistOf(And(HaveField("Address", own), HaveField("FirstUsedTime.Time", BeTemporally("==", now))),
			HaveField("Address", second), HaveField("Address", third)))
	})

	It("even if the host's configuration is prepared before its request is recorded", func(ctx SpecContext) {
		m.config.Status.Boot.AnsweredRequestTime = &metav1.MicroTime{Time: now}
		Expect(admin.Status().Update(ctx, m.config)).To(Succeed())
		Expect(bootRecorder{admin}.RecordRequest(ctx, before, netip.MustParseAddr(second), now.Add(time.Second))).To(Succeed())
		Expect(recordedAddresses(ctx)()).To(HaveExactElements(HaveField("Address", own), HaveField("Address", second)))
		Expect(m.config.Status.Requests.RequestedTime).To(BeNil())
	})

	It("up to eight times by all replicas together", func(ctx SpecContext) {
		address := netip.MustParseAddr(second)
		for range 2 * server.MaxAddresses {
			Expect(recordAddress(ctx, address.String(), now)).To(Succeed())
			address = address.Next()
		}
		Expect(recordedAddresses(ctx)()).To(HaveLen(server.MaxAddresses))
	})

	It("but not for another token, which was recorded meanwhile", func(ctx SpecContext) {
		m.rotate(ctx, "another-token")
		Expect(recordAddress(ctx, second, now)).To(Succeed())
		Expect(recordedAddresses(ctx)()).To(HaveExactElements(HaveField("Address", own)))
	})
})
