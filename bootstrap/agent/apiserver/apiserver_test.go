package apiserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/kubelet"
)

var _ agent.Cluster = (*Client)(nil)

func TestAPIServer(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(10 * time.Second)
	RunSpecs(t, "The agent's client of the API server")
}

func nodeJSON(version, ready, desired string) string {
	return fmt.Sprintf(`{"kind":"Node","metadata":{"name":"edge-7","resourceVersion":%q,"annotations":{"poolboot.io/desired-revision":%q,"other":"x"}},`+
		`"status":{"images":[{"names":["big"]}],"conditions":[{"type":"Ready","status":%q,"message":"m","lastHeartbeatTime":"2026-01-02T03:04:05Z"}]}}`, version, desired, ready)
}

// fakeServer answers requests in the order of its answers.
type fakeServer struct {
	mu       sync.Mutex
	requests []string
	bodies   []string
	answers  []func(http.ResponseWriter, *http.Request)
	conns    map[string]bool
}

func (f *fakeServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	f.mu.Lock()
	f.requests = append(f.requests, r.Method+" "+r.URL.Path+"?"+r.URL.Query().Get("resourceVersion")+" "+r.Header.Get("Content-Type"))
	f.bodies = append(f.bodies, string(body))
	f.conns[r.RemoteAddr] = true
	var answer func(http.ResponseWriter, *http.Request)
	if len(f.answers) > 0 {
		answer, f.answers = f.answers[0], f.answers[1:]
	}
	f.mu.Unlock()
	if answer == nil {
		<-r.Context().Done()
		return
	}
	answer(w, r)
}

func (f *fakeServer) seen() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.requests...)
}

func send(code int, body string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

// stream sends events, and then keeps the watch open for a time.
func stream(open time.Duration, events ...string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		for _, event := range events {
			_, _ = io.WriteString(w, event+"\n")
			w.(http.Flusher).Flush()
		}
		select {
		case <-time.After(open):
		case <-r.Context().Done():
		}
	}
}

func event(kind, object string) string { return fmt.Sprintf(`{"type":%q,"object":%s}`, kind, object) }

func begin(answers ...func(http.ResponseWriter, *http.Request)) (*fakeServer, *Client) {
	GinkgoHelper()
	fake := &fakeServer{answers: answers, conns: map[string]bool{}}
	server := httptest.NewTLSServer(fake)
	DeferCleanup(server.CloseClientConnections)
	DeferCleanup(server.Close)
	address, err := url.Parse(server.URL)
	Expect(err).NotTo(HaveOccurred())
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	return fake, New(kubelet.APIServer{URL: address, CAs: pool}, "edge-7", func() (*tls.Certificate, error) { return &tls.Certificate{}, nil })
}

// watch collects what the agent sees.
func watch(client *Client) <-chan agent.Node {
	seen := make(chan agent.Node, 100)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		client.Watch(ctx, func(n agent.Node) { seen <- n }, func(context.Context, int) {})
	}()
	DeferCleanup(func() {
		cancel()
		<-done
	})
	return seen
}

var _ = Describe("The watch of the Node", func() {
	It("reads exactly the Node of the host, and follows its changes", func() {
		fake, client := begin(send(200, nodeJSON("1", "True", "a")),
			stream(time.Minute, event("MODIFIED", nodeJSON("2", "False", "a")), event("BOOKMARK", `{"kind":"Node","metadata":{"resourceVersion":"3"}}`), event("MODIFIED", nodeJSON("4", "True", "b"))))
		seen := watch(client)
		want := agent.Node{Known: true, Ready: true, ReadyMessage: "m", Heartbeat: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
			Annotations: map[string]string{"poolboot.io/desired-revision": "a"}}
		Eventually(seen).Should(Receive(Equal(want)))
		want.Ready = false
		Eventually(seen).Should(Receive(Equal(want)))
		want.Ready, want.Annotations = true, map[string]string{"poolboot.io/desired-revision": "b"}
		Eventually(seen).Should(Receive(Equal(want)))
		Expect(fake.seen()).To(Equal([]string{"GET /api/v1/nodes/edge-7? ", "GET /api/v1/nodes?1 "}))
	})

	It("goes on where it was when the API server ends it, without saying that the Node is not known", func() {
		fake, client := begin(send(200, nodeJSON("1", "True", "a")), stream(shortestWatch+100*time.Millisecond, event("BOOKMARK", `{"metadata":{"resourceVersion":"7"}}`)))
		seen := watch(client)
		Eventually(seen).Should(Receive())
		Eventually(fake.seen, "5s").Should(HaveLen(3))
		Expect(fake.seen()[2]).To(Equal("GET /api/v1/nodes?7 "))
		Expect(seen).NotTo(Receive())
	})

	It("begins again if the version is too old", func() {
		fake, client := begin(send(200, nodeJSON("1", "True", "a")), stream(0, event("ERROR", `{"kind":"Status","code":410,"message":"too old"}`)),
			send(200, nodeJSON("9", "True", "b")))
		seen := watch(client)
		Eventually(seen).Should(Receive())
		Eventually(seen).Should(Receive(HaveField("Annotations", HaveKeyWithValue("poolboot.io/desired-revision", "b"))))
		Eventually(fake.seen).Should(HaveLen(4))
		Expect(fake.seen()[3]).To(Equal("GET /api/v1/nodes?9 "))
	})

	DescribeTable("says why the Node is not known, keeps what was seen last, and tries again", func(answer func(http.ResponseWriter, *http.Request), problem string) {
		_, client := begin(send(200, nodeJSON("1", "True", "a")), answer, send(200, nodeJSON("2", "True", "b")))
		seen := watch(client)
		Eventually(seen).Should(Receive(HaveField("Known", true)))
		var unknown agent.Node
		Eventually(seen).Should(Receive(&unknown))
		Expect(unknown.Known).To(BeFalse())
		Expect(unknown.Problem).To(ContainSubstring(problem))
		Expect(unknown.Annotations).To(HaveKeyWithValue("poolboot.io/desired-revision", "a"))
		Eventually(seen).Should(Receive(HaveField("Known", true)))
	},
		Entry("after a refusal", send(403, `{"kind":"Status","message":"nodes is forbidden"}`), "403 Forbidden: nodes is forbidden"),
		Entry("after the Node was deleted", stream(0, event("DELETED", nodeJSON("2", "True", "a"))), "does not exist"),
		Entry("after something that is no event", stream(0, `{"type":"MODIFIED","object":"x"}`), "something else"),
		Entry("after half an event", stream(0, `{"type":"MODIF`), "ended"),
		Entry("after an event without an end", func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"type":"`)
			for range maxObject/1024 + 1 {
				_, _ = io.WriteString(w, strings.Repeat("x", 1024))
			}
		}, "ended"),
		Entry("after a watch that ends at once", stream(0), "at once"),
		Entry("after an error of the watch", stream(0, event("ERROR", `{"kind":"Status","code":500,"message":"etcd"}`)), "etcd"),
	)

	It("says that the Node does not exist", func() {
		_, client := begin(send(404, `{"kind":"Status","message":"not found"}`))
		Eventually(watch(client)).Should(Receive(And(HaveField("Known", false), HaveField("Problem", ContainSubstring("does not exist")))))
	})

	It("sends a request again with the new certificate if the API server does not accept the old one", func() {
		fake, client := begin(send(401, `{}`), send(200, nodeJSON("1", "True", "a")))
		Eventually(watch(client)).Should(Receive(HaveField("Known", true)))
		fake.mu.Lock()
		defer fake.mu.Unlock()
		Expect(len(fake.conns)).To(BeNumerically(">=", 2), "the certificate is sent when a connection begins")
	})
})

var _ = Describe("A report", func() {
	It("changes only its annotations", func() {
		fake, client := begin(send(200, "{}"))
		Expect(client.Annotate(context.Background(), map[string]*string{"a": ptr.To("b"), "c": nil})).To(Succeed())
		Expect(fake.seen()).To(Equal([]string{"PATCH /api/v1/nodes/edge-7? application/merge-patch+json"}))
		Expect(fake.bodies[0]).To(MatchJSON(`{"metadata":{"annotations":{"a":"b","c":null}}}`))
	})

	It("of an update that begins is refused if the host is told to have another revision", func() {
		fake, client := begin(send(200, "{}"), send(422, `{"message":"testing value failed"}`))
		Expect(client.Accept(context.Background(), "r", map[string]*string{"a/b": ptr.To("x"), "c": nil})).To(Succeed())
		Expect(fake.seen()).To(Equal([]string{"PATCH /api/v1/nodes/edge-7? application/json-patch+json"}))
		Expect(fake.bodies[0]).To(MatchJSON(`[{"op":"test","path":"/metadata/annotations/poolboot.io~1desired-revision","value":"r"},
			{"op":"add","path":"/metadata/annotations/a~1b","value":"x"},{"op":"remove","path":"/metadata/annotations/c"}]`))
		Expect(client.Accept(context.Background(), "r", nil)).To(MatchError(ContainSubstring("422 Unprocessable Entity: testing value failed")))
	})

	It("that is refused says why, once", func() {
		fake, client := begin(send(401, `{"message":"Unauthorized"}`), send(401, `{"message":"Unauthorized"}`))
		Expect(client.Annotate(context.Background(), nil)).To(MatchError(ContainSubstring("401 Unauthorized: Unauthorized")))
		Expect(fake.seen()).To(HaveLen(2))
	})
})

var _ = Describe("The lease", func() {
	It("is that of the Node", func() {
		fake, client := begin(send(200, `{"kind":"Lease","spec":{"renewTime":"2026-01-02T03:04:05.123456Z"}}`))
		Expect(client.Renewed(context.Background())).To(BeTemporally("==", time.Date(2026, 1, 2, 3, 4, 5, 123456000, time.UTC)))
		Expect(fake.seen()).To(Equal([]string{"GET /apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/edge-7? "}))
	})
})

func FuzzReadEvents(f *testing.F) {
	f.Add(event("MODIFIED", nodeJSON("2", "True", "a")) + event("BOOKMARK", `{"metadata":{"resourceVersion":"3"}}`))
	f.Add(event("ERROR", `{"code":410}`))
	f.Fuzz(func(t *testing.T, body string) {
		version, err := readEvents(strings.NewReader(body), "1", func(n agent.Node) {
			if !n.Known || n.Problem != "" {
				t.Errorf("%q is read as %v", body, n)
			}
		})
		if err != nil && version != "" {
			t.Errorf("%q: the next watch would begin at %q, and changes before it would be lost", body, version)
		}
	})
}
