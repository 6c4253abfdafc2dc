package server_test

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var (
	here  = netip.MustParseAddr("127.0.0.1")
	there = netip.MustParseAddr("127.0.0.2")
)

// getFrom is get with a source address.
func (s *site) getFrom(from netip.Addr, target, bearer string) (int, []byte) {
	GinkgoHelper()
	transport := s.Client().Transport.(*http.Transport).Clone()
	transport.DialContext = (&net.Dialer{LocalAddr: &net.TCPAddr{IP: from.AsSlice()}}).DialContext
	transport.DisableKeepAlives = true
	response, body := s.sendBy(&http.Client{Transport: transport}, http.MethodGet, target, bearer, nil)
	return response.StatusCode, body
}

// recordedAddresses returns the recorded addresses of machine-0.
func (w *world) recordedAddresses() []netip.Addr {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.records["machine-0"].Addresses)
}

func (w *world) addressWriteCount() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.addressWrites
}

var _ = Describe("A valid token", func() {
	var w *world
	var name string
	BeforeEach(func() {
		w = newWorld()
		name = w.addRendered("infra", "infra")
		w.addRecord(pointerID, "machine-0", boundTo("machine-0", token))
	})
	elsewhere := func(s *site, result string) float64 {
		return figure(s, "poolboot_config_server_other_addresses_total", map[string]string{"result": result})
	}

	It("is recorded with its source address in the one write for the boot request, however often the host sends it", func() {
		s := serve(w, short)
		var hosts sync.WaitGroup
		for range 50 {
			hosts.Go(func() {
				defer GinkgoRecover()
				s.get(configPath, token)
			})
		}
		hosts.Wait()
		w.addOverlay("machine-0", name, life)
		s.get(configPath, token)
		s.get(renderedPath(w), token)
		s.stop()
		Expect(w.recordedAddresses()).To(Equal([]netip.Addr{here}))
		Expect([]int{w.requests(), w.addressWriteCount()}).To(Equal([]int{1, 0}))
		Expect(elsewhere(s, "allowed")).To(BeZero())
	})

	DescribeTable("is recorded with a second address, in one write however often it is used from there", func(target func() string, prepared bool) {
		w.addOverlay("machine-0", name, life)
		path := target()
		s := serve(w, short)
		w.set(func() { w.records["machine-0"].Addresses = []netip.Addr{here} })
		if !prepared {
			w.set(func() { delete(w.overlays, "machine-0") })
			s.get(configPath, token) // is recorded, also for the requests that follow
		}
		for range 3 {
			s.getFrom(there, path, token)
		}
		Expect(elsewhere(s, "allowed")).To(Equal(3.0))
		s.stop()
		Expect(w.recordedAddresses()).To(Equal([]netip.Addr{here, there}))
		Expect(w.addressWriteCount()).To(Equal(1))
	},
		Entry("for a request that is answered", func() string { return configPath }, true),
		Entry("for a request that waits", func() string { return configPath }, false),
		Entry("for a download of the pool's configuration", func() string { return renderedPath(w) }, true),
		Entry("for a download before the overlay exists", func() string { return renderedPath(w) }, false),
	)

	It("is recorded after earlier writes failed, and its host gets the answer anyway", func() {
		w.addOverlay("machine-0", name, life)
		w.failWrites()
		s := serve(w, short)
		response, body := s.get(configPath, token)
		Expect(response.StatusCode).To(Equal(http.StatusOK), string(body))
		Eventually(func() float64 { return figure(s, "poolboot_config_server_record_errors_total", nil) }).ShouldNot(BeZero())
		w.set(func() { w.writeErr = nil })
		Eventually(func() []netip.Addr { s.get(configPath, token); return w.recordedAddresses() }).Should(Equal([]netip.Addr{here}))
	})

	It("is not recorded with the address of a client that does not send it", func() {
		s := serve(w, short)
		w.set(func() { w.records["machine-0"].Addresses = []netip.Addr{here} })
		s.getFrom(there, configPath, "guessed")
		s.getFrom(there, configPath, "")
		s.stop()
		Expect(w.recordedAddresses()).To(Equal([]netip.Addr{here}))
		Expect(elsewhere(s, "allowed")).To(BeZero())
	})
})

var _ = Describe("A token that is bound to the addresses of its host", func() {
	var w *world
	var s *site
	BeforeEach(func() {
		w = newWorld()
		name := w.addRendered("infra", "infra")
		w.addRecord(pointerID, "machine-0", boundTo("machine-0", token))
		w.addOverlay("machine-0", name, life)
		w.set(func() {
			w.records["machine-0"].Bound = true
			w.records["machine-0"].HostAddresses = []netip.Addr{netip.MustParseAddr("2001:db8::7"), there}
		})
		s = serve(w, short)
	})

	It("is accepted from these addresses, and from no other", func() {
		for _, path := range []string{configPath, renderedPath(w)} {
			code, body := s.getFrom(there, path, token)
			Expect(code).To(Equal(http.StatusOK), string(body))
			response, body := s.get(path, token)
			Expect(response.StatusCode).To(Equal(http.StatusServiceUnavailable), "the facts of a host can still be completed")
			Expect(response.Header).To(HaveKey("Retry-After"))
			word, message := problem(body)
			Expect(word).To(Equal("AddressNotBound"))
			Expect(message).To(And(ContainSubstring("127.0.0.1"), ContainSubstring("PoolbootConfig default/machine-0")))
		}
		Expect(figure(s, "poolboot_config_server_other_addresses_total", map[string]string{"result": "refused"})).To(Equal(2.0))
		s.stop()
		Expect(w.recordedAddresses()).To(ConsistOf(there, here), "a refused address is recorded too")
	})

	It("is accepted from no address while none is known, and causes no boot request", func() {
		w.set(func() {
			w.records["machine-0"].HostAddresses = nil
			delete(w.overlays, "machine-0")
		})
		code, body := s.getFrom(there, configPath, token)
		Expect(code).To(Equal(http.StatusServiceUnavailable))
		_, message := problem(body)
		Expect(message).To(ContainSubstring("no address of it is known yet"))
		Expect(w.requests()).To(BeZero())
	})
})
