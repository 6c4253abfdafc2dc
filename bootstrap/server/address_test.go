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

// getFrom is get from an address of this machine.
func (s *site) getFrom(from netip.Addr, target, bearer string) (int, []byte) {
	GinkgoHelper()
	transport := s.Client().Transport.(*http.Transport).Clone()
	transport.DialContext = (&net.Dialer{LocalAddr: &net.TCPAddr{IP: from.AsSlice()}}).DialContext
	transport.DisableKeepAlives = true
	response, body := s.askBy(&http.Client{Transport: transport}, http.MethodGet, target, bearer, nil)
	return response.StatusCode, body
}

// noted are the addresses on record of machine-0.
func (w *world) noted() []netip.Addr {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.records["machine-0"].Addresses)
}

func (w *world) arrivals() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.came
}

var _ = Describe("A live token", func() {
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

	It("is noted with the address that it came from in the one write that notes the request, however often its host asks", func() {
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
		Expect(w.noted()).To(Equal([]netip.Addr{here}))
		Expect([]int{w.requests(), w.arrivals()}).To(Equal([]int{1, 0}))
		Expect(elsewhere(s, "allowed")).To(BeZero())
	})

	DescribeTable("is noted with a second address, in one write however often it comes from there", func(target func() string, prepared bool) {
		w.addOverlay("machine-0", name, life)
		path := target()
		s := serve(w, short)
		w.set(func() { w.records["machine-0"].Addresses = []netip.Addr{here} })
		if !prepared {
			w.set(func() { delete(w.overlays, "machine-0") })
			s.get(configPath, token) // which is recorded, and stands for those that follow
		}
		for range 3 {
			s.getFrom(there, path, token)
		}
		Expect(elsewhere(s, "allowed")).To(Equal(3.0))
		s.stop()
		Expect(w.noted()).To(Equal([]netip.Addr{here, there}))
		Expect(w.arrivals()).To(Equal(1))
	},
		Entry("that is answered", func() string { return configPath }, true),
		Entry("that waits", func() string { return configPath }, false),
		Entry("that downloads the pool's bytes", func() string { return renderedPath(w) }, true),
		Entry("that downloads them too early", func() string { return renderedPath(w) }, false),
	)

	It("is noted when that could not be written before, and costs nobody an answer", func() {
		w.addOverlay("machine-0", name, life)
		w.failWrites()
		s := serve(w, short)
		response, body := s.get(configPath, token)
		Expect(response.StatusCode).To(Equal(http.StatusOK), string(body))
		Eventually(func() float64 { return figure(s, "poolboot_config_server_record_errors_total", nil) }).ShouldNot(BeZero())
		w.set(func() { w.writeErr = nil })
		Eventually(func() []netip.Addr { s.get(configPath, token); return w.noted() }).Should(Equal([]netip.Addr{here}))
	})

	It("is noted of no host that does not show it", func() {
		s := serve(w, short)
		w.set(func() { w.records["machine-0"].Addresses = []netip.Addr{here} })
		s.getFrom(there, configPath, "guessed")
		s.getFrom(there, configPath, "")
		s.stop()
		Expect(w.noted()).To(Equal([]netip.Addr{here}))
		Expect(elsewhere(s, "allowed")).To(BeZero())
	})
})

var _ = Describe("A token that is bound to its host's addresses", func() {
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

	It("gets its host all, and nobody else anything", func() {
		for _, path := range []string{configPath, renderedPath(w)} {
			code, body := s.getFrom(there, path, token)
			Expect(code).To(Equal(http.StatusOK), string(body))
			response, body := s.get(path, token)
			Expect(response.StatusCode).To(Equal(http.StatusServiceUnavailable), "what is known of a host may still be completed")
			Expect(response.Header).To(HaveKey("Retry-After"))
			word, message := problem(body)
			Expect(word).To(Equal("AddressNotBound"))
			Expect(message).To(And(ContainSubstring("127.0.0.1"), ContainSubstring("PoolbootConfig default/machine-0")))
		}
		Expect(figure(s, "poolboot_config_server_other_addresses_total", map[string]string{"result": "refused"})).To(Equal(2.0))
		s.stop()
		Expect(w.noted()).To(ConsistOf(there, here), "who was refused is noted too")
	})

	It("gets nobody anything while no address is known, and has nothing prepared", func() {
		w.set(func() {
			w.records["machine-0"].HostAddresses = nil
			delete(w.overlays, "machine-0")
		})
		code, body := s.getFrom(there, configPath, token)
		Expect(code).To(Equal(http.StatusServiceUnavailable))
		_, message := problem(body)
		Expect(message).To(ContainSubstring("none is known yet"))
		Expect(w.requests()).To(BeZero())
	})
})
