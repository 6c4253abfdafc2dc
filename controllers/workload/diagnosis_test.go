package workload_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/workload"
)

var _ = Describe("A diagnosis of a workload cluster without connection", func() {
	edge := client.ObjectKey{Namespace: "metal", Name: "edge"}
	secretWith := func(kubeconfig []byte) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: edge.Namespace, Name: "edge-kubeconfig"}, Data: map[string][]byte{"value": kubeconfig}}
	}
	leadingTo := func(server string) *corev1.Secret {
		config := clientcmdapi.NewConfig()
		config.Clusters["edge"] = &clientcmdapi.Cluster{Server: server}
		config.Contexts["edge"] = &clientcmdapi.Context{Cluster: "edge"}
		config.CurrentContext = "edge"
		content, err := clientcmd.Write(*config)
		Expect(err).NotTo(HaveOccurred())
		return secretWith(content)
	}
	diagnosis := func(objects ...client.Object) *workload.Diagnosis {
		return &workload.Diagnosis{Secrets: fake.NewClientBuilder().WithObjects(objects...).Build()}
	}

	It("looks once, however many ask, and finds nothing wrong where nothing is", func(ctx SpecContext) {
		var looks atomic.Int32
		server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { looks.Add(1) }))
		DeferCleanup(server.Close)
		d := diagnosis(leadingTo(server.URL))
		for range 3 {
			Expect(d.Why(ctx, edge)).To(Succeed())
		}
		Expect(looks.Load()).To(BeEquivalentTo(1))
	})

	It("says the same each time of a server that takes no connection", func(ctx SpecContext) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		Expect(err).NotTo(HaveOccurred())
		Expect(listener.Close()).To(Succeed())
		server := "http://" + listener.Addr().String()
		for range 2 {
			Expect(diagnosis(leadingTo(server)).Why(ctx, edge)).To(MatchError(
				server + ": dial: connect: connection refused: see to the API server there, or correct the kubeconfig in Secret metal/edge-kubeconfig"))
		}
	})

	DescribeTable("names the Secret",
		func(ctx SpecContext, wrong string, objects ...client.Object) {
			Expect(diagnosis(objects...).Why(ctx, edge)).To(MatchError(And(ContainSubstring(wrong), Not(ContainSubstring("hunter2")), HaveSuffix("correct the kubeconfig in Secret metal/edge-kubeconfig"))))
		},
		Entry("that is not there", "not found"),
		Entry("that holds no kubeconfig", "cannot unmarshal", secretWith([]byte("hunter2"))),
		Entry("that names a server that is none", "edge", leadingTo("https://edge edge:1")),
	)
})
