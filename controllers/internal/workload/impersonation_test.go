package workload_test

import (
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/kubeconfig"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

var _ = Describe("A reader with the rights of another user", func() {
	const limit = 1000
	var (
		requests []*http.Request
		size     int
		reader   client.Reader
	)
	BeforeEach(func(ctx SpecContext) {
		requests, size = nil, 0
		server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			requests = append(requests, r)
			w.Header().Set("Content-Type", "application/json")
			content := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"edge"},"data":{"a":"%s"}}`
			fmt.Fprintf(w, content, strings.Repeat("x", max(size-len(content)+len("%s"), 0)))
		}))
		DeferCleanup(server.Close)
		ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
		mapper := meta.NewDefaultRESTMapper(nil)
		mapper.Add(corev1.SchemeGroupVersion.WithKind("ConfigMap"), meta.RESTScopeNamespace)
		clusters := workload.Restrict(&tenantServer{config: (&kubeconfig.Config{Server: server.URL, CA: ca, Token: "token"}).REST(),
			cached: fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithRESTMapper(mapper).Build()}, fake.NewClientBuilder().Build())
		var err error
		reader, err = workload.ReaderAs(ctx, clusters, edge, "poolboot:reader", limit)
		Expect(err).NotTo(HaveOccurred())
	})
	read := func(ctx SpecContext) error {
		return reader.Get(ctx, client.ObjectKey{Namespace: "edge", Name: "a"}, &corev1.ConfigMap{})
	}

	It("impersonates this user, and no group", func(ctx SpecContext) {
		Expect(read(ctx)).To(Succeed())
		Expect(requests).To(HaveLen(1))
		Expect(requests[0].Header).To(HaveKeyWithValue("Impersonate-User", []string{"poolboot:reader"}))
		Expect(requests[0].Header).NotTo(HaveKey("Impersonate-Group"))
		Expect(requests[0].Header.Get("Authorization")).To(Equal("Bearer token"))
	})

	It("reads a response of the maximum size, and not a larger one", func(ctx SpecContext) {
		size = limit
		Expect(read(ctx)).To(Succeed())
		size = limit + 1
		err := read(ctx)
		_, isTooLarge := errors.AsType[*workload.TooLargeError](err)
		Expect(isTooLarge).To(BeTrue(), "%v", err)
		Expect(workload.IsUnreachable(err)).To(BeFalse())
		size = 50 << 20
		Expect(read(ctx)).NotTo(Succeed())
	})
})
