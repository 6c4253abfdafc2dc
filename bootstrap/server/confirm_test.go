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

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/enrol"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/server"
)

// outOfReach are the live sources of a replica that does not reach the API server.
type outOfReach struct{}

var errOutOfReach = errors.New("no route to host")

func (outOfReach) ByPointerID(context.Context, string) ([]server.Record, error) {
	return nil, errOutOfReach
}

func (outOfReach) Get(context.Context, types.UID) (*server.Overlay, error) { return nil, errOutOfReach }

func (outOfReach) ByTokenSHA256(context.Context, string) ([]server.Enrolment, error) {
	return nil, errOutOfReach
}

var _ = Describe("A replica that is behind", func() {
	const later = "a-token-that-was-made-later"
	var cached, now *world
	var before, after string
	rendered := func(name string) string { return "/rendered/default/" + name + "?pointer=" + pointerID }
	live := func(o *server.Options) {
		o.Live = &server.Sources{Records: now, Enrolments: enrolmentsOf{now}, Overlays: overlaysOf{now}}
	}
	cutOff := func(o *server.Options) {
		o.Live = &server.Sources{Records: outOfReach{}, Enrolments: outOfReach{}, Overlays: outOfReach{}}
	}

	BeforeEach(func() {
		cached, now = newWorld(), newWorld()
		before, after = cached.addRendered("infra", "before"), cached.addRendered("infra", "after")
		cached.addRecord(pointerID, "machine-0", hashOf(token))
		cached.addOverlay("machine-0", before, life)
		now.addRecord(pointerID, "machine-0", hashOf(later))
		now.addOverlay("machine-0", after, life)
		expires := func(w *world, role string, at time.Time) {
			w.enrolled[enrol.Hash(token)] = []server.Enrolment{{
				NamespacedName: types.NamespacedName{Namespace: "default", Name: "batch"}, Role: role, Names: "edge-*", Expires: at}}
		}
		expires(cached, "infra", time.Now().Add(-time.Minute))
		expires(now, "infra", time.Now().Add(time.Hour))
	})

	DescribeTable("ends no boot", func(target func() string, bearer func() string, code int) {
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
		Entry("of a host whose token is newer", func() string { return "/config/infra/" + pointerID }, func() string { return later }, http.StatusOK),
		Entry("of a host that another replica told to fetch a newer configuration", func() string {
			now.set(func() { now.records[pointerID][0].TokenSHA256 = hashOf(token) })
			return rendered(after)
		}, func() string { return token }, http.StatusOK),
		Entry("of a host whose enrolment was made longer", func() string { return "/config/infra?name=edge-1" }, func() string { return token }, http.StatusServiceUnavailable),
	)

	It("ends one that has ended", func() {
		for _, refused := range []struct {
			target, bearer string
			code           int
		}{
			{"/config/infra/" + pointerID, "guessed", http.StatusUnauthorized},
			{rendered(before), later, http.StatusForbidden},
			{"/config/worker?name=edge-1", token, http.StatusUnauthorized},
			{"/config/infra?name=core-1", token, http.StatusForbidden},
		} {
			response, body := serve(cached, short, live).get(refused.target, refused.bearer)
			Expect(response.StatusCode).To(Equal(refused.code), refused.target+": "+string(body))
		}
	})

	It("goes on serving what stands, cut off as it is", func() {
		s := serve(cached, short, cutOff)
		for _, target := range []string{"/config/infra/" + pointerID, rendered(before)} {
			response, body := s.get(target, token)
			Expect(response.StatusCode).To(Equal(http.StatusOK), string(body))
		}
	})

	It("refuses who has no token without asking anybody", func() {
		response, _ := serve(cached, short, cutOff).get("/config/infra/"+pointerID, "")
		Expect(response.StatusCode).To(Equal(http.StatusUnauthorized))
	})
})
