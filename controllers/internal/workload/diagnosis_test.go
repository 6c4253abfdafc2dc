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

var _ = Describe("A diagnosis of a workload cluster without connection, by a tenant's kubeconfig", func() {
	var (
		server *httptest.Server
		asked  atomic.Int32
		file   string
	)
	BeforeEach(func() {
		asked.Store(0)
		server = httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
		DeferCleanup(server.Close)
		file = filepath.Join(GinkgoT().TempDir(), "file")
	})
	const secretsCure = "correct the kubeconfig in Secret metal/edge-kubeconfig"
	secretWith := func(kubeconfig []byte) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: edge.Namespace, Name: "edge-kubeconfig"}, Data: map[string][]byte{"value": kubeconfig}}
	}
	written := func(change func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo)) *corev1.Secret {
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
	// why is what callers without a connection are told.
	why := func(ctx context.Context, objects ...client.Object) error {
		GinkgoHelper()
		clusters := workload.Confine(clustercache.NewFakeEmptyClusterCache(), fake.NewClientBuilder().WithObjects(objects...).Build())
		_, err := workload.Client(ctx, clusters, edge)
		Expect(err).To(And(MatchError(clustercache.ErrClusterNotConnected), Satisfy(workload.IsUnreachable)))
		_, liveErr := workload.LiveClient(ctx, clusters, edge)
		Expect(liveErr).To(MatchError(err.Error()))
		return err
	}

	It("runs no program", func(ctx SpecContext) {
		err := why(ctx, written(func(_ *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) {
			user.Exec = &clientcmdapi.ExecConfig{Command: "touch", Args: []string{file}, APIVersion: "client.authentication.k8s.io/v1",
				InteractiveMode: clientcmdapi.NeverExecInteractiveMode}
		}))
		Expect(err).To(MatchError(And(ContainSubstring("users[0].user.exec"), HaveSuffix(secretsCure))))
		Expect(file).NotTo(BeAnExistingFile())
		Expect(asked.Load()).To(BeZero())
	})

	It("sends no file of the manager's anywhere", func(ctx SpecContext) {
		Expect(os.WriteFile(file, []byte("the manager's own token"), 0o600)).To(Succeed())
		err := why(ctx, written(func(_ *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) { user.TokenFile = file }))
		Expect(err).To(MatchError(And(ContainSubstring("users[0].user.tokenFile"), HaveSuffix(secretsCure))))
		Expect(workload.UnreachableReason(err)).To(Equal(bootstrapv1.KubeconfigInvalidReason))
		Expect(asked.Load()).To(BeZero())
	})

	DescribeTable("says the same of every address, whatever answers there",
		func(ctx SpecContext, address func() string) {
			where := address()
			err := why(ctx, written(func(cluster *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
				cluster.Server = where
			}))
			Expect(workload.UnreachableReason(err)).To(Equal(bootstrapv1.WorkloadClusterUnreachableReason))
			Expect(err).To(MatchError("cluster metal/edge: no API server answers to the kubeconfig in Secret metal/edge-kubeconfig: check its server, its certificate authority and " +
				"its user; the manager's log has the cause"))
		},
		Entry("a server that is none", func() string { return server.URL }),
		Entry("nobody", func() string {
			server.Close()
			return server.URL
		}),
		Entry("a name that does not exist", func() string { return "https://edge.invalid:6443" }),
	)

	It("reads the Secret once, however many ask", func(ctx SpecContext) {
		reads := 0
		clusters := workload.Confine(clustercache.NewFakeEmptyClusterCache(), interceptor.NewClient(fake.NewClientBuilder().Build(), interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
				reads++
				return c.Get(ctx, key, object, options...)
			},
		}))
		for range 3 {
			_, err := workload.Facts(ctx, clusters, &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: edge.Namespace, Name: edge.Name},
				Spec: clusterv1.ClusterSpec{ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: "10.0.0.1", Port: 6443}}})
			Expect(err).To(MatchError(ContainSubstring("not found")))
		}
		Expect(reads).To(Equal(1))
	})

	DescribeTable("names the Secret",
		func(ctx SpecContext, wrong string, objects ...client.Object) {
			Expect(why(ctx, objects...)).To(MatchError(And(ContainSubstring(wrong), Not(ContainSubstring("hunter2")), HaveSuffix(secretsCure))))
		},
		Entry("that does not exist", "not found"),
		Entry("that holds no kubeconfig", "not a kubeconfig", secretWith([]byte("hunter2"))),
	)
})
