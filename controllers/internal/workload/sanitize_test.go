package workload_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/kubeconfig"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// tenantServer is a cluster cache with a connection to a server whose responses a tenant controls.
type tenantServer struct {
	clustercache.ClusterCache
	config *rest.Config
	cached client.Client
}

func (t *tenantServer) GetRESTConfig(context.Context, client.ObjectKey) (*rest.Config, error) {
	if t.config == nil {
		return nil, clustercache.ErrClusterNotConnected
	}
	return t.config, nil
}

func (t *tenantServer) GetClient(context.Context, client.ObjectKey) (client.Client, error) {
	return t.cached, nil
}

var _ = Describe("A client for an API server that a tenant chose", func() {
	var (
		handler  http.HandlerFunc
		server   *httptest.Server
		tenant   *tenantServer
		clusters clustercache.ClusterCache
	)
	connectionTo := func(s *httptest.Server) *rest.Config {
		ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
		return (&kubeconfig.Config{Server: s.URL, CA: ca, Token: "token"}).REST()
	}
	BeforeEach(func() {
		server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { handler(w, r) }))
		DeferCleanup(server.Close)
		mapper := meta.NewDefaultRESTMapper(nil)
		mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
		mapper.Add(corev1.SchemeGroupVersion.WithKind("Secret"), meta.RESTScopeNamespace)
		tenant = &tenantServer{config: connectionTo(server), cached: fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithRESTMapper(mapper).
			WithObjects(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "cached"}}).Build()}
		clusters = workload.Restrict(tenant, fake.NewClientBuilder().Build())
	})
	live := func(ctx context.Context) client.Client {
		GinkgoHelper()
		w, err := workload.LiveClient(ctx, clusters, edge)
		Expect(err).NotTo(HaveOccurred())
		return w
	}
	// calls makes one call of each kind that controllers use, and returns the errors.
	calls := func(ctx context.Context, w client.Client) map[string]error {
		node, secret := &corev1.Node{}, &corev1.Secret{}
		node.Name, secret.Namespace, secret.Name = "edge-1", "kube-system", "bootstrap-token-abcdef"
		return map[string]error{
			"get":    w.Get(ctx, client.ObjectKeyFromObject(secret), &corev1.Secret{}),
			"list":   w.List(ctx, &corev1.SecretList{}),
			"create": w.Create(ctx, node.DeepCopy()),
			"patch":  w.Patch(ctx, node.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte("{}"))),
			"delete": w.Delete(ctx, node.DeepCopy()),
			"status": w.Status().Patch(ctx, node.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte("{}"))),
			"sub":    w.SubResource("approval").Update(ctx, node.DeepCopy()),
		}
	}
	const sanitized = "no API server answers to the kubeconfig in Secret metal/edge-kubeconfig: check its server, its certificate authority and its user; " +
		"the manager's log has the cause"

	It("writes as the field manager of Poolboot, by which explain knows it", func(ctx SpecContext) {
		handler = func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet && r.Method != http.MethodDelete {
				Expect(r.URL.Query().Get("fieldManager")).To(Equal(join.FieldManager), r.URL.Path)
			}
			http.Error(w, "", http.StatusNotFound)
		}
		calls(ctx, live(ctx))
	})

	It("follows no redirect", func(ctx SpecContext) {
		var requests atomic.Int32
		other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			requests.Add(1)
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprint(w, `{"AccessKeyId":"hunter2"}`)
		}))
		DeferCleanup(other.Close)
		for _, code := range []int{http.StatusFound, http.StatusTemporaryRedirect} {
			handler = http.RedirectHandler(other.URL, code).ServeHTTP
			for call, err := range calls(ctx, live(ctx)) {
				Expect(err).To(MatchError(sanitized), call)
				Expect(err).To(Satisfy(workload.IsUnreachable), call)
			}
		}
		Expect(requests.Load()).To(BeZero())
	})

	DescribeTable("returns the same error for every response that is not from an API server",
		func(ctx SpecContext, response http.HandlerFunc) {
			if handler = response; response == nil {
				server.Close()
			}
			for call, err := range calls(ctx, live(ctx)) {
				if call == "delete" && err == nil { // the client does not read the body of a 200
					continue
				}
				Expect(err).To(MatchError(sanitized), call)
				Expect(err).To(Satisfy(workload.IsUnreachable), call)
				Expect(apierrors.IsNotFound(err)).To(BeFalse(), "no controller decides by it")
			}
		},
		Entry("404 with text", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "hunter2", http.StatusNotFound) })),
		Entry("403 with JSON", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusForbidden)
			_, _ = fmt.Fprint(w, `{"password":"hunter2"}`)
		})),
		Entry("200 with text", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "hunter2") })),
		Entry("200 with another object", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = fmt.Fprint(w, `["hunter2"]`)
		})),
		Entry("no response", nil),
	)

	It("returns an error from an API server unchanged", func(ctx SpecContext) {
		handler = func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusForbidden)
			Expect(json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure,
				Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: "nodes is forbidden"})).To(Succeed())
		}
		for call, err := range calls(ctx, live(ctx)) {
			Expect(apierrors.IsForbidden(err)).To(BeTrue(), call)
			Expect(err).To(MatchError("nodes is forbidden"), call)
		}
		Expect(live(ctx).Create(ctx, &corev1.Pod{})).To(Satisfy(meta.IsNoMatchError), "the client sends no request")
	})

	It("reads cached kinds from the cluster cache, and is created once per connection", func(ctx SpecContext) {
		handler = func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "not cached", http.StatusTeapot) }
		w, err := workload.Client(ctx, clusters, edge)
		Expect(err).NotTo(HaveOccurred())
		Expect(w.Get(ctx, client.ObjectKey{Name: "cached"}, &corev1.Node{})).To(Succeed())
		Expect(w.Get(ctx, client.ObjectKey{Name: "other"}, &corev1.Node{})).To(Satisfy(apierrors.IsNotFound))
		Expect(w.Get(ctx, client.ObjectKey{Namespace: "a", Name: "b"}, &corev1.Secret{})).To(MatchError(sanitized))
		Expect(live(ctx).Get(ctx, client.ObjectKey{Name: "cached"}, &corev1.Node{})).To(MatchError(sanitized))

		again, err := workload.Client(ctx, clusters, edge)
		Expect(err).NotTo(HaveOccurred())
		Expect(again).To(BeIdenticalTo(w))
		tenant.config = connectionTo(server)
		again, err = workload.Client(ctx, clusters, edge)
		Expect(err).NotTo(HaveOccurred())
		Expect(again).NotTo(BeIdenticalTo(w))

		tenant.config = nil
		_, err = workload.Client(ctx, clusters, edge)
		Expect(err).To(MatchError(clustercache.ErrClusterNotConnected))
	})
})
