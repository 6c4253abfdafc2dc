package server_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/server"
)

// outOfReach is a live source of a replica that can't reach the API server.
type outOfReach[K, V any] struct{}

var errOutOfReach = errors.New("no route to host")

func (outOfReach[K, V]) Get(context.Context, K) (*V, error) { return nil, errOutOfReach }

var _ = Describe("A replica whose caches are stale", func() {
	const later = "a-token-that-was-made-later"
	var cached, now *world
	var before, after string
	rendered := func(name string) string {
		return "/rendered/default/" + name + "?config=machine-0&pointer=" + pointerID
	}
	live := func(o *server.Options) {
		o.Live = &server.Sources{Records: now, Enrollments: enrollmentsOf{now}, Overlays: overlaysOf{now}}
	}
	cutOff := func(o *server.Options) {
		o.Live = &server.Sources{Records: outOfReach[types.NamespacedName, server.Record]{},
			Enrollments: outOfReach[types.NamespacedName, server.Enrollment]{}, Overlays: outOfReach[types.UID, server.Overlay]{}}
	}

	BeforeEach(func() {
		cached, now = newWorld(), newWorld()
		before, after = cached.addRendered("infra", "before"), cached.addRendered("infra", "after")
		cached.addRecord(pointerID, "machine-0", boundTo("machine-0", token))
		cached.addOverlay("machine-0", before, life)
		now.addRecord(pointerID, "machine-0", boundTo("machine-0", later))
		now.addOverlay("machine-0", after, life)
		expires := func(w *world, role string, at time.Time) {
			w.addEnrollment(at)
			w.enrolled[edge].Role = role
		}
		expires(cached, "infra", time.Now().Add(-time.Minute))
		expires(now, "infra", time.Now().Add(time.Hour))
	})

	DescribeTable("does not end the boot", func(target func() string, bearer func() string, code int) {
		replica := serve(cached, short, live)
		response, body := replica.get(target(), bearer())
		Expect(response.StatusCode).To(Equal(code), string(body))
		if strings.Contains(response.Header.Get("Content-Type"), "ignition") {
			pool, _ := parts(body)
			replica.follow(pool)
		}
		response, body = serve(cached, short, cutOff).get(target(), bearer())
		Expect(response.StatusCode).To(Equal(http.StatusServiceUnavailable), string(body))
		Expect(string(body)).NotTo(ContainSubstring(errOutOfReach.Error()), "that is for the log")
	},
		Entry("of a host that has a newer token", func() string { return configPath }, func() string { return later }, http.StatusOK),
		Entry("of a host that another replica sent to a newer configuration", func() string {
			now.set(func() { now.records["machine-0"].Token.Hash = boundTo("machine-0", token) })
			return rendered(after)
		}, func() string { return token }, http.StatusOK),
		Entry("of a host whose Enrollment was extended", func() string { return "/config/infra/default/edge?name=edge-1" }, func() string { return token }, http.StatusServiceUnavailable),
	)

	It("ends the boot if the API server confirms the refusal", func() {
		for _, refused := range []struct {
			target, bearer string
			code           int
		}{
			{configPath, "guessed", http.StatusUnauthorized},
			{rendered(before), later, http.StatusForbidden},
			{"/config/worker/default/edge?name=edge-1", token, http.StatusUnauthorized},
			{"/config/infra/default/edge?name=core-1", token, http.StatusForbidden},
		} {
			response, body := serve(cached, short, live).get(refused.target, refused.bearer)
			Expect(response.StatusCode).To(Equal(refused.code), refused.target+": "+string(body))
		}
	})

	It("serves what is in its caches while it can't reach the API server", func() {
		s := serve(cached, short, cutOff)
		for _, target := range []string{configPath, rendered(before)} {
			response, body := s.get(target, token)
			Expect(response.StatusCode).To(Equal(http.StatusOK), string(body))
		}
	})

	It("refuses a request without a token without a request to the API server", func() {
		response, _ := serve(cached, short, cutOff).get(configPath, "")
		Expect(response.StatusCode).To(Equal(http.StatusUnauthorized))
	})
})
