package configserver

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
)

var _ agent.Source = (*Client)(nil)

func TestConfigServer(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "The agent's client of the config server")
}

func newCertificate(commonName string) *tls.Certificate {
	GinkgoHelper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	Expect(err).NotTo(HaveOccurred())
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: commonName}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	Expect(err).NotTo(HaveOccurred())
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}
}

// begin starts a config server that answers with a function, and returns the client of a host.
func begin(answer http.HandlerFunc, certificate func() (*tls.Certificate, error)) *Client {
	GinkgoHelper()
	server := httptest.NewUnstartedServer(answer)
	server.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	server.StartTLS()
	DeferCleanup(server.Close)
	client, err := New(assignment.Settings{
		Server: server.URL, CA: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})),
		Namespace: "edge", Name: "edge-7", PointerID: "1-2",
	}, certificate)
	Expect(err).NotTo(HaveOccurred())
	return client
}

func packed(plain []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(plain)
	_ = w.Close()
	return b.Bytes()
}

func noCertificate() (*tls.Certificate, error) { return &tls.Certificate{}, nil }

var _ = Describe("A request", func() {
	It("sends the current certificate of the kubelet each time", func() {
		var names []string
		current := newCertificate("system:node:edge-7")
		client := begin(func(_ http.ResponseWriter, r *http.Request) {
			names = append(names, r.Method+" "+r.URL.Path+" "+r.TLS.PeerCertificates[0].Subject.CommonName)
		}, func() (*tls.Certificate, error) { return current, nil })
		_, err := client.Assignment(context.Background())
		Expect(err).NotTo(HaveOccurred())
		current = newCertificate("system:node:renewed")
		Expect(client.Register(context.Background())).To(Succeed())
		Expect(names).To(Equal([]string{"GET /update/edge/edge-7/1-2 system:node:edge-7", "POST /update/edge/edge-7/1-2 system:node:renewed"}))
	})

	It("does not trust another server", func() {
		client := begin(func(http.ResponseWriter, *http.Request) {}, noCertificate)
		settings := client.settings
		settings.CA = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: newCertificate("another").Certificate[0]}))
		client, err := New(settings, noCertificate)
		Expect(err).NotTo(HaveOccurred())
		_, err = client.Assignment(context.Background())
		Expect(err).To(MatchError(ContainSubstring("unknown authority")))
	})

	It("does not follow a redirect to another server", func() {
		followed := false
		other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { followed = true }))
		DeferCleanup(other.Close)
		client := begin(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.URL, http.StatusFound) }, noCertificate)
		_, err := client.Assignment(context.Background())
		Expect(err).To(MatchError(ContainSubstring("302")))
		Expect(followed).To(BeFalse())
	})

	It("that is refused says what the server says, in a printable form, without the URL", func() {
		client := begin(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusForbidden)
			_, _ = io.WriteString(w, "the certificate is not that of this host\x1b[31m"+strings.Repeat("x", 10000))
		}, noCertificate)
		_, err := client.Rendered(context.Background(), "rendered-a")
		var status *StatusError
		Expect(errors.As(err, &status)).To(BeTrue())
		Expect(status.Code).To(Equal(http.StatusForbidden))
		Expect(err).To(MatchError(agent.ErrRefused))
		Expect(err).To(MatchError(ContainSubstring("the certificate is not that of this host [31m")))
		Expect(len(err.Error())).To(BeNumerically("<", 1000))
		Expect(err.Error()).NotTo(ContainSubstring("pointer"))
	})

	It("without a server says so, without the URL", func() {
		client := begin(func(http.ResponseWriter, *http.Request) {}, noCertificate)
		client.settings.Server = "https://127.0.0.1:1"
		_, err := client.Rendered(context.Background(), "rendered-a")
		Expect(err).To(MatchError(ContainSubstring("connection refused")))
		Expect(err.Error()).NotTo(ContainSubstring("pointer"))
	})

	It("ends with its context while the server is silent", func() {
		client := begin(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, noCertificate)
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		_, err := client.Assignment(ctx)
		Expect(err).To(MatchError(context.DeadlineExceeded))
	})
})

var _ = Describe("An answer", func() {
	It("that never ends is given up", func() {
		client := begin(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = io.WriteString(w, " ")
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}, noCertificate)
		Expect(client.server.Timeout).To(BeNumerically("<=", 4*time.Minute))
		client.server.Timeout = 200 * time.Millisecond
		_, err := client.Assignment(context.Background())
		Expect(err).To(HaveOccurred())
	})

	It("is decompressed", func() {
		client := begin(func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write(packed([]byte(r.URL.Path + "?" + r.URL.RawQuery)))
		}, noCertificate)
		Expect(client.Rendered(context.Background(), "rendered-a")).To(Equal([]byte("/rendered/edge/rendered-a?config=edge-7&pointer=1-2")))
		Expect(client.Program(context.Background(), "abc")).To(Equal([]byte("/agent/abc?")))
	})

	DescribeTable("is refused", func(body func() []byte) {
		client := begin(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body()) }, noCertificate)
		_, err := client.Rendered(context.Background(), "rendered-a")
		Expect(err).To(HaveOccurred())
	},
		Entry("if it is not compressed", func() []byte { return []byte("{}") }),
		Entry("if it is truncated", func() []byte { return packed([]byte("abcdef"))[:20] }),
		Entry("if it is too large", func() []byte { return packed(make([]byte, maxRendered+1)) }),
	)

	It("with an assignment that is too large is refused", func() {
		client := begin(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, assignment.MaxSize+1)) }, noCertificate)
		_, err := client.Assignment(context.Background())
		Expect(err).To(MatchError(ContainSubstring("more than")))
	})
})

var _ = Describe("Contents at a URL", func() {
	It("are downloaded with their headers, without a certificate, and decompressed", func() {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write(packed([]byte(r.Header.Get("X-Key"))))
		}))
		DeferCleanup(server.Close)
		client := begin(nil, func() (*tls.Certificate, error) { panic("the certificate is only for the config server") })
		Expect(client.Contents(context.Background(), types.Resource{
			Source: &server.URL, Compression: ptr.To("gzip"), HTTPHeaders: types.HTTPHeaders{{Name: "X-Key", Value: ptr.To("v")}},
		})).To(Equal([]byte("v")))
	})

	It("that another server refuses are not a matter of the kubelet's certificate", func() {
		elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
		DeferCleanup(elsewhere.Close)
		client := begin(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }, noCertificate)
		_, err := client.Contents(context.Background(), types.Resource{Source: new(elsewhere.URL)})
		Expect(err).To(And(MatchError(ContainSubstring("401")), Not(MatchError(agent.ErrNotAccepted))))
		_, err = client.Assignment(context.Background())
		Expect(err).To(MatchError(agent.ErrNotAccepted))
	})

	It("that another server refuses are an error without what that server says, which can have the password of the request", func() {
		elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.Error(w, "no such user: "+r.Header.Get("Authorization"), http.StatusForbidden)
		}))
		DeferCleanup(elsewhere.Close)
		client := begin(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }, noCertificate)
		_, err := client.Contents(context.Background(), types.Resource{Source: new(elsewhere.URL), HTTPHeaders: types.HTTPHeaders{{Name: "Authorization", Value: new("CANARY")}}})
		Expect(err).To(MatchError("the server of the contents answers 403 Forbidden"))
	})

	It("come no faster than the limit, and without one as fast as they can", func() {
		const size = 256 << 10
		elsewhere := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, size)) }))
		DeferCleanup(elsewhere.Close)
		client := begin(nil, noCertificate)
		download := func(limit int64) time.Duration {
			client.Limit(limit)
			began := time.Now()
			Expect(client.Contents(context.Background(), types.Resource{Source: new(elsewhere.URL)})).To(HaveLen(size))
			return time.Since(began)
		}
		download(0)
		Expect(client.elsewhere.Timeout).To(Equal(requestTimeout))
		Expect(download(128 << 10)).To(BeNumerically(">=", time.Second))
		Expect(client.elsewhere.Timeout).To(BeNumerically(">", requestTimeout+maxContents/(128<<10)*time.Second-time.Second), "the largest file can be downloaded")
	})

	It("at other places are refused", func() {
		client := begin(nil, noCertificate)
		for _, source := range []string{"s3://bucket/key", "tftp://host/f", "file:///etc/shadow", ""} {
			_, err := client.Contents(context.Background(), types.Resource{Source: &source})
			Expect(err).To(MatchError(ContainSubstring("use http, https or data")))
		}
	})
})
