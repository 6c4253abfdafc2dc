package main

import (
	"context"
	"crypto/tls"
	"net/http"
	"net/netip"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	"github.com/onsi/gomega/gexec"
	"github.com/onsi/gomega/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/server"
)

// answer is the answer to a host.
type answer struct {
	code int
	body []byte
	err  error
}

// hold sends a request in the background when the config server knows the host, and returns when it is recorded.
func (s *configServer) hold(ctx context.Context, m *machine) <-chan answer {
	GinkgoHelper()
	s.waitFor(m)
	got := make(chan answer, 1)
	go func() {
		code, body, err := s.send(m.path(), m.token)
		got <- answer{code, body, err}
	}()
	Eventually(requestedTime(ctx, m)).ShouldNot(BeNil())
	return got
}

// waitFor waits until the cache of the config server has a host. Until then, all its requests are refused.
func (s *configServer) waitFor(m *machine) {
	GinkgoHelper()
	Eventually(s.answers(m.path(), "guessed")).Should(Equal(http.StatusUnauthorized))
}

func requestedTime(ctx context.Context, m *machine) func() *metav1.MicroTime {
	return func() *metav1.MicroTime {
		Expect(admin.Get(ctx, client.ObjectKeyFromObject(m.config), m.config)).To(Succeed())
		return m.config.Status.Requests.RequestedTime
	}
}

var _ = Describe("The config server, with the rights of config/rbac", func() {
	It("records a host's request, and answers as soon as its overlay exists", func(ctx SpecContext) {
		s, m := serve(), newMachine(ctx, "waits")
		got := s.hold(ctx, m)
		m.prepare(ctx)
		var host answer
		Eventually(got).Should(Receive(&host))
		Expect(host.err).NotTo(HaveOccurred())
		Expect(host.code).To(Equal(http.StatusOK), string(host.body))
		code, body, err := s.send(m.renderedPath(), m.token)
		Expect(err).NotTo(HaveOccurred())
		Expect(code).To(Equal(http.StatusOK), string(body))

		By("writing only its own fields")
		Eventually(func() *metav1.MicroTime {
			Expect(admin.Get(ctx, client.ObjectKeyFromObject(m.config), m.config)).To(Succeed())
			return m.config.Status.Requests.ServedTime
		}).ShouldNot(BeNil())
		for _, entry := range m.config.ManagedFields {
			if entry.Manager == fieldOwner {
				Expect(entry.Subresource).To(Equal("status"))
				Expect(entry.FieldsV1.GetRawString()).To(MatchJSON(
					`{"f:status":{".":{},"f:requests":{".":{},"f:addresses":{".":{},"k:{\"address\":\"127.0.0.1\"}":{".":{},"f:address":{},"f:firstUsedTime":{},"f:token":{}}},
						"f:firstRequestedTime":{},"f:requestedTime":{},"f:servedTime":{}}}}`))
			}
		}
		Expect(m.config.ManagedFields).To(ContainElement(HaveField("Manager", fieldOwner)))
	})

	It("keeps the time of a first request, however often the host retries, at whichever replica", func(ctx SpecContext) {
		m := newMachine(ctx, "retries")
		recorder := bootRecorder{admin}
		recordRequest := func(before server.Record, from string, at time.Time) bootstrapv1.HostRequests {
			GinkgoHelper()
			Expect(recorder.RecordRequest(ctx, before, netip.MustParseAddr(from), at)).To(Succeed())
			Expect(admin.Get(ctx, client.ObjectKeyFromObject(m.config), m.config)).To(Succeed())
			return m.config.Status.Requests
		}
		times := func(first, last time.Time) types.GomegaMatcher {
			return And(HaveField("FirstRequestedTime.Time", BeTemporally("==", first)), HaveField("RequestedTime.Time", BeTemporally("==", last)))
		}
		at := func(minutes int) time.Time {
			return m.config.CreationTimestamp.Add(time.Duration(minutes) * time.Minute)
		}
		notRequested := recordOf(m.config)
		Expect(recordRequest(notRequested, "192.0.2.7", at(1))).To(times(at(1), at(1)))
		Expect(recordRequest(recordOf(m.config), "192.0.2.7", at(2))).To(times(at(1), at(2)))
		Expect(recordRequest(notRequested, "192.0.2.7", at(3))).To(times(at(1), at(3)), "a replica whose cache lags")

		By("starting again when the host sends a request after its configuration was prepared")
		m.config.Status.Boot.AnsweredRequestTime = m.config.Status.Requests.RequestedTime
		Expect(admin.Status().Update(ctx, m.config)).To(Succeed())
		Expect(recordRequest(notRequested, "192.0.2.7", at(4))).To(times(at(1), at(3)), "an earlier request was answered")
		prepared := recordOf(m.config)
		Expect(recordRequest(prepared, "192.0.2.7", at(5))).To(times(at(5), at(5)))
		Expect(recordRequest(prepared, "192.0.2.7", at(6))).To(times(at(5), at(6)))

		By("starting again with another token")
		m.config.Annotations[bootstrapv1.TokenHashAnnotation] = strings.Repeat("f", 64)
		Expect(admin.Update(ctx, m.config)).To(Succeed())
		Expect(recordRequest(recordOf(m.config), "192.0.2.7", at(7))).To(times(at(7), at(7)))
		Expect(recordRequest(recordOf(m.config), "192.0.2.7", at(8))).To(times(at(7), at(8)))
	})

	It("records a report without a log in place of one with a log", func(ctx SpecContext) {
		m := newMachine(ctx, "reports")
		for _, failure := range []server.IgnitionFailure{{Stage: "files", Log: "no space left on device"}, {Stage: "disks"}} {
			Expect(bootRecorder{admin}.RecordFailure(ctx, recordOf(m.config), failure, time.Now())).To(Succeed())
			Expect(admin.Get(ctx, client.ObjectKeyFromObject(m.config), m.config)).To(Succeed())
			Expect(m.config.Status.Requests.IgnitionFailure).To(And(HaveField("Stage", failure.Stage), HaveField("Log", failure.Log)))
		}
	})

	It("requests an overlay again that a manager of another version created", func(ctx SpecContext) {
		s, m := serve(), newMachine(ctx, "another-version")
		secret := m.overlay()
		secret.Data = map[string][]byte{"ignition": []byte(`{"ignition":{"version":"3.5.0"}}`)}
		Expect(admin.Create(ctx, secret)).To(Succeed())
		got := s.hold(ctx, m)
		secret.Data = m.overlay().Data
		Expect(admin.Update(ctx, secret)).To(Succeed())
		var host answer
		Eventually(got).Should(Receive(&host))
		Expect(host.err).NotTo(HaveOccurred())
		Expect(host.code).To(Equal(http.StatusOK), string(host.body))
	})

	It("serves from its caches while the API server is down, and records requests once it is back", func(ctx SpecContext) {
		s, ready, waiting := serve(), newMachine(ctx, "outage-ready"), newMachine(ctx, "outage-waiting")
		ready.prepare(ctx)
		poll := func(m *machine, path string) func() (int, error) {
			return func() (int, error) {
				code, _, err := s.send(path, m.token)
				return code, err
			}
		}
		Eventually(poll(ready, ready.path())).Should(Equal(http.StatusOK))
		Expect(plane.StopAPIServer()).To(Succeed())
		DeferCleanup(func(ctx SpecContext) error { return plane.StartAPIServer(ctx) })
		Expect(poll(ready, ready.path())()).To(Equal(http.StatusOK))
		Expect(poll(ready, ready.renderedPath())()).To(Equal(http.StatusOK))
		Expect(poll(waiting, waiting.path())()).To(Equal(http.StatusServiceUnavailable))
		Expect(plane.StartAPIServer(ctx)).To(Succeed())
		waiting.prepare(ctx)
		Eventually(poll(waiting, waiting.path())).Should(Equal(http.StatusOK))
	})

	It("uses a renewed certificate without a restart", func(ctx SpecContext) {
		s := serve()
		serial := func() (string, error) {
			connection, err := tls.Dial("tcp", s.url[len("https://"):], hostClient().Transport.(*http.Transport).TLSClientConfig)
			if err != nil {
				return "", err
			}
			shown := connection.ConnectionState().PeerCertificates[0]
			return shown.SerialNumber.String(), connection.Close()
		}
		before, err := serial()
		Expect(err).NotTo(HaveOccurred())
		writeCertificate(s.certDir)
		Eventually(serial).ShouldNot(Equal(before))
	})

	It("is not ready while hosts reject its certificate", func(ctx SpecContext) {
		s := serve()
		expired, err := authority.ServerUntil(time.Now().Add(-time.Minute))
		Expect(err).NotTo(HaveOccurred())
		writePair(s.certDir, expired)
		ready := func() (int, error) { return status(s.health + "/readyz") }
		Eventually(ready).ShouldNot(Equal(http.StatusOK))
		Expect(status(s.health+"/healthz")).To(Equal(http.StatusOK), "a restart would not help")
		writeCertificate(s.certDir)
		Eventually(ready).Should(Equal(http.StatusOK))
	})

	It("is not ready with a certificate that is not for the host of its URL, and says so", func(ctx SpecContext) {
		s := launch("--external-url=https://192.0.2.20:9444")
		ready := func() (int, error) { return status(s.health + "/readyz") }
		Eventually(s.session.Err).Should(gbytes.Say(`"starting server" name="hosts"`))
		Consistently(ready, time.Second).ShouldNot(Equal(http.StatusOK))
		Expect(s.session.Err).To(gbytes.Say(`Not ready.* https://192\.0\.2\.20:9444 .*certificate is valid for 127\.0\.0\.1, not 192\.0\.2\.20`))
		pair, err := authority.Server("192.0.2.20")
		Expect(err).NotTo(HaveOccurred())
		writePair(s.certDir, pair)
		Eventually(ready).Should(Equal(http.StatusOK))
	})

	It("serves profiles only if the flag is set, and only on its own machine", func(ctx SpecContext) {
		quiet, address := serve(), freeAddress()
		for _, base := range []string{quiet.metrics, quiet.health} {
			Expect(status(base + "/debug/pprof/")).To(Equal(http.StatusNotFound))
		}
		code, _, err := quiet.send("/debug/pprof/", "")
		Expect(err).NotTo(HaveOccurred())
		Expect(code).To(Equal(http.StatusNotFound))
		launch("--profiler-address", address)
		Eventually(func() (string, error) { return text("http://" + address + "/debug/pprof/goroutine?debug=1") }).
			Should(ContainSubstring("goroutine profile"))
	})

	It("accepts no TLS older than 1.2", func(ctx SpecContext) {
		s := serve()
		settings := hostClient().Transport.(*http.Transport).TLSClientConfig
		settings.MinVersion, settings.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
		_, err := tls.Dial("tcp", s.url[len("https://"):], settings)
		Expect(err).To(MatchError(ContainSubstring("protocol version")))
	})

	It("answers the hosts that wait before it exits", func(ctx SpecContext) {
		s, m := serve(), newMachine(ctx, "at-the-end")
		got := s.hold(ctx, m)
		s.session.Terminate()
		Eventually(func() (int, error) { return status(s.health + "/readyz") }).ShouldNot(Equal(http.StatusOK))
		m.prepare(ctx)
		var host answer
		Eventually(got).Should(Receive(&host))
		Expect(host.err).NotTo(HaveOccurred())
		Expect(host.code).To(Equal(http.StatusOK), string(host.body))
		Eventually(s.session).Should(gexec.Exit(0))
		Expect(admin.Get(ctx, client.ObjectKeyFromObject(m.config), m.config)).To(Succeed())
		Expect(m.config.Status.Requests.ServedTime).NotTo(BeNil(), "the answer was recorded before the exit")
	})

	It("serves its metrics", func(ctx SpecContext) {
		s := serve()
		_, _, err := s.send("/nothing", "")
		Expect(err).NotTo(HaveOccurred())
		Expect(text(s.metrics + "/metrics")).To(ContainSubstring(`poolboot_config_server_requests_total{code="404",path="unknown"} 1`))
	})
})

var _ = Describe("A config server that can't start", func() {
	DescribeTable("exits and names the flag", func(why string, flags ...string) {
		s := launch(flags...)
		Eventually(s.session).Should(gexec.Exit(1))
		Expect(s.session.Err).To(gbytes.Say(why))
	},
		Entry("without a certificate", "--tls-cert-dir", "--tls-cert-dir=/nonexistent"),
		Entry("with a kubeconfig that does not exist", "--kubeconfig", "--kubeconfig=/nonexistent"),
		Entry("with an address that it can't listen on", "--bind-address", "--bind-address=192.0.2.1:1"),
	)
})
