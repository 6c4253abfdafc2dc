package server_test

import (
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/server"
)

const (
	configPath = "/config/infra/default/machine-0/" + pointerID
	// short is a wait that ends during a test. long is one that does not.
	short = 200 * time.Millisecond
	long  = time.Minute
	life  = 15 * time.Minute
)

var _ = Describe("A host that requests its configuration", func() {
	var w *world
	var name string
	BeforeEach(func() {
		w = newWorld()
		name = w.addRendered("infra", "infra")
		w.addRecord(pointerID, "machine-0", boundTo("machine-0", token))
	})

	It("gets its pool's configuration, with its hash, and then its own overlay", func() {
		w.addOverlay("machine-0", name, life)
		s := serve(w, long)
		response, body := s.get(configPath, token)
		Expect(response.StatusCode).To(Equal(http.StatusOK), string(body))
		Expect(response.Header.Get("Content-Type")).To(Equal("application/vnd.coreos.ignition+json"))
		Expect(response.Header.Get("Cache-Control")).To(Equal("no-store"))
		pool, overlay := parts(body)
		Expect(parse(overlay).Storage.Files).To(ConsistOf(HaveField("Contents.Source", HaveValue(ContainSubstring(secretInOverlay)))))
		config := parse(s.follow(pool))
		Expect(config.KernelArguments.ShouldExist).To(ConsistOf(BeEquivalentTo("nosmt")))
		Expect(config.Storage.Files).To(ContainElement(HaveField("Path", "/etc/infratest")))
		Expect(w.requests()).To(BeZero(), "nothing was missing, so nothing is requested")
	})

	It("is answered as soon as its overlay exists", func() {
		s := serve(w, long)
		w.onRequest = func() {
			w.addOverlay("machine-0", name, life)
			s.handler.OverlayChanged("machine-0")
		}
		response, body := s.get(configPath, token)
		Expect(response.StatusCode).To(Equal(http.StatusOK), string(body))
		Expect(w.requests()).To(Equal(1))
	})

	It("is answered as soon as its rendered config exists", func() {
		w.addOverlay("machine-0", name, life)
		key := w.renderedNames()[0]
		rendered := w.rendered[key]
		w.set(func() { delete(w.rendered, key) })
		s := serve(w, long)
		w.onRequest = func() {
			w.set(func() { w.rendered[key] = rendered })
			s.handler.RenderedChanged(key)
		}
		response, body := s.get(configPath, token)
		Expect(response.StatusCode).To(Equal(http.StatusOK), string(body))
	})

	It("gets 503 if its overlay does not exist in time, with the reason from the controller", func() {
		w.set(func() { w.records["machine-0"].Pending = "HostNotReady: no host is chosen yet" })
		s := serve(w, short)
		response, body := s.get(configPath, token)
		Expect(response.StatusCode).To(Equal(http.StatusServiceUnavailable))
		Expect(strconv.Atoi(response.Header.Get("Retry-After"))).To(BeNumerically("~", 3, 2))
		word, message := problem(body)
		Expect(word).To(Equal("NotReady"))
		Expect(message).To(And(ContainSubstring("overlay does not exist yet"), ContainSubstring("no host is chosen yet")))
	})

	It("does not get a join credential that is about to expire, but a new one", func() {
		w.addOverlay("machine-0", name, 2*time.Minute)
		s := serve(w, long)
		w.onRequest = func() {
			w.addOverlay("machine-0", name, life)
			s.handler.OverlayChanged("machine-0")
		}
		response, body := s.get(configPath, token)
		Expect(response.StatusCode).To(Equal(http.StatusOK), string(body))
		Expect(w.requests()).To(Equal(1))
	})

	It("gets 503 while its token is being rotated, and 401 once its token has expired", func() {
		w.set(func() { w.records["machine-0"].Rotating = true })
		s := serve(w, short)
		response, body := s.get(configPath, "the-new-token")
		Expect(response.StatusCode).To(Equal(http.StatusServiceUnavailable), string(body))
		w.set(func() { w.records["machine-0"].Rotating = false })
		response, _ = s.get(configPath, "the-new-token")
		Expect(response.StatusCode).To(Equal(http.StatusUnauthorized))
		w.addOverlay("machine-0", name, life)
		response, body = s.get(configPath, token)
		Expect(response.StatusCode).To(Equal(http.StatusOK), string(body))
		w.inState("machine-0", bootstrapv1.TokenStateExpired)
		response, body = s.get(configPath, token)
		Expect(response.StatusCode).To(Equal(http.StatusUnauthorized))
		Expect(string(body)).To(ContainSubstring("expired"))
	})

	It("does not get a join credential that was used, but a new one", func() {
		w.addOverlay("machine-0", name, life)
		w.set(func() {
			used := w.overlays["machine-0"]
			used.CredentialID = "abcdef"
			w.overlays["machine-0"] = used
			w.records["machine-0"].CredentialID, w.records["machine-0"].UsedCredential = "abcdef", "abcdef"
		})
		s := serve(w, long)
		w.onRequest = func() {
			w.addOverlay("machine-0", name, life)
			w.set(func() { w.records["machine-0"].CredentialID = "" })
			s.handler.OverlayChanged("machine-0")
		}
		response, body := s.get(configPath, token)
		Expect(response.StatusCode).To(Equal(http.StatusOK), string(body))
		Expect(w.requests()).To(Equal(1))
	})

	It("does not get a join credential before it is in its record", func() {
		w.addOverlay("machine-0", name, life)
		w.set(func() {
			made := w.overlays["machine-0"]
			made.CredentialID = "abcdef"
			w.overlays["machine-0"] = made
		})
		response, _ := serve(w, short).get(configPath, token)
		Expect(response.StatusCode).To(Equal(http.StatusServiceUnavailable))
		s := serve(w, long)
		w.onRequest = func() {
			w.set(func() { w.records["machine-0"].CredentialID = "abcdef" })
			s.handler.RecordChanged(machine0)
		}
		response, body := s.get(configPath, token)
		Expect(response.StatusCode).To(Equal(http.StatusOK), string(body))
	})

	It("gets 503 if its record is deleted while it waits", func() {
		s := serve(w, short)
		w.onRequest = func() {
			w.addOverlay("machine-0", name, life)
			w.set(func() { delete(w.records, "machine-0") })
			s.handler.OverlayChanged("machine-0")
		}
		response, _ := s.get(configPath, token)
		Expect(response.StatusCode).To(Equal(http.StatusServiceUnavailable))
	})

	It("gets 503 if its rendered config can't be served", func() {
		w.addOverlay("machine-0", name, life)
		w.set(func() { w.readErr = errors.New("it was changed") })
		s := serve(w, short)
		response, body := s.get(configPath, token)
		Expect(response.StatusCode).To(Equal(http.StatusServiceUnavailable), string(body))
		Expect(s.logged()).To(ContainSubstring("it was changed"))
	})

	It("gets 503 if its overlay is malformed, and the log does not contain the overlay", func() {
		w.addOverlay("machine-0", name, life)
		w.set(func() {
			damaged := w.overlays["machine-0"]
			damaged.Packed = `{"ignition":{"version":"` + secretInOverlay + `"}}`
			w.overlays["machine-0"] = damaged
		})
		s := serve(w, short)
		response, _ := s.get(configPath, token)
		Expect(response.StatusCode).To(Equal(http.StatusServiceUnavailable))
		Expect(s.logged()).To(And(ContainSubstring("is malformed"), Not(ContainSubstring(secretInOverlay))))
	})

	It("gets 503 if its request can't be recorded, and its next request is recorded", func() {
		w.failWrites()
		s := serve(w, short)
		response, body := s.get(configPath, token)
		Expect(response.StatusCode).To(Equal(http.StatusServiceUnavailable))
		Expect(string(body)).NotTo(ContainSubstring("API server"), "that is for the log")
		Expect(s.logged()).To(ContainSubstring("the API server is down"))
		Expect(figure(s, "poolboot_config_server_record_errors_total", nil)).To(Equal(1.0))
		w.set(func() { w.writeErr = nil })
		s.get(configPath, token)
		Expect(w.requests()).To(Equal(1))
	})

	It("is answered in time if recording its request takes too long", func() {
		w.set(func() { w.stuck = true })
		response, _ := serve(w, short).get(configPath, token) // while the write is in progress
		Expect(response.StatusCode).To(Equal(http.StatusServiceUnavailable))
	})

	It("is recorded as served even if the first write fails", func() {
		w.addOverlay("machine-0", name, life)
		w.failWrites()
		s := serve(w, long)
		response, _ := s.get(configPath, token)
		Expect(response.StatusCode).To(Equal(http.StatusOK))
		Eventually(w.failures).Should(Equal(1))
		w.set(func() { w.writeErr = nil })
		s.handler.WaitForWrites()
		Expect(w.servings()).To(Equal(1))
	})

	It("gets a random Retry-After", func() {
		s, counts := serve(w, short), map[string]int{}
		for range 100 {
			response, _ := s.get("/config/infra/default/unknown/"+pointerID, token)
			Expect(response.StatusCode).To(Equal(http.StatusServiceUnavailable))
			counts[response.Header.Get("Retry-After")]++
		}
		Expect(counts).To(And(HaveLen(5), HaveKey("1"), HaveKey("5")), "seconds")
	})

	It("is recorded once, however many requests it sends at the same time", func() {
		s := serve(w, short)
		var hosts sync.WaitGroup
		for range 20 {
			hosts.Go(func() {
				defer GinkgoRecover()
				response, _ := s.get(configPath, token)
				Expect(response.StatusCode).To(Equal(http.StatusServiceUnavailable))
			})
		}
		hosts.Wait()
		Expect(w.requests()).To(Equal(1))
	})

	DescribeTable("whose request another replica recorded", func(ago time.Duration, records int, known ...func(*server.Record)) {
		w.set(func() {
			w.records["machine-0"].RequestedTime = time.Now().Add(-ago)
			for _, set := range known {
				set(w.records["machine-0"])
			}
		})
		serve(w, short).get(configPath, token)
		Expect(w.requests()).To(Equal(records))
	},
		Entry("moments ago is not recorded again", time.Second, 0),
		Entry("long ago is recorded again", time.Minute, 1),
		Entry("a while ago is not recorded again: the manager is busy", 20*time.Second, 0),
		Entry("a while ago is recorded again if the boot failed", 20*time.Second, 1, func(r *server.Record) { r.PreparationFailed = true }),
		Entry("before the last preparation is recorded again", 20*time.Second, 1, func(r *server.Record) { r.AnsweredTime = r.RequestedTime }),
		Entry("with a clock that is ahead is recorded again", -time.Hour, 1),
	)

	It("is recorded with a time after the request that was answered, even if the clock of that server is ahead", func() {
		answered := time.Now().Add(time.Hour).Truncate(time.Microsecond)
		w.set(func() { w.records["machine-0"].RequestedTime, w.records["machine-0"].AnsweredTime = answered, answered })
		serve(w, short).get(configPath, token)
		Expect(w.requested).To(HaveExactElements(BeTemporally(">", answered)))
	})

	It("is recorded as served once for each overlay", func() {
		w.addOverlay("machine-0", name, life)
		s := serve(w, long)
		s.get(configPath, token)
		s.get(configPath, token)
		s.handler.WaitForWrites()
		Expect(w.servings()).To(Equal(1))
		w.addOverlay("machine-0", name, life)
		s.get(configPath, token)
		s.handler.WaitForWrites()
		Expect(w.servings()).To(Equal(2))
	})

	It("gets the same answer from a restarted server, and is not recorded as served again", func() {
		w.addOverlay("machine-0", name, life)
		s := serve(w, long)
		_, before := s.get(configPath, token)
		s.stop()
		w.set(func() {
			w.records["machine-0"].ServedTime = w.served[0]
		})
		restarted := serve(w, long)
		_, after := restarted.get(configPath, token)
		poolBefore, overlayBefore := parts(before)
		poolAfter, overlayAfter := parts(after)
		Expect(overlayAfter).To(Equal(overlayBefore))
		Expect(poolAfter.Verification).To(Equal(poolBefore.Verification))
		restarted.follow(poolAfter)
		restarted.handler.WaitForWrites()
		Expect(w.servings()).To(Equal(1))
	})

	It("can send HEAD first, which is not recorded as served", func() {
		w.addOverlay("machine-0", name, life)
		s := serve(w, long)
		response, body := s.send(http.MethodHead, configPath, token)
		Expect(response.StatusCode).To(Equal(http.StatusOK))
		Expect(response.ContentLength).To(BeNumerically(">", 0))
		Expect(body).To(BeEmpty())
		s.handler.WaitForWrites()
		Expect(w.servings()).To(BeZero())
	})
})
