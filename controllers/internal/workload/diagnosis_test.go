package workload_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

var _ = Describe("The diagnosis of a missing connection to a workload cluster", func() {
	var (
		server   *httptest.Server
		requests atomic.Int32
		file     string
	)
	BeforeEach(func() {
		requests.Store(0)
		server = httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { requests.Add(1) }))
		DeferCleanup(server.Close)
		file = filepath.Join(GinkgoT().TempDir(), "file")
	})
	const remedy = "correct the kubeconfig in Secret metal/edge-kubeconfig"
	secretWith := func(kubeconfig []byte) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: edge.Namespace, Name: "edge-kubeconfig"}, Data: map[string][]byte{"value": kubeconfig}}
	}
	kubeconfigWith := func(change func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo)) *corev1.Secret {
		GinkgoHelper()
		config := clientcmdapi.NewConfig()
		cluster, user := &clientcmdapi.Cluster{Server: server.URL}, &clientcmdapi.AuthInfo{}
		change(cluster, user)
		config.Clusters["edge"], config.AuthInfos["edge"] = cluster, user
		config.Contexts["edge"] = &clientcmdapi.Context{Cluster: "edge", AuthInfo: "edge"}
		config.CurrentContext = "edge"
		content, err := clientcmd.Write(*config)
		Expect(err).NotTo(HaveOccurred())
		return secretWith(content)
	}
	// errorFor returns the error that callers get while there is no connection.
	errorFor := func(ctx context.Context, objects ...client.Object) error {
		GinkgoHelper()
		clusters := workload.Restrict(clustercache.NewFakeEmptyClusterCache(), fake.NewClientBuilder().WithObjects(objects...).Build())
		_, err := workload.Client(ctx, clusters, edge)
		Expect(err).To(And(MatchError(clustercache.ErrClusterNotConnected), Satisfy(workload.IsUnreachable)))
		_, liveErr := workload.LiveClient(ctx, clusters, edge)
		Expect(liveErr).To(MatchError(err.Error()))
		return err
	}

	It("runs no credential plugin", func(ctx SpecContext) {
		err := errorFor(ctx, kubeconfigWith(func(_ *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) {
			user.Exec = &clientcmdapi.ExecConfig{Command: "touch", Args: []string{file}, APIVersion: "client.authentication.k8s.io/v1",
				InteractiveMode: clientcmdapi.NeverExecInteractiveMode}
		}))
		Expect(err).To(MatchError(And(ContainSubstring("users[0].user.exec"), HaveSuffix(remedy))))
		Expect(file).NotTo(BeAnExistingFile())
		Expect(requests.Load()).To(BeZero())
	})

	It("reads no file that the kubeconfig names", func(ctx SpecContext) {
		Expect(os.WriteFile(file, []byte("the manager's own token"), 0o600)).To(Succeed())
		err := errorFor(ctx, kubeconfigWith(func(_ *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) { user.TokenFile = file }))
		Expect(err).To(MatchError(And(ContainSubstring("users[0].user.tokenFile"), HaveSuffix(remedy))))
		Expect(workload.UnreachableReason(err)).To(Equal(bootstrapv1.KubeconfigInvalidReason))
		Expect(requests.Load()).To(BeZero())
	})

	DescribeTable("returns the same error for every address",
		func(ctx SpecContext, address func() string) {
			server := address()
			err := errorFor(ctx, kubeconfigWith(func(cluster *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
				cluster.Server = server
			}))
			Expect(workload.UnreachableReason(err)).To(Equal(bootstrapv1.WorkloadClusterUnreachableReason))
			Expect(err).To(MatchError("cluster metal/edge: no API server answers to the kubeconfig in Secret metal/edge-kubeconfig: check its server, its certificate authority and " +
				"its user; the manager's log has the cause"))
		},
		Entry("a server that is not an API server", func() string { return server.URL }),
		Entry("no server", func() string {
			server.Close()
			return server.URL
		}),
		Entry("an unknown host name", func() string { return "https://edge.invalid:6443" }),
	)

	It("reads the Secret once for many calls", func(ctx SpecContext) {
		reads := 0
		clusters := workload.Restrict(clustercache.NewFakeEmptyClusterCache(), interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
				reads++
				return c.Get(ctx, key, object, options...)
			},
		}))
		for range 3 {
			_, err := workload.JoinCluster(ctx, clusters, &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: edge.Namespace, Name: edge.Name},
				Spec: clusterv1.ClusterSpec{ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: "10.0.0.1", Port: 6443}}})
			Expect(err).To(MatchError(ContainSubstring("does not exist: create it")))
		}
		Expect(reads).To(Equal(1))
	})

	DescribeTable("names the Secret and the remedy for",
		func(ctx SpecContext, problem, remedy string, objects ...client.Object) {
			Expect(errorFor(ctx, objects...)).To(MatchError(And(ContainSubstring(problem), Not(ContainSubstring("hunter2")), HaveSuffix(remedy))))
		},
		Entry("a Secret that does not exist", "Secret metal/edge-kubeconfig", "does not exist: create it"),
		Entry("a Secret without a kubeconfig", "not a kubeconfig", remedy, secretWith([]byte("hunter2"))),
	)
})
