package workload_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/source"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/controllertest"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/loopback"
)

var edge = client.ObjectKey{Namespace: "metal", Name: "edge"}

// connected is a cluster cache with a connection. Its watches start on fake informers.
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

// controller starts watches, and queues their requests.
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
		configs client.WithWatch
	)
	BeforeEach(func() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(context.Background())
		DeferCleanup(cancel)
		scheme := controllertest.Scheme()
		config := func(cluster, name, node, credential string) *bootstrapv1.PoolbootConfig {
			return &bootstrapv1.PoolbootConfig{
				ObjectMeta: metav1.ObjectMeta{Namespace: "metal", Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: cluster}},
				Status: bootstrapv1.PoolbootConfigStatus{
					NodeRef: bootstrapv1.NodeReference{Name: node, UID: "1"},
					Boot:    bootstrapv1.BootStatus{CredentialID: credential},
				},
			}
		}
		withoutStatus := config("edge", "node-4", "", "")
		withoutStatus.Status.NodeRef = bootstrapv1.NodeReference{}
		configs = fake.NewClientBuilder().WithScheme(scheme).WithObjects(
			withoutStatus,
			config("edge", "one", "node-1", "aaaaaa"),
			config("edge", "two", "node-2", "bbbbbb"),
			config("another", "three", "node-1", "aaaaaa"),
			record.NewAdoption(client.ObjectKey{Namespace: "metal", Name: "by-hand"}, "edge", "node-5", "control-plane", bootstrapv1.AdoptionPreview),
		).WithIndex(&bootstrapv1.PoolbootConfig{}, workload.HostUserIndex, workload.HostUsers).
			WithIndex(&bootstrapv1.PoolbootConfig{}, workload.AwaitedNodeIndex, workload.AwaitedNodes).Build()
		cc = &connected{informers: &informertest.FakeInformers{Scheme: scheme}}
		c = controller{ctx: ctx, queue: priorityqueue.New[ctrl.Request]("test")}
		DeferCleanup(c.queue.ShutDown)
		watch = workload.Watch{Clusters: cc, Controller: c, Name: "node-nodes", Configs: configs}
	})

	// requestFor adds an object, and returns the PoolbootConfig that the watch requests a reconcile of.
	requestFor := func(object client.Object) string {
		GinkgoHelper()
		informer, err := cc.informers.FakeInformerFor(ctx, object)
		Expect(err).NotTo(HaveOccurred())
		informer.Add(object)
		Eventually(c.queue.Len).Should(Equal(1))
		request, _ := c.queue.Get()
		c.queue.Done(request)
		return request.Namespace + "/" + request.Name
	}

	It("requests the PoolbootConfig in the annotation of a Node", func() {
		Expect(watch.NodesOfConfigs(ctx, edge)).To(Succeed())
		Expect(cc.names).To(Equal([]string{"node-nodes"}))
		Expect(requestFor(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1",
			Annotations: map[string]string{poolv1.NodeConfigAnnotation: "metal/two"}}})).To(Equal("metal/two"))
	})

	It("requests the PoolbootConfig whose status names a Node that registered again", func() {
		Expect(watch.NodesOfConfigs(ctx, edge)).To(Succeed())
		Expect(requestFor(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}})).To(Equal("metal/one"))
		Expect(requestFor(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-4"}})).To(Equal("metal/node-4"), "which has lost its status")
	})

	It("requests the PoolbootConfig that is to adopt a Node, whatever its name is", func() {
		Expect(watch.NodesOfConfigs(ctx, edge)).To(Succeed())
		Expect(requestFor(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-5"}})).To(Equal("metal/by-hand"))
	})

	It("requests the PoolbootConfig of a Node whose host has booted so quickly that it stayed Ready", func() {
		Expect(watch.NodesOfConfigs(ctx, edge)).To(Succeed())
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", ResourceVersion: "1"}, Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{BootID: "a"}}}
		Expect(requestFor(node)).To(Equal("metal/one"))
		informer, err := cc.informers.FakeInformerFor(ctx, node)
		Expect(err).NotTo(HaveOccurred())
		booted := node.DeepCopy()
		booted.ResourceVersion, booted.Status.NodeInfo.BootID = "2", "b"
		informer.Update(node, booted)
		Eventually(c.queue.Len).Should(Equal(1))
	})

	It("requests none for a Node that is not of a host, without looking at all hosts", func() {
		watch.Configs = interceptor.NewClient(configs, interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
				all := &client.ListOptions{}
				all.ApplyOptions(options)
				if all.FieldSelector == nil {
					defer GinkgoRecover()
					Fail("all PoolbootConfigs were listed")
				}
				return c.List(ctx, list, options...)
			}})
		Expect(watch.NodesOfConfigs(ctx, edge)).To(Succeed())
		informer, err := cc.informers.FakeInformerFor(ctx, &corev1.Node{})
		Expect(err).NotTo(HaveOccurred())
		for _, name := range []string{"node-9", "one", "three"} {
			informer.Add(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
		}
		Consistently(c.queue.Len, "100ms").Should(BeZero())
	})

	It("requests the Cluster for its own policy, and not for that of another Cluster object with the same workload cluster", func() {
		kind := admissionregistrationv1.SchemeGroupVersion.WithKind("ValidatingAdmissionPolicy")
		cc.informers.Scheme = runtime.NewScheme()
		cc.informers.Scheme.AddKnownTypeWithName(kind, &metav1.PartialObjectMetadata{})
		Expect(watch.ManagedObjects(ctx, edge, kind, "guard.metal.edge")).To(Succeed())
		policy := func(name string) *metav1.PartialObjectMetadata {
			object := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}}
			object.SetGroupVersionKind(kind)
			return object
		}
		informer, err := cc.informers.FakeInformerFor(ctx, policy(""))
		Expect(err).NotTo(HaveOccurred())
		informer.Add(policy("guard.metal.another"))
		Consistently(c.queue.Len, "100ms").Should(BeZero())
		Expect(requestFor(policy("guard.metal.edge"))).To(Equal("metal/edge"))
	})

	It("requests the PoolbootConfig whose join credential created a certificate signing request", func() {
		Expect(watch.CertificateSigningRequests(ctx, edge)).To(Succeed())
		Expect(requestFor(&certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "csr-1"},
			Spec: certificatesv1.CertificateSigningRequestSpec{Username: "system:bootstrap:bbbbbb"}})).To(Equal("metal/two"))
	})

	It("requests the PoolbootConfig whose kubelet requests a serving certificate", func() {
		Expect(watch.CertificateSigningRequests(ctx, edge)).To(Succeed())
		Expect(requestFor(&certificatesv1.CertificateSigningRequest{ObjectMeta: metav1.ObjectMeta{Name: "csr-2"},
			Spec: certificatesv1.CertificateSigningRequestSpec{Username: "system:node:node-1", SignerName: certificatesv1.KubeletServingSignerName}})).To(Equal("metal/one"))
	})
})

var _ = Describe("A Node", func() {
	DescribeTable("was pre-registered for the PoolbootConfig in its annotation",
		func(annotation string, want bool) {
			node := &corev1.Node{}
			node.Annotations = map[string]string{poolv1.NodeConfigAnnotation: annotation}
			key, got := record.ConfigOfNode(node)
			Expect(got).To(Equal(want))
			if want {
				Expect(key.String()).To(Equal(annotation))
			}
		},
		Entry("namespace and name", "metal/one", true),
		Entry("without a namespace", "one", false),
		Entry("with an empty namespace", "/one", false),
		Entry("with an empty name", "metal/", false),
		Entry("empty", "", false),
	)
})

var _ = Describe("The information to join a cluster", func() {
	cluster := func() *clusterv1.Cluster {
		return &clusterv1.Cluster{
			ObjectMeta: metav1.ObjectMeta{Namespace: edge.Namespace, Name: edge.Name},
			Spec:       clusterv1.ClusterSpec{ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: "2001:db8::1", Port: 6443}},
		}
	}
	with := func(tls rest.TLSClientConfig) *connected {
		return &connected{config: &rest.Config{Host: "https://10.0.0.1", TLSClientConfig: tls}}
	}

	It("has the endpoint of the Cluster and the certificate authority of the connection", func(ctx SpecContext) {
		got, err := workload.JoinCluster(ctx, with(rest.TLSClientConfig{CAData: []byte("ca")}), cluster())
		Expect(err).NotTo(HaveOccurred())
		Expect(got).To(Equal(join.Cluster{Server: "https://[2001:db8::1]:6443", CA: []byte("ca"), Name: "edge"}))
	})

	It("is not read from a file of the manager", func(ctx SpecContext) {
		file := filepath.Join(GinkgoT().TempDir(), "ca.crt")
		Expect(os.WriteFile(file, []byte("ca of a file"), 0o600)).To(Succeed())
		_, err := workload.JoinCluster(ctx, with(rest.TLSClientConfig{CAFile: file}), cluster())
		Expect(err).To(MatchError(ContainSubstring("certificate-authority-data")))
	})

	It("is an error without a certificate authority", func(ctx SpecContext) {
		_, err := workload.JoinCluster(ctx, with(rest.TLSClientConfig{}), cluster())
		Expect(err).To(MatchError(And(ContainSubstring("edge-kubeconfig"), ContainSubstring("certificate-authority-data"))))
	})

	It("can have two certificate authorities while one replaces the other, but none that is malformed", func(ctx SpecContext) {
		var bundle []byte
		for _, name := range []string{"old", "new"} {
			ca, err := loopback.NewCA(name)
			Expect(err).NotTo(HaveOccurred())
			bundle = append(bundle, ca.PEM()...)
		}
		got, err := workload.JoinCluster(ctx, with(rest.TLSClientConfig{CAData: bundle}), cluster())
		Expect(err).NotTo(HaveOccurred())
		Expect(got.CA).To(Equal(bundle))
		bundle = append(bundle, strings.Replace(string(bundle), "MII", "MIA", 1)...)
		_, err = workload.JoinCluster(ctx, with(rest.TLSClientConfig{CAData: bundle}), cluster())
		Expect(err).To(MatchError(And(ContainSubstring("edge-kubeconfig: PEM block 3 is malformed"), ContainSubstring("correct it"))))
	})

	It("is an error before the Cluster has an endpoint", func(ctx SpecContext) {
		c := cluster()
		c.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{}
		_, err := workload.JoinCluster(ctx, with(rest.TLSClientConfig{CAData: []byte("ca")}), c)
		Expect(err).To(MatchError(ContainSubstring("spec.controlPlaneEndpoint")))
	})

	It("is an unreachable error without a connection, as for clients", func(ctx SpecContext) {
		disconnected := clustercache.NewFakeEmptyClusterCache()
		_, err := workload.JoinCluster(ctx, disconnected, cluster())
		Expect(err).To(Satisfy(workload.IsUnreachable))
		_, err = workload.Client(ctx, disconnected, edge)
		Expect(err).To(Satisfy(workload.IsUnreachable))
		_, err = workload.LiveClient(ctx, disconnected, edge)
		Expect(err).To(Satisfy(workload.IsUnreachable))
	})
})

var _ = DescribeTable("An unreachable API server is distinguished from one that returns an error",
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
	It("never have Secrets, and have only the fields of Nodes that are read", func() {
		Expect(workload.ClientOptions("poolboot", 0, 0).Cache.DisableFor).To(ContainElement(BeAssignableToTypeOf(&corev1.Secret{})))
		attached := []corev1.AttachedVolume{{Name: "kubernetes.io/iscsi/v"}} // a drain waits for them
		for kind, options := range workload.CacheOptions().ByObject {
			switch kind.(type) {
			case *certificatesv1.CertificateSigningRequest:
				Expect(options.Field.String()).To(Equal("spec.signerName!=kubernetes.io/kube-apiserver-client"))
				continue
			case *corev1.Node:
			default: // admission policies and RBAC objects
				Expect(options.Label.String()).To(Equal("app.kubernetes.io/managed-by=poolboot"))
				continue
			}
			trimmed, err := options.Transform(&corev1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: "one", ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet"}}},
				Status: corev1.NodeStatus{Images: []corev1.ContainerImage{{Names: []string{"big"}}}, VolumesInUse: []corev1.UniqueVolumeName{"v"},
					VolumesAttached: attached},
			})
			Expect(err).NotTo(HaveOccurred())
			Expect(trimmed).To(Equal(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "one"}, Status: corev1.NodeStatus{VolumesAttached: attached}}))
		}
	})
})
