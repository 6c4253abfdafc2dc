package server_test

import (
	"io"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/server"
)

var _ = Describe("The registration of a Node before a later boot", func() {
	var (
		w     *world
		s     *site
		agent *http.Client
	)
	start := func(wait time.Duration, changes ...func(*server.Options)) {
		GinkgoHelper()
		w = newWorld()
		ca := newCA()
		w.addRecord(pointerID, "machine-0", "")
		w.inState("machine-0", bootstrapv1.TokenStateRevoked)
		w.assign("machine-0", "edge-7", w.addRendered("infra", "infra"), ca.PEM())
		s = serve(w, wait, changes...)
		agent = s.with(kubelet(ca, "edge-7"))
	}
	post := func() int {
		GinkgoHelper()
		response, _ := s.sendBy(agent, http.MethodPost, updatePath, "", nil)
		return response.StatusCode
	}
	register := func(at time.Time) {
		w.set(func() { w.records["machine-0"].RegisteredTime = at })
		s.handler.RecordChanged(types.NamespacedName{Namespace: "default", Name: "machine-0"})
	}

	It("is answered as soon as the manager has registered the Node", func() {
		start(long)
		requested, answered := make(chan time.Time, 1), make(chan int, 1)
		w.onRegistration = func(at time.Time) { requested <- at }
		go func() {
			defer GinkgoRecover()
			answered <- post()
		}()
		var at time.Time
		Eventually(requested).Should(Receive(&at))
		register(at.Add(-time.Microsecond)) // for an earlier request
		Consistently(answered, 100*time.Millisecond).ShouldNot(Receive())
		register(at)
		Eventually(answered).Should(Receive(Equal(http.StatusNoContent)))
	})

	It("is one write for all retries and replicas while the manager has not answered", func() {
		start(short)
		for range 5 {
			Expect(post()).To(Equal(http.StatusServiceUnavailable))
		}
		Expect(w.registrationRequests()).To(Equal(1))
		other := serve(w, short)
		response, _ := other.sendBy(agent, http.MethodPost, updatePath, "", nil)
		Expect(response.StatusCode).To(Equal(http.StatusServiceUnavailable))
		Expect(w.registrationRequests()).To(Equal(1))
	})

	It("is one write for requests at the same time", func() {
		start(short)
		hidden := w.records["machine-0"].RegistrationRequestedTime
		w.onRegistration = func(time.Time) { w.set(func() { w.records["machine-0"].RegistrationRequestedTime = hidden }) } // the cache lags
		done := make(chan int, 8)
		for range cap(done) {
			go func() { defer GinkgoRecover(); done <- post() }()
		}
		for range cap(done) {
			Eventually(done).Should(Receive(Equal(http.StatusServiceUnavailable)))
		}
		Expect(w.registrationRequests()).To(Equal(1))
	})

	It("is not another write moments after an answer, and is one later", func() {
		now := time.Now()
		clock := func(o *server.Options) { o.Now = func() time.Time { w.mu.Lock(); defer w.mu.Unlock(); return now } }
		start(long, clock)
		w.onRegistration = func(at time.Time) { go register(at) }
		Expect(post()).To(Equal(http.StatusNoContent))
		w.set(func() { now = now.Add(4 * time.Second) })
		Expect(post()).To(Equal(http.StatusNoContent))
		Expect(w.registrationRequests()).To(Equal(1))
		w.set(func() { now = now.Add(6 * time.Second) })
		Expect(post()).To(Equal(http.StatusNoContent))
		Expect(w.registrationRequests()).To(Equal(2))
	})

	It("is later than the last registration if the clock of the manager is ahead, and still not a write for each request", func() {
		start(long)
		ahead := time.Now().Add(time.Hour).Truncate(time.Microsecond)
		w.set(func() { w.records["machine-0"].RegisteredTime = ahead })
		w.onRegistration = func(at time.Time) { go register(at) }
		for range 3 {
			Expect(post()).To(Equal(http.StatusNoContent))
		}
		Expect(w.registrations).To(HaveLen(1))
		Expect(w.registrations[0]).To(BeTemporally(">", ahead))
	})

	It("is requested again if the write failed", func() {
		start(short)
		w.failWrites()
		Expect(post()).To(Equal(http.StatusServiceUnavailable))
		w.set(func() { w.writeErr = nil })
		Expect(post()).To(Equal(http.StatusServiceUnavailable))
		Expect(w.registrationRequests()).To(Equal(2))
		Expect(figure(s, "poolboot_config_server_record_errors_total", nil)).To(Equal(1.0))
	})

	It("ends if the PoolbootConfig is replaced meanwhile", func() {
		start(long)
		w.onRegistration = func(at time.Time) {
			w.set(func() {
				w.records["machine-0"].UID, w.records["machine-0"].RegisteredTime = "another", at
			})
		}
		Expect(post()).To(Equal(http.StatusServiceUnavailable))
	})

	It("is refused with a body, which is not read", func() {
		start(short)
		for _, body := range []io.Reader{strings.NewReader("x"), io.LimitReader(strings.NewReader("x"), 1)} { // with a length, and in chunks
			response, _ := s.sendContent(agent, http.MethodPost, updatePath, "", nil, body)
			Expect(response.StatusCode).To(Equal(http.StatusRequestEntityTooLarge))
		}
		Expect(w.registrationRequests()).To(BeZero())
	})

	It("is no GET, PUT or DELETE", func() {
		start(short)
		for _, method := range []string{http.MethodPut, http.MethodDelete, http.MethodPatch} {
			response, _ := s.sendBy(agent, method, updatePath, "", nil)
			Expect(response.StatusCode).To(Equal(http.StatusMethodNotAllowed))
			Expect(response.Header.Get("Allow")).To(Equal("GET, HEAD, POST"))
		}
		Expect(w.registrationRequests()).To(BeZero())
	})
})
