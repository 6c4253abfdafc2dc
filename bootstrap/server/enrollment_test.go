package server_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/access"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/server"
)

const (
	enrollPath  = "/config/infra/default/edge?name=edge-7"
	hostAddress = "127.0.0.1"
)

type enrollmentsOf struct{ *world }

func (w enrollmentsOf) Get(ctx context.Context, name types.NamespacedName) (*server.Enrollment, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	enrollment, ok := w.enrolled[name]
	if !ok {
		return nil, ctx.Err()
	}
	found := *enrollment
	found.Requests = maps.Clone(found.Requests)
	return &found, ctx.Err()
}

func (w enrollmentsOf) RecordAdmissionRequest(_ context.Context, _ server.Enrollment, name, address string, _ time.Time) error {
	w.mu.Lock()
	if err := w.admissionErr; err != nil {
		w.mu.Unlock()
		return err
	}
	w.admissionNames = append(w.admissionNames, name)
	hook := w.onAdmissionRequest
	w.mu.Unlock()
	if hook != nil {
		hook(name, address)
	}
	return nil
}

func (w *world) admissionRequests() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.admissionNames...)
}

// edge is the Enrollment that the token belongs to. It admits hosts edge-* to the pool infra.
var edge = types.NamespacedName{Namespace: "default", Name: "edge"}

func (w *world) addEnrollment(expires time.Time) {
	w.set(func() {
		w.enrolled[edge] = &server.Enrollment{
			NamespacedName: edge, TokenSHA256: access.Enrollment(edge, "secret").Hash(token), TokenUID: "secret",
			Role: "infra", Names: "edge-*", Expires: expires, Requests: map[string]server.EnrollmentRequest{},
		}
	})
}

// admit adds the record of a host that was admitted as edge-7.
func (w *world) admit(from string) {
	id := access.PointerID(edge.Namespace, edge.Name, "edge-7")
	w.addRecord(id, "edge-7", access.Enrollment(edge, "secret").Hash(token))
	w.set(func() {
		record := w.records["edge-7"]
		record.Token.UID, record.Enrollment, record.EnrolledFrom = "secret", edge.Name, from
	})
}

var _ = Describe("A host that enrolls", func() {
	var w *world
	var rendered string
	BeforeEach(func() {
		w = newWorld()
		rendered = w.addRendered("infra", "infra")
		w.addEnrollment(time.Now().Add(time.Hour))
	})

	It("is admitted under its name and gets its pool's configuration, with its enrollment token only", func() {
		s := serve(w, long)
		w.onAdmissionRequest = func(_, address string) {
			w.admit(address)
			w.addOverlay("edge-7", rendered, life)
			s.handler.RecordChanged(types.NamespacedName{Namespace: "default", Name: "edge-7"})
		}
		response, body := s.get(enrollPath, token)
		Expect(response.StatusCode).To(Equal(http.StatusOK), string(body))
		pool, _ := parts(body)
		Expect(parse(s.follow(pool)).Storage.Files).To(ContainElement(HaveField("Path", "/etc/infratest")))
		Expect(w.admissionRequests()).To(ConsistOf("edge-7"))
		Expect(s.logged()).NotTo(ContainSubstring(token))
	})

	It("causes no request in the Enrollment after it was admitted", func() {
		w.admit(hostAddress)
		w.addOverlay("edge-7", rendered, life)
		s := serve(w, long)
		for range 2 {
			response, body := s.get(enrollPath, token)
			Expect(response.StatusCode).To(Equal(http.StatusOK), string(body))
		}
		Expect(w.admissionRequests()).To(BeEmpty())
	})

	It("causes one write, however often it retries before the decision", func() {
		s := serve(w, short)
		for range 3 {
			response, _ := s.get(enrollPath, token)
			Expect(response.StatusCode).To(Equal(http.StatusServiceUnavailable))
		}
		Expect(w.admissionRequests()).To(HaveLen(1))
	})

	It("gets 503 with the reason while it is refused", func() {
		s := serve(w, long)
		w.onAdmissionRequest = func(name, address string) {
			w.set(func() {
				w.enrolled[edge].Requests[name] = server.EnrollmentRequest{Time: time.Now(), Address: address, Refused: "all 20 uses are taken"}
			})
			s.handler.EnrollmentChanged(edge)
		}
		for range 2 {
			response, body := s.get(enrollPath, token)
			Expect(response.StatusCode).To(Equal(http.StatusServiceUnavailable))
			_, message := problem(body)
			Expect(message).To(ContainSubstring("all 20 uses are taken"))
		}
		Expect(w.admissionRequests()).To(HaveLen(1), "a refusal stands for a while")
	})

	It("gets 503 with the remedy while the Enrollment is full, unless its request is recorded already", func() {
		w.set(func() {
			for i := range poolv1.MaxEnrollmentRequests {
				w.enrolled[edge].Requests[fmt.Sprintf("edge-x%d", i)] = server.EnrollmentRequest{Time: time.Now(), Address: "192.0.2.9", Refused: "all 20 uses are taken"}
			}
		})
		s := serve(w, long)
		full := func() {
			GinkgoHelper()
			response, body := s.get(enrollPath, token)
			Expect(response.StatusCode).To(Equal(http.StatusServiceUnavailable))
			word, message := problem(body)
			Expect(word).To(Equal("EnrollmentFull"))
			Expect(message).To(And(ContainSubstring("Enrollment default/edge"), ContainSubstring("spec.maxUses")))
		}
		full()
		Expect(w.admissionRequests()).To(BeEmpty(), "a request that can't be recorded causes no write")

		By("another replica has recorded the last request, and the cache does not show it yet")
		w.set(func() { delete(w.enrolled[edge].Requests, "edge-x0"); w.admissionErr = server.ErrEnrollmentFull })
		full()

		By("the request of the host is recorded already")
		w.set(func() {
			w.admissionErr = nil
			w.enrolled[edge].Requests["edge-7"] = server.EnrollmentRequest{Time: time.Now().Add(-time.Hour), Address: hostAddress}
		})
		w.onAdmissionRequest = func(_, address string) {
			w.admit(address)
			w.addOverlay("edge-7", rendered, life)
			s.handler.RecordChanged(types.NamespacedName{Namespace: "default", Name: "edge-7"})
		}
		response, body := s.get(enrollPath, token)
		Expect(response.StatusCode).To(Equal(http.StatusOK), string(body))
	})

	It("gets 503 while the name belongs to another host, and its request is recorded", func() {
		w.admit("192.0.2.7")
		w.addOverlay("edge-7", rendered, life)
		response, body := serve(w, short).get(enrollPath, token)
		Expect(response.StatusCode).To(Equal(http.StatusServiceUnavailable))
		Expect(string(body)).NotTo(ContainSubstring("infratest"))
		Expect(w.admissionRequests()).To(ConsistOf("edge-7"))
	})

	It("gets 503 while its token is in a state that the server does not know", func() {
		w.admit(hostAddress)
		w.inState("edge-7", "Suspended")
		w.addOverlay("edge-7", rendered, life)
		response, body := serve(w, short).get(enrollPath, token)
		Expect(response.StatusCode).To(Equal(http.StatusServiceUnavailable), string(body))
		Expect(string(body)).NotTo(ContainSubstring("infratest"))
	})

	It("gets 401 for the name of a host that has joined, and its request is recorded", func() {
		w.admit(hostAddress)
		w.set(func() {
			w.records["edge-7"].Token.Hash, w.records["edge-7"].Token.State = "", bootstrapv1.TokenStateRevoked
		})
		w.addOverlay("edge-7", rendered, life)
		response, _ := serve(w, long).get(enrollPath, token)
		Expect(response.StatusCode).To(Equal(http.StatusUnauthorized))
		Expect(w.admissionRequests()).To(ConsistOf("edge-7"))
	})

	DescribeTable("causes no write when it can't be admitted",
		func(path, bearer string, code int, why string) {
			w.admit(hostAddress)
			w.addOverlay("edge-7", rendered, life)
			response, body := serve(w, short).get(path, bearer)
			Expect(response.StatusCode).To(Equal(code), string(body))
			_, message := problem(body)
			Expect(message).To(ContainSubstring(why))
			Expect(w.admissionRequests()).To(BeEmpty())
			Expect(w.requests()).To(BeZero())
		},
		Entry("without a token", enrollPath, "", 401, "bearer token"),
		Entry("with an unknown token", enrollPath, "x"+token, 503, "does not exist or has another token"),
		Entry("with the hash of the token", enrollPath, access.Enrollment(edge, "secret").Hash(token), 503, "does not exist or has another token"),
		Entry("with a token for another pool", "/config/worker/default/edge?name=edge-7", token, 401, "another pool"),
		Entry("without a name", "/config/infra/default/edge", token, 403, "name of a Node"),
		Entry("under an invalid name", "/config/infra/default/edge?name=edge_7", token, 403, "name of a Node"),
		Entry("under a name that does not match the pattern", "/config/infra/default/edge?name=core-7", token, 403, "edge-*"),
		Entry("with the pointer ID of its name", "/config/infra/default/edge-7/"+access.PointerID("default", "edge", "edge-7"), token, 401, "has its name, not a pointer ID"),
		Entry("under a name of a thousand characters", "/config/infra/default/edge?name=edge-"+strings.Repeat("a", 1000), token, 403, "name of a Node"),
	)

	It("gets 401 once its token has expired, for its own configuration and for its pool's", func() {
		w.admit(hostAddress)
		w.addOverlay("edge-7", rendered, life)
		s := serve(w, short)
		_, body := s.get(enrollPath, token)
		pool, _ := parts(body)
		w.addEnrollment(time.Now())
		for _, target := range []string{enrollPath, *pool.Source} {
			response, body := s.get(target, token)
			Expect(response.StatusCode).To(Equal(http.StatusUnauthorized), string(body))
			Expect(string(body)).To(ContainSubstring("expired"))
		}
	})

	It("boots even if an expired Enrollment in another namespace, or with another name, has the same hash", func() {
		w.admit(hostAddress)
		w.addOverlay("edge-7", rendered, life)
		w.set(func() {
			for _, name := range []types.NamespacedName{{Namespace: "elsewhere", Name: edge.Name}, {Namespace: edge.Namespace, Name: "copy"}} {
				copied := *w.enrolled[edge]
				copied.NamespacedName, copied.Expires = name, time.Now().Add(-time.Hour)
				w.enrolled[name] = &copied
			}
		})
		s := serve(w, long)
		response, body := s.get(enrollPath, token)
		Expect(response.StatusCode).To(Equal(http.StatusOK), string(body))
		for _, path := range []string{"/config/infra/elsewhere/edge?name=edge-7", "/config/infra/default/copy?name=edge-7"} {
			response, body := s.get(path, token)
			Expect(response.StatusCode).To(Equal(http.StatusServiceUnavailable), string(body))
		}
	})

	DescribeTable("gets 503 while its token is bound to an earlier Secret, as after clusterctl move", func(moved func()) {
		w.admit(hostAddress)
		w.addOverlay("edge-7", rendered, life)
		s := serve(w, short)
		_, body := s.get(enrollPath, token)
		pool, _ := parts(body)
		w.set(moved)
		for _, target := range []string{enrollPath, *pool.Source} {
			response, body := s.get(target, token)
			Expect(response.StatusCode).To(Equal(http.StatusServiceUnavailable), string(body))
		}
		Expect(w.admissionRequests()).To(BeEmpty())
	},
		Entry("until the manager has hashed the token", func() { w.enrolled[edge].TokenSHA256, w.enrolled[edge].TokenUID = "", "" }),
		Entry("until its record is bound to the new Secret", func() {
			w.enrolled[edge].TokenUID = "moved"
			w.enrolled[edge].TokenSHA256 = access.Enrollment(edge, "moved").Hash(token)
		}),
	)

	It("gets 503 while its Enrollment does not exist, and continues once it is restored", func() {
		w.admit(hostAddress)
		w.addOverlay("edge-7", rendered, life)
		s := serve(w, short)
		_, body := s.get(enrollPath, token)
		pool, _ := parts(body)
		w.set(func() { clear(w.enrolled) })
		for _, target := range []string{enrollPath, *pool.Source} {
			response, _ := s.get(target, token)
			Expect(response.StatusCode).To(Equal(http.StatusServiceUnavailable))
		}
		w.addEnrollment(time.Now().Add(time.Hour))
		s.follow(pool)
	})
})
