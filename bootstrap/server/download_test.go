package server_test

import (
	"net/http"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/server"
)

var _ = Describe("A pool's configuration", func() {
	var w *world
	var mine, other string
	path := func(namespace, name string) string {
		return "/rendered/" + namespace + "/" + name + "?config=machine-0&pointer=" + pointerID
	}
	BeforeEach(func() {
		w = newWorld()
		mine = w.addRendered("infra", "infra")
		other = w.addRendered("worker", "worker")
		w.addRecord(pointerID, "machine-0", boundTo("machine-0", token))
		w.addOverlay("machine-0", mine, life)
	})

	It("can be cached forever by the host, and not by a shared cache", func() {
		s := serve(w, long)
		response, body := s.get(path("default", mine), token)
		Expect(response.StatusCode).To(Equal(http.StatusOK))
		Expect(response.Header.Get("Cache-Control")).To(And(ContainSubstring("immutable"), ContainSubstring("private")))
		Expect(response.Header.Get("Content-Encoding")).To(BeEmpty(), "Ignition would not undo it")
		Expect(response.ContentLength).To(BeEquivalentTo(len(body)))

		request, err := http.NewRequest(http.MethodGet, s.URL+path("default", mine), nil)
		Expect(err).NotTo(HaveOccurred())
		request.Header.Set("Authorization", "Bearer "+token)
		request.Header.Set("If-None-Match", response.Header.Get("ETag"))
		again, err := s.Client().Do(request)
		Expect(err).NotTo(HaveOccurred())
		Expect(again.Body.Close()).To(Succeed())
		Expect(again.StatusCode).To(Equal(http.StatusNotModified))
	})

	It("is served even if the machine's overlay was deleted after the answer to the host: the overlay is requested again", func() {
		w.set(func() { delete(w.overlays, "machine-0") })
		s := serve(w, long)
		w.onRequest = func() {
			w.addOverlay("machine-0", mine, life)
			s.handler.OverlayChanged("machine-0")
		}
		response, body := s.get(path("default", mine), token)
		Expect(response.StatusCode).To(Equal(http.StatusOK), string(body))
		Expect(w.requests()).To(Equal(1))
	})

	It("is served completely, even if a client requests a range", func() {
		s := serve(w, long)
		whole, all := s.get(path("default", mine), token)
		for _, parts := range []string{"bytes=0-9", "bytes=0-,0-,0-,0-", "bytes=9999999-", "nonsense"} {
			response, body := s.sendWith(http.MethodGet, path("default", mine), token, http.Header{"Range": {parts}})
			Expect(response.StatusCode).To(Equal(http.StatusOK), parts)
			Expect(body).To(Equal(all))
			Expect(response.Header).NotTo(HaveKey("Accept-Ranges"))
		}
		head, nothing := s.send(http.MethodHead, path("default", mine), token)
		Expect(head.StatusCode).To(Equal(http.StatusOK))
		Expect(head.ContentLength).To(BeEquivalentTo(len(all)))
		Expect(head.Header.Get("ETag")).To(Equal(whole.Header.Get("ETag")))
		Expect(nothing).To(BeEmpty())
		response, body := s.sendWith(http.MethodGet, path("default", mine), token, http.Header{"If-None-Match": {`"another"`}})
		Expect(response.StatusCode).To(Equal(http.StatusOK))
		Expect(body).To(Equal(all))
	})

	It("has the same bytes on every server", func() {
		_, first := serve(w, long).get(path("default", mine), token)
		_, second := serve(w, long).get(path("default", mine), token)
		Expect(second).To(Equal(first))
	})

	It("is created once for an older Ignition, however many hosts request it at the same time", func() {
		const crowd = 20
		s := serve(w, long)
		w.onRead = func() { Eventually(w.lookups).Should(Equal(crowd)) }
		var hosts sync.WaitGroup
		for range crowd {
			hosts.Go(func() {
				defer GinkgoRecover()
				response, _ := s.sendWith(http.MethodGet, path("default", mine), token, http.Header{"Accept": {accepting("3.4.0")}})
				Expect(response.StatusCode).To(Equal(http.StatusOK))
			})
		}
		hosts.Wait()
		Expect(w.renderedReads()).To(Equal(1))
	})

	It("is removed from memory and from the metric when its object is deleted", func() {
		s := serve(w, short)
		send := func() int {
			response, _ := s.sendWith(http.MethodGet, path("default", mine), token, http.Header{"Accept": {accepting("3.4.0")}})
			return response.StatusCode
		}
		Expect(send()).To(Equal(http.StatusOK))
		Expect(cachedBytes(s)).To(BeNumerically(">", 0))
		key := types.NamespacedName{Namespace: "default", Name: mine}
		w.set(func() { delete(w.rendered, key) })
		s.handler.RenderedChanged(key)
		Expect(cachedBytes(s)).To(BeZero())
		Expect(send()).To(Equal(http.StatusServiceUnavailable))
	})

	DescribeTable("is packed only if its content matches the hash in its name", func(change func(*poolv1.MachineConfig), message string) {
		rendered := &poolv1.MachineConfig{Spec: poolv1.MachineConfigSpec{KernelArguments: []string{"nosmt"}}}
		var err error
		rendered.Name, err = pool.NameFor("infra", rendered.Spec)
		Expect(err).NotTo(HaveOccurred())
		_, err = server.PackRendered(rendered)
		Expect(err).NotTo(HaveOccurred())
		change(rendered)
		_, err = server.PackRendered(rendered)
		Expect(err).To(MatchError(ContainSubstring(message)))
	},
		Entry("changed content", func(r *poolv1.MachineConfig) { r.Spec.KernelArguments = []string{"mitigations=off"} }, "was changed: its content belongs to the name"),
		Entry("a name without a hash", func(r *poolv1.MachineConfig) { r.Name = "rendered-infra" }, "was changed: its content belongs to the name"),
	)

	It("is waited for if this replica's cache does not show the host's current overlay yet", func() {
		w.addOverlay("machine-0", other, life)
		s := serve(w, long)
		done := make(chan int)
		go func() {
			defer GinkgoRecover()
			response, _ := s.get(path("default", mine), token)
			done <- response.StatusCode
		}()
		w.addOverlay("machine-0", mine, life)
		Eventually(func() int {
			s.handler.OverlayChanged("machine-0")
			select {
			case code := <-done:
				return code
			default:
				return 0
			}
		}).Should(Equal(http.StatusOK))
	})

	DescribeTable("is refused", func(target func() string, bearer string, code int) {
		response, body := serve(w, short).get(target(), bearer)
		Expect(response.StatusCode).To(Equal(code), string(body))
	},
		Entry("403: of another pool", func() string { return path("default", other) }, token, http.StatusForbidden),
		Entry("503: in another namespace, where a machine with the same name can exist", func() string { return path("elsewhere", mine) }, token, http.StatusServiceUnavailable),
		Entry("403: that does not exist", func() string { return path("default", "rendered-infra-0") }, token, http.StatusForbidden),
		Entry("401: without a token", func() string { return path("default", mine) }, "", http.StatusUnauthorized),
		Entry("401: with a wrong token", func() string { return path("default", mine) }, "guessed", http.StatusUnauthorized),
		Entry("404: without a pointer", func() string { return "/rendered/default/" + mine }, token, http.StatusNotFound),
		Entry("503: before the machine has an overlay", func() string {
			w.set(func() { clear(w.overlays) })
			return path("default", mine)
		}, token, http.StatusServiceUnavailable),
	)
})

var _ = DescribeTable("A path that the server does not write is not found", func(method, path string, code int) {
	w := newWorld()
	w.addRecord(pointerID, "machine-0", boundTo("machine-0", token))
	w.addOverlay("machine-0", w.addRendered("infra", "infra"), life)
	s := serve(w, short)
	request, err := http.NewRequest(method, s.URL, nil)
	Expect(err).NotTo(HaveOccurred())
	request.URL.Opaque = "//" + strings.TrimPrefix(s.URL, "https://") + path // sent unchanged
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := s.Client().Do(request)
	Expect(err).NotTo(HaveOccurred())
	Expect(response.Body.Close()).To(Succeed())
	Expect(response.StatusCode).To(Equal(code))
},
	Entry("the root", "GET", "/", 404),
	Entry("dots", "GET", "/config/infra/../infra/default/machine-0/"+pointerID, 404),
	Entry("escaped dots", "GET", "/config/%2e%2e/default/machine-0/"+pointerID, 404),
	Entry("double slash", "GET", "/"+configPath, 404),
	Entry("escaped slash", "GET", "/config/infra%2fdefault/machine-0/"+pointerID, 404),
	Entry("escaped letter", "GET", "/config/%69nfra/default/machine-0/"+pointerID, 404),
	Entry("trailing slash", "GET", configPath+"/", 404),
	Entry("no role", "GET", "/config//default/machine-0/"+pointerID, 404),
	Entry("a role with a capital letter", "GET", "/config/Infra/default/machine-0/"+pointerID, 404),
	Entry("a long pointer ID", "GET", "/config/infra/default/machine-0/"+strings.Repeat("a", 64), 404),
	Entry("newline", "GET", configPath+"%0a", 404),
	Entry("a MachineConfig that is not rendered", "GET", "/rendered/default/99-secret?config=machine-0&pointer="+pointerID, 404),
	Entry("a listing", "GET", "/rendered/default?config=machine-0&pointer="+pointerID, 404),
	Entry("metrics", "GET", "/metrics", 404),
	Entry("a write", "PUT", configPath, 405),
	Entry("any role, which only users read", "GET", "/config/anything/default/machine-0/"+pointerID, 200),
	Entry("health", "GET", "/healthz", 200),
	Entry("readiness", "GET", "/readyz", 200),
)
