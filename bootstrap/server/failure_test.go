package server_test

import (
	"net/http"
	"net/netip"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	clocktesting "k8s.io/utils/clock/testing"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/server"
)

var _ = Describe("A host that reports that Ignition failed", func() {
	var (
		w     *world
		s     *site
		clock *clocktesting.FakePassiveClock
	)
	BeforeEach(func() {
		w = newWorld()
		w.addOverlay("machine-0", w.addRendered("infra", "infra"), life)
		w.addRecord(pointerID, "machine-0", boundTo("machine-0", token))
		clock = clocktesting.NewFakePassiveClock(time.Now())
		s = serve(w, short, func(o *server.Options) { o.Now = clock.Now })
	})

	It("is recorded with its stage and its log", func() {
		response, body := s.post(configPath, token, "files\nfirst line\nfailed to write /etc/a: no space left on device\n")
		Expect(response.StatusCode).To(Equal(http.StatusNoContent), string(body))
		Expect(w.reports()).To(ConsistOf(server.IgnitionFailure{Stage: "files", Log: "first line\nfailed to write /etc/a: no space left on device"}))
	})

	It("is recorded without a log", func() {
		response, _ := s.post(configPath, token, "disks")
		Expect(response.StatusCode).To(Equal(http.StatusNoContent))
		Expect(w.reports()).To(ConsistOf(server.IgnitionFailure{Stage: "disks"}))
	})

	It("is recorded at most once a minute", func() {
		for range 3 {
			s.post(configPath, token, "files\nno")
		}
		response, body := s.post(configPath, token, "files\nno")
		Expect(response.StatusCode).To(Equal(http.StatusTooManyRequests))
		Expect(string(body)).To(ContainSubstring("in the last minute"))
		Expect(w.reports()).To(HaveLen(1))
		clock.SetTime(clock.Now().Add(time.Minute))
		response, _ = s.post(configPath, token, "files\nno")
		Expect(response.StatusCode).To(Equal(http.StatusNoContent))
		Expect(w.reports()).To(HaveLen(2))
	})

	It("is recorded to be served again afterwards", func() {
		s.get(configPath, token)
		Eventually(w.servings).Should(Equal(1)) // the record is written in the background
		clock.SetTime(clock.Now().Add(time.Second))
		s.post(configPath, token, "files\nno")
		clock.SetTime(clock.Now().Add(time.Second))
		s.get(configPath, token)
		Eventually(w.servings).Should(Equal(2))
		s.get(configPath, token)
		Consistently(w.servings, "100ms").Should(Equal(2))
	})

	DescribeTable("has no secrets in the status",
		func(log, recorded string) {
			response, _ := s.post(configPath, token, "files\n"+log)
			Expect(response.StatusCode).To(Equal(http.StatusNoContent))
			Expect(w.reports()).To(ConsistOf(HaveField("Log", recorded)))
		},
		Entry("its token", "GET with "+token+" failed", "GET with (redacted) failed"),
		Entry("a join credential", "kubeadm join --token abcdef.0123456789abcdef", "kubeadm join --token (redacted)"),
		Entry("a header", "sent Authorization: Bearer abc.def\nnext", "sent (redacted)\nnext"),
		Entry("a password", `password="hunter2" refused`, `(redacted) refused`),
		Entry("a password in a URL", "GET https://user:hunter2@mirror.example.com/a", "GET https(redacted)mirror.example.com/a"),
		Entry("the content of a file", "invalid data:text/plain;base64,c2VjcmV0 in /etc/a", "invalid (redacted) in /etc/a"),
		Entry("a password hash", "user core:$6$salt$hash: unknown", "user core:(redacted): unknown"),
		Entry("a private key that was cut off", "-----BEGIN EC PRIVATE KEY-----\nMHcCAQ\nmore", "(redacted)"),
		Entry("a private key whose beginning was cut off", "MHcCAQ\n-----END EC PRIVATE KEY-----\nmore", "(redacted)\nmore"),
		Entry("a PGP key", "-----BEGIN PGP PRIVATE KEY BLOCK-----\nabc\n-----END PGP PRIVATE KEY BLOCK-----\nmore", "(redacted)\nmore"),
		Entry("its token, of which the beginning was cut off", token[3:]+" refused\nmore", "(redacted) refused\nmore"),
		Entry("a parameter of a URL", "GET https://mirror.example.com/a?access_token=abc&X-Amz-Signature=def: 403",
			"GET https://mirror.example.com/a(redacted) 403"),
		Entry("a variable", "AWS_SECRET_ACCESS_KEY=abc: unknown", "(redacted) unknown"),
		Entry("a password with spaces", `"password": "hunter 2", "name": "core"`, `"(redacted), "name": "core"`),
		Entry("a password in escaped quotes", `config "{\"password\": \"hunter 2\"}"`, `config "{\"(redacted)}"`),
		Entry("control characters", "a\x1b[31mb\x00c\r\n\xffd", "a [31mb c\n\uFFFDd"),
	)

	It("is recorded with the address from which its token was used", func() {
		s.post(configPath, token, "files\nno")
		Eventually(w.recordedAddresses).Should(Equal([]netip.Addr{here}))
	})

	DescribeTable("is refused",
		func(method, path, bearer, body string, code int, message string) {
			response, answer := s.sendContent(s.Client(), method, path, bearer, nil, strings.NewReader(body))
			Expect(response.StatusCode).To(Equal(code), string(answer))
			Expect(string(answer)).To(ContainSubstring(message))
			Expect(w.reports()).To(BeEmpty())
		},
		Entry("without a token", http.MethodPost, configPath, "", "files\nno", http.StatusUnauthorized, "bearer token"),
		Entry("with another token", http.MethodPost, configPath, "another", "files\nno", http.StatusUnauthorized, "not that of this machine"),
		Entry("if it is too large", http.MethodPost, configPath, token, "files\n"+strings.Repeat("x", 5000), http.StatusRequestEntityTooLarge, "4096 bytes"),
		Entry("without a stage", http.MethodPost, configPath, token, "It failed.\n", http.StatusBadRequest, "the first line must be the stage"),
		Entry("if it is empty", http.MethodPost, configPath, token, "", http.StatusBadRequest, "the first line must be the stage"),
		Entry("with another method", http.MethodPut, configPath, token, "files\nno", http.StatusMethodNotAllowed, `use one of GET, HEAD, POST"`),
		Entry("by a host that enrolls, whose token others have too", http.MethodPost, "/config/infra/default/edge?name=edge-7", token, "files\nno",
			http.StatusMethodNotAllowed, `use one of GET, HEAD"`),
	)

	It("is refused after its token was revoked", func() {
		w.inState("machine-0", bootstrapv1.TokenStateRevoked)
		response, _ := s.post(configPath, token, "files\nno")
		Expect(response.StatusCode).To(Equal(http.StatusUnauthorized))
		Expect(w.reports()).To(BeEmpty())
	})

	It("can report again if the API server is down", func() {
		w.failWrites()
		response, _ := s.post(configPath, token, "files\nno")
		Expect(response.StatusCode).To(Equal(http.StatusServiceUnavailable))
		w.set(func() { w.writeErr = nil })
		response, _ = s.post(configPath, token, "files\nno")
		Expect(response.StatusCode).To(Equal(http.StatusNoContent))
	})
})

// post sends a report.
func (s *site) post(path, bearer, body string) (reply, []byte) {
	GinkgoHelper()
	return s.sendContent(s.Client(), http.MethodPost, path, bearer, nil, strings.NewReader(body))
}
