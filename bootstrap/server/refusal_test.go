package server_test

import (
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/access"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/server"
)

var _ = Describe("A request without the machine's own token", func() {
	const otherPointer = "9f0c1c1e-5f0a-4c55-8f0e-000000000002"
	var w *world
	BeforeEach(func() {
		w = newWorld()
		name := w.addRendered("infra", "infra")
		w.addRecord(pointerID, "machine-0", boundTo("machine-0", token))
		w.addRecord(otherPointer, "machine-1", boundTo("machine-1", "the other machine's token"))
		w.addRecord("revoked-pointer", "machine-2", "")
		w.inState("machine-2", bootstrapv1.TokenStateRevoked)
		w.addRecord("unfinished-pointer", "machine-3", "")
		w.addOverlay("machine-0", name, life)
		w.addOverlay("machine-2", name, life)
	})

	DescribeTable("is refused", func(path, bearer string, code int) {
		s := serve(w, long)
		response, body := s.get(path, bearer)
		Expect(response.StatusCode).To(Equal(code), string(body))
		_, message := problem(body)
		Expect(message).NotTo(BeEmpty())
		if code == http.StatusUnauthorized {
			Expect(response.Header.Get("WWW-Authenticate")).To(HavePrefix("Bearer"))
		}
		Expect(string(body)).NotTo(ContainSubstring(secretInOverlay))
		Expect(w.requests()).To(BeZero())
		if bearer != "" && bearer != string(bootstrapv1.TokenStateRevoked) {
			Expect(s.logged()).NotTo(ContainSubstring(bearer))
		}
	},
		Entry("401: no token", configPath, "", http.StatusUnauthorized),
		Entry("401: a wrong token", configPath, "guessed", http.StatusUnauthorized),
		Entry("401: the hash instead of the token", configPath, boundTo("machine-0", token), http.StatusUnauthorized),
		Entry("401: another machine's token", configPath, "the other machine's token", http.StatusUnauthorized),
		Entry("401: a revoked token", "/config/infra/default/machine-2/revoked-pointer", token, http.StatusUnauthorized),
		Entry("401: the word that marks a token as revoked", "/config/infra/default/machine-2/revoked-pointer", string(bootstrapv1.TokenStateRevoked), http.StatusUnauthorized),
		Entry("401: no token, for an unknown machine", "/config/infra/default/unknown/"+pointerID, "", http.StatusUnauthorized),
		Entry("503: an unknown machine, which can still be restored or moved here", "/config/infra/default/unknown/"+pointerID, token, http.StatusServiceUnavailable),
		Entry("503: a machine whose token is not recorded yet", "/config/infra/default/machine-3/unfinished-pointer", token, http.StatusServiceUnavailable),
	)

	DescribeTable("is refused although the hash of its token is recorded", func(state bootstrapv1.TokenState, code int) {
		w.inState("machine-0", state)
		s := serve(w, short)
		for _, path := range []string{configPath, renderedPath(w)} {
			response, body := s.get(path, token)
			Expect(response.StatusCode).To(Equal(code), string(body))
			Expect(string(body)).NotTo(ContainSubstring(secretInOverlay))
		}
		s.stop()
		Expect(w.requests()).To(BeZero())
		Expect(w.recordedAddresses()).To(BeEmpty())
	},
		Entry("401: once it has expired", bootstrapv1.TokenStateExpired, http.StatusUnauthorized),
		Entry("401: once it was revoked", bootstrapv1.TokenStateRevoked, http.StatusUnauthorized),
		Entry("503: in a state that this server does not know", bootstrapv1.TokenState("Suspended"), http.StatusServiceUnavailable),
		Entry("503: in a state with other capitalization", bootstrapv1.TokenState("revoked"), http.StatusServiceUnavailable),
	)

	Describe("whose record was copied", func() {
		copyTo := func(name types.NamespacedName, change func(*server.Record)) {
			w.set(func() {
				copied := *w.records["machine-0"]
				copied.NamespacedName, copied.UID = name, "copy"
				change(&copied)
				w.records[name.Name] = &copied
			})
		}
		It("is answered from its own record, whatever hash another record with its pointer ID has", func() {
			copyTo(types.NamespacedName{Namespace: "elsewhere", Name: "copy"}, func(r *server.Record) { r.Token.UID, r.Token.Hash = r.UID, boundTo("junk", "junk") })
			response, body := serve(w, long).get(configPath, token)
			Expect(response.StatusCode).To(Equal(http.StatusOK), string(body))
		})

		It("gets 503 while its own record is unknown, even if the token in the copy is revoked", func() {
			copyTo(types.NamespacedName{Namespace: "elsewhere", Name: "copy"}, func(r *server.Record) { r.Token.Hash, r.Token.State = "", bootstrapv1.TokenStateRevoked })
			w.set(func() { delete(w.records, "machine-0") })
			response, body := serve(w, long).get(configPath, token)
			Expect(response.StatusCode).To(Equal(http.StatusServiceUnavailable), string(body))
		})

		DescribeTable("gets nothing from the copy", func(change func(*server.Record), code int) {
			copyTo(types.NamespacedName{Namespace: "default", Name: "copy"}, change)
			w.addOverlay("copy", w.renderedNames()[0].Name, life)
			s := serve(w, long)
			response, body := s.get("/config/infra/default/copy/"+pointerID, token)
			Expect(response.StatusCode).To(Equal(code), string(body))
			response, body = s.get(configPath, token)
			Expect(response.StatusCode).To(Equal(http.StatusOK), string(body))
		},
			Entry("503: with the UID that the hash is bound to", func(*server.Record) {}, http.StatusServiceUnavailable),
			Entry("401: with the copy's own UID", func(r *server.Record) { r.Token.UID = r.UID }, http.StatusUnauthorized),
		)
	})

	It("gets 503 while its token is bound to an earlier object with the same name, as after clusterctl move", func() {
		w.set(func() { w.records["machine-0"].UID = "moved" })
		w.addOverlay("moved", w.renderedNames()[0].Name, life)
		s := serve(w, short)
		for _, bearer := range []string{token, "guessed"} {
			response, body := s.get(configPath, bearer)
			Expect(response.StatusCode).To(Equal(http.StatusServiceUnavailable), string(body))
		}
		Expect(w.requests()).To(BeZero())
		w.set(func() {
			w.records["machine-0"].Token.UID = "moved"
			w.records["machine-0"].Token.Hash = access.Config(machine0, "moved").Hash(token)
		})
		response, body := s.get(configPath, token)
		Expect(response.StatusCode).To(Equal(http.StatusOK), string(body))
	})

	It("gets 503 if its record belongs to a later host with the same name", func() {
		w.set(func() { w.records["machine-0"].PointerID = "later" })
		response, _ := serve(w, short).get(configPath, token)
		Expect(response.StatusCode).To(Equal(http.StatusServiceUnavailable))
	})

	It("leaves no token and no content of an overlay in the log", func() {
		s := serve(w, short)
		response, _ := s.get(configPath, token)
		Expect(response.StatusCode).To(Equal(http.StatusOK))
		s.get("/config/infra/default/machine-2/revoked-pointer", token)
		w.set(func() { clear(w.overlays) })
		s.get(configPath, token)
		Expect(s.logged()).To(ContainSubstring("machine-0"))
		Expect(s.logged()).NotTo(Or(ContainSubstring(token), ContainSubstring(secretInOverlay), ContainSubstring(boundTo("machine-0", token))))
	})
})
