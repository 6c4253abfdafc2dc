package server_test

import (
	"bytes"
	"compress/gzip"
	"crypto/sha512"
	"encoding/hex"
	"encoding/json"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"time"

	ignitionconfig "github.com/coreos/ignition/v2/config/v3_5"
	"github.com/coreos/ignition/v2/config/v3_5/types"
	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/vincent-petithory/dataurl"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/server"
)

// site is a running config server and its log.
type site struct {
	*httptest.Server
	handler  *server.Server
	registry *prometheus.Registry
	rendered string // path from which machine-0 downloads the configuration of its pool

	mu  sync.Mutex
	out strings.Builder
}

// serve starts a config server for a world. It is stopped after the test.
func serve(w *world, wait time.Duration, changes ...func(*server.Options)) *site {
	GinkgoHelper()
	return serveWithin(w, wait, server.DefaultLimits, changes...)
}

// serveWithin is serve with limits on connections.
func serveWithin(w *world, wait time.Duration, limits server.Limits, changes ...func(*server.Options)) *site {
	GinkgoHelper()
	return serveOn(w, wait, limits, func(l net.Listener) net.Listener { return l }, changes...)
}

// serveOn is serveWithin with a change of the listener under the limits.
func serveOn(w *world, wait time.Duration, limits server.Limits, wrap func(net.Listener) net.Listener, changes ...func(*server.Options)) *site {
	GinkgoHelper()
	s := &site{rendered: renderedPath(w), Server: httptest.NewUnstartedServer(nil), registry: prometheus.NewRegistry()}
	metrics := server.NewMetrics(s.registry)
	external, err := url.Parse("https://" + s.Listener.Addr().String())
	Expect(err).NotTo(HaveOccurred())
	options := server.Options{
		ExternalURL: external,
		Sources:     server.Sources{Records: w, Enrollments: enrollmentsOf{w}, Overlays: overlaysOf{w}, Assignments: assignmentsOf{w}},
		Admissions:  enrollmentsOf{w},
		Rendered:    renderedOf{w},
		Boots:       w,
		Metrics:     metrics,
		Ready:       func() error { return nil },
		Wait:        wait,
		Log: funcr.New(func(prefix, args string) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.out.WriteString(prefix + " " + args + "\n")
		}, funcr.Options{Verbosity: 10}),
	}
	for _, change := range changes {
		change(&options)
	}
	s.handler = server.New(options)
	s.Config = server.NewHTTPServer(s.handler, log.New(GinkgoWriter, "", 0))
	s.TLS = server.TLSConfig(nil)
	s.Listener = server.NewListener(wrap(s.Listener), limits, metrics)
	s.StartTLS()
	DeferCleanup(s.stop)
	return s
}

func (s *site) stop() {
	s.Close()
	s.handler.WaitForWrites()
}

func (s *site) logged() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out.String()
}

// reply is an answer whose body was read.
type reply struct {
	StatusCode    int
	Header        http.Header
	ContentLength int64
}

// send sends a request as Ignition does: the client does not decompress the answer.
func (s *site) send(method, target, bearer string) (reply, []byte) {
	GinkgoHelper()
	return s.sendWith(method, target, bearer, nil)
}

// sendWith is send with additional headers.
func (s *site) sendWith(method, target, bearer string, header http.Header) (reply, []byte) {
	GinkgoHelper()
	return s.sendBy(s.Client(), method, target, bearer, header)
}

// sendBy is sendWith with another client.
func (s *site) sendBy(asker *http.Client, method, target, bearer string, header http.Header) (reply, []byte) {
	GinkgoHelper()
	return s.sendContent(asker, method, target, bearer, header, nil)
}

// sendContent is sendBy with a body.
func (s *site) sendContent(asker *http.Client, method, target, bearer string, header http.Header, content io.Reader) (reply, []byte) {
	GinkgoHelper()
	if !strings.HasPrefix(target, "https://") {
		target = s.URL + target
	}
	request, err := http.NewRequest(method, target, content)
	Expect(err).NotTo(HaveOccurred())
	maps.Copy(request.Header, header)
	request.Header.Set("Accept-Encoding", "identity")
	if bearer != "" {
		request.Header.Set("Authorization", "Bearer "+bearer)
	}
	response, err := asker.Do(request)
	Expect(err).NotTo(HaveOccurred())
	body, err := io.ReadAll(response.Body)
	Expect(err).NotTo(HaveOccurred())
	Expect(response.Body.Close()).To(Succeed())
	return reply{response.StatusCode, response.Header, response.ContentLength}, body
}

func (s *site) get(target, bearer string) (reply, []byte) {
	GinkgoHelper()
	return s.send(http.MethodGet, target, bearer)
}

// problem parses a refusal.
func problem(body []byte) (word, message string) {
	GinkgoHelper()
	var refusal struct{ Error, Message string }
	Expect(json.Unmarshal(body, &refusal)).To(Succeed(), string(body))
	return refusal.Error, refusal.Message
}

// parse parses a configuration with Ignition's own parser.
func parse(raw []byte) types.Config {
	GinkgoHelper()
	config, report, err := ignitionconfig.ParseCompatibleVersion(raw)
	Expect(err).NotTo(HaveOccurred(), report.String())
	return config
}

func unpack(packed []byte) []byte {
	GinkgoHelper()
	reader, err := gzip.NewReader(bytes.NewReader(packed))
	Expect(err).NotTo(HaveOccurred())
	plain, err := io.ReadAll(reader)
	Expect(err).NotTo(HaveOccurred())
	return plain
}

// parts returns the merge entry of the pool, and the overlay, from an answer to /config.
func parts(body []byte) (pool types.Resource, overlay []byte) {
	GinkgoHelper()
	merge := parse(body).Ignition.Config.Merge
	Expect(merge).To(HaveLen(2))
	Expect(merge[1].Compression).To(HaveValue(Equal("gzip")))
	data, err := dataurl.DecodeString(*merge[1].Source)
	Expect(err).NotTo(HaveOccurred())
	return merge[0], unpack(data.Data)
}

// follow fetches a merge entry and verifies it, as Ignition does.
func (s *site) follow(entry types.Resource) []byte {
	GinkgoHelper()
	Expect(entry.HTTPHeaders).To(HaveLen(1))
	Expect(entry.HTTPHeaders[0].Name).To(Equal("Authorization"))
	bearer := strings.TrimPrefix(*entry.HTTPHeaders[0].Value, "Bearer ")
	response, body := s.get(*entry.Source, bearer)
	Expect(response.StatusCode).To(Equal(http.StatusOK), string(body))
	Expect(entry.Compression).To(HaveValue(Equal("gzip")))
	plain := unpack(body)
	Expect(entry.Verification.Hash).To(HaveValue(Equal(hashFor(plain))))
	return plain
}

// hashFor returns the hash that Ignition verifies.
func hashFor(plain []byte) string {
	sum := sha512.Sum512(plain)
	return "sha512-" + hex.EncodeToString(sum[:])
}
