package workload_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/source"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

var edge = client.ObjectKey{Namespace: "metal", Name: "edge"}

// connected is a cluster cache whose connection has a REST config, and whose watches are started on informers.
type connected struct {
	clustercache.ClusterCache
	config    *rest.Config
	informers *informertest.FakeInformers
	names     []string
}

func (c *connected) GetRESTConfig(context.Context, client.ObjectKey) (*rest.Config, error) {
	return c.config, nil
}

func (c *connected) Watch(_ context.Context, _ client.ObjectKey, watcher clustercache.Watcher) error {
	c.names = append(c.names, watcher.Name())
	return watcher.Watch(c.informers)
}

// controller starts what it is to watch, into its queue.
type controller struct {
	ctx   context.Context
	queue priorityqueue.PriorityQueue[ctrl.Request]
}

func (c controller) Watch(src source.Source) error {
	if err := src.Start(c.ctx, c.queue); err != nil {
		return err
	}
	return src.(source.SyncingSource).WaitForSync(c.ctx)
}

var _ = Describe("A watch on a workload cluster", func() {
	var (
		ctx     context.Context
		cc      *connected
		c       controller
		watch   workload.Watch
		configs client.Client
	)
	BeforeEach(func() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(context.Background())
		DeferCleanup(cancel)
		scheme := runtime.NewScheme()
		Expect(clientgoscheme.AddToScheme(scheme)).To(Succeed())
		Expect(bootstrapv1.AddToScheme(scheme)).To(Succeed())
		config := func(cluster, name, node, credential string) *bootstrapv1.PoolbootConfig {
			return &bootstrapv1.PoolbootConfig{
				ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: cluster}},
				Status: bootstrapv1.PoolbootConfigStatus{
					NodeRef: bootstrapv1.NodeReference{Name: node, UID: "1"},
					Boot:    bootstrapv1.BootStatus{CredentialID: credential},
				},
			}
		}
		lost := config("edge", "node-4", "", "")
		lost.Status.NodeRef = bootstrapv1.NodeReference{}
		configs = fake.NewClientBuilder().WithScheme(scheme).WithObjects(
			lost,
			config("edge", "one", "node-1", "aaaaaa"),
			config("edge", "two", "node-2", "bbbbbb"),
			config("another", "three", "node-1", "aaaaaa"),
		).WithIndex(&bootstrapv1.PoolbootConfig{}, workload.HostUserIndex, workload.HostUsers).Build()
		cc = &connected{informers: &informertest.FakeInformers{Scheme: scheme}}
		c = controller{ctx: ctx, queue: priorityqueue.New[ctrl.Request]("test")}
		DeferCleanup(c.queue.ShutDown)
		watch = workload.Watch{Clusters: cc, Controller: c, Name: "node-nodes", Configs: configs}
	})

	// leadsTo is the name of the PoolbootConfig whose request an added object makes.
	leadsTo := func(object client.Object) string {
		GinkgoHelper()
		informer, err := cc.informers.FakeInformerFor(ctx, object)
		Expect(err).NotTo(HaveOccurred())
		informer.Add(object)
		Eventually(c.queue.Len).Should(Equal(1))
		request, _ := c.queue.Get()
		c.queue.Done(request)
		return request.Namespace + "/" + request.Name
	}

	It("leads from a Node to the config that its annotation names", func() {
		Expect(watch.Nodes(ctx, edge)).To(Succeed())
		Expect(cc.names).To(Equal([]string{"node-nodes"}))
		Expect(leadsTo(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1",
			Annotations: map[string]string{poolv1.NodeConfigAnnotation: "metal/two"}}})).To(Equal("metal/two"))
	})

	It("leads from a Node that registered anew to the config of its cluster that has it on record", func() {
		Expect(watch.Nodes(ctx, edge)).To(Succeed())
		Expect(leadsTo(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}})).To(Equal("metal/one"))
		Expect(leadsTo(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-4"}})).To(Equal("metal/node-4"), "which has lost its record")
	})

	It("leads from a certificate signing request to the config whose credential made it", func() {
		Expect(watch.CertificateSigningRequests(ctx, edge)).To(Succeed())
		Expect(leadsTo(&certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "csr-1"},
			Spec: certificatesv1.CertificateSigningRequestSpec{Username: "system:bootstrap:bbbbbb"}})).To(Equal("metal/two"))
	})

	It("leads from a kubelet's request for its serving certificate to the config of its cluster that has its Node on record", func() {
		Expect(watch.CertificateSigningRequests(ctx, edge)).To(Succeed())
		Expect(leadsTo(&certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "csr-2"},
			Spec: certificatesv1.CertificateSigningRequestSpec{Username: "system:node:node-1", SignerName: certificatesv1.KubeletServingSignerName}})).To(Equal("metal/one"))
	})
})

var _ = Describe("A Node", func() {
	DescribeTable("was made for the config that its annotation names",
		func(annotation string, made bool) {
			n := &corev1.Node{}
			n.Annotations = map[string]string{poolv1.NodeConfigAnnotation: annotation}
			key, is := workload.ConfigOfNode(n)
			Expect(is).To(Equal(made))
			if made {
				Expect(key.String()).To(Equal(annotation))
			}
		},
		Entry("whole", "metal/one", true),
		Entry("without namespace", "one", false),
		Entry("with an empty namespace", "/one", false),
		Entry("with an empty name", "metal/", false),
		Entry("empty", "", false),
	)
})

var _ = Describe("Facts of a cluster", func() {
	cluster := func() *clusterv1.Cluster {
		return &clusterv1.Cluster{
			ObjectMeta: metav1.ObjectMeta{Namespace: edge.Namespace, Name: edge.Name},
			Spec:       clusterv1.ClusterSpec{ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: "2001:db8::1", Port: 6443}},
		}
	}
	with := func(tls rest.TLSClientConfig) *connected {
		return &connected{config: &rest.Config{Host: "https://10.0.0.1", TLSClientConfig: tls}}
	}

	It("are its own endpoint and the authority of the connection", func(ctx SpecContext) {
		facts, err := workload.Facts(ctx, with(rest.TLSClientConfig{CAData: []byte("ca")}), cluster())
		Expect(err).NotTo(HaveOccurred())
		Expect(facts).To(Equal(join.Cluster{Server: "https://[2001:db8::1]:6443", CA: []byte("ca"), Name: "edge"}))
	})

	It("are not to be had from a file of the manager's", func(ctx SpecContext) {
		file := filepath.Join(GinkgoT().TempDir(), "ca.crt")
		Expect(os.WriteFile(file, []byte("ca of a file"), 0o600)).To(Succeed())
		_, err := workload.Facts(ctx, with(rest.TLSClientConfig{CAFile: file}), cluster())
		Expect(err).To(MatchError(ContainSubstring("certificate-authority-data")))
	})

	It("are not to be had without an authority", func(ctx SpecContext) {
		_, err := workload.Facts(ctx, with(rest.TLSClientConfig{}), cluster())
		Expect(err).To(MatchError(And(ContainSubstring("edge-kubeconfig"), ContainSubstring("certificate-authority-data"))))
	})

	It("are not to be had before the cluster has an endpoint", func(ctx SpecContext) {
		c := cluster()
		c.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{}
		_, err := workload.Facts(ctx, with(rest.TLSClientConfig{CAData: []byte("ca")}), c)
		Expect(err).To(MatchError(ContainSubstring("spec.controlPlaneEndpoint")))
	})

	It("and clients are not to be had without a connection, which is told apart", func(ctx SpecContext) {
		none := clustercache.NewFakeEmptyClusterCache()
		_, err := workload.Facts(ctx, none, cluster())
		Expect(err).To(Satisfy(workload.IsUnreachable))
		_, err = workload.Client(ctx, none, edge)
		Expect(err).To(Satisfy(workload.IsUnreachable))
		_, err = workload.LiveClient(ctx, none, edge)
		Expect(err).To(Satisfy(workload.IsUnreachable))
	})
})

var _ = DescribeTable("An API server that can't be reached is told from one that says no",
	func(err error, unreachable bool) {
		Expect(workload.IsUnreachable(err)).To(Equal(unreachable))
		Expect(workload.IsUnreachable(fmt.Errorf("wrapped: %w", err))).To(Equal(unreachable))
	},
	Entry("refused", &url.Error{Op: "Get", URL: "https://edge", Err: syscall.ECONNREFUSED}, true),
	Entry("timed out", context.DeadlineExceeded, true),
	Entry("starting", apierrors.NewServiceUnavailable("not yet"), true),
	Entry("overloaded", apierrors.NewTooManyRequests("later", 1), true),
	Entry("forbidden", apierrors.NewForbidden(corev1.Resource("nodes"), "one", errors.New("no")), false),
	Entry("conflict", apierrors.NewConflict(corev1.Resource("nodes"), "one", errors.New("changed")), false),
	Entry("not found", apierrors.NewNotFound(corev1.Resource("nodes"), "one"), false),
)

var _ = Describe("The caches of workload clusters", func() {
	It("never hold Secrets, and hold no more of Nodes than is read", func() {
		Expect(workload.ClientOptions("poolboot", 0, 0).Cache.DisableFor).To(ContainElement(BeAssignableToTypeOf(&corev1.Secret{})))
		for kind, by := range workload.CacheOptions().ByObject {
			switch kind.(type) {
			case *certificatesv1.CertificateSigningRequest:
				Expect(by.Field.String()).To(Equal("spec.signerName!=kubernetes.io/kube-apiserver-client"))
				continue
			case *corev1.Node:
			default: // policies and rights
				Expect(by.Label.String()).To(Equal("app.kubernetes.io/managed-by=poolboot"))
				continue
			}
			slim, err := by.Transform(&corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: "one", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}},
				Status:     corev1.NodeStatus{Images: []corev1.ContainerImage{{Names: []string{"big"}}}},
			})
			Expect(err).NotTo(HaveOccurred())
			Expect(slim).To(Equal(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "one"}}))
		}
	})
})
