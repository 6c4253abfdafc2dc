package host

import (
	"context"
	"errors"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/controllertest"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/scope"
)

const namespace = "site"

var (
	key        = client.ObjectKey{Namespace: namespace, Name: "edge-1"}
	clusterKey = client.ObjectKey{Namespace: namespace, Name: "edge"}
)

// site is a management cluster with a Machine of the pool worker, its workload cluster, and the reconciler.
type site struct {
	client.Client
	reconciler *Reconciler
	// answers is what a call of the workload cluster returns, or nil.
	answers error
	// isLate is true while the cache of the workload cluster has no Nodes.
	isLate bool
	// patches counts the patches of the status.
	patches int
}

func newSite(changes ...func(*clusterv1.Machine, *bootstrapv1.PoolbootConfig)) *site {
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: clusterKey.Name, UID: "cluster-uid"},
		Spec: clusterv1.ClusterSpec{ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: "192.0.2.1", Port: 6443}}}
	cluster.Status.Initialization.InfrastructureProvisioned = ptr.To(true)
	conditions.Set(cluster, metav1.Condition{Type: clusterv1.ClusterControlPlaneInitializedCondition, Status: metav1.ConditionTrue, Reason: "Initialized"})
	machine := &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: key.Name, UID: "machine-uid"},
		Spec: clusterv1.MachineSpec{ClusterName: clusterKey.Name, InfrastructureRef: clusterv1.ContractVersionedObjectReference{Kind: "DevMachine", Name: key.Name}}}
	config := &bootstrapv1.PoolbootConfig{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: key.Name, UID: "config-uid", Generation: 1,
			Labels:          map[string]string{clusterv1.ClusterNameLabel: clusterKey.Name},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: key.Name, UID: "machine-uid", Controller: ptr.To(true)}}},
		Spec: bootstrapv1.PoolbootConfigSpec{BootSpec: bootstrapv1.BootSpec{
			ConfigSource:   bootstrapv1.ConfigSource{Type: bootstrapv1.ConfigSourceTypeServer},
			Join:           bootstrapv1.Join{Type: bootstrapv1.JoinTypeKubelet},
			NodeNameSource: bootstrapv1.NodeNameSourceMachine,
		}},
	}
	for _, change := range changes {
		change(machine, config)
	}
	worker := &poolv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "edge-worker"},
		Spec:   poolv1.MachineConfigPoolSpec{ClusterName: clusterKey.Name, PoolRole: poolv1.RoleWorker},
		Status: poolv1.MachineConfigPoolStatus{Configuration: poolv1.PoolConfiguration{Name: "rendered-edge-worker-1"}}}
	rendered := &poolv1.MachineConfig{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "rendered-edge-worker-1"}}

	s := &site{}
	scheme := controllertest.Scheme()
	s.Client = fake.NewClientBuilder().WithScheme(scheme).WithObjects(cluster, machine, config, worker, rendered).
		WithStatusSubresource(config).WithIndex(config, "metadata.annotations.pointer-id", func(client.Object) []string { return nil }).Build()
	nodes := fake.NewClientBuilder().WithScheme(scheme).Build()
	remote := interceptor.NewClient(nodes, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			return unless(s.answers, func() error { return c.Get(ctx, key, o, opts...) })
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if _, ok := o.(*authorizationv1.SubjectAccessReview); ok {
				return s.answers // its status says that nobody may approve certificates
			}
			return unless(s.answers, func() error { return c.Create(ctx, o, opts...) })
		},
	})
	s.reconciler = &Reconciler{Env: scope.Env{
		Client: interceptor.NewClient(s.Client.(client.WithWatch), interceptor.Funcs{
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
				s.patches++
				return c.SubResource(sub).Patch(ctx, o, p, opts...)
			},
		}),
		APIReader: s.Client, ClusterCache: connection{clustercache.NewFakeClusterCache(remote, clusterKey, "host-nodes"), s}, Recorder: events.NewFakeRecorder(100),
		ServerURL: "https://poolboot.example.com:9444", ServerCA: func() ([]byte, error) { return nil, nil }, OverlayNamespace: "poolboot-system",
		WatchHardware: func() error { return nil },
	}}
	s.reconciler.setPhases(s.Client, nil)
	return s
}

// connection is a cluster cache that knows the CA of its cluster, and can be late.
type connection struct {
	clustercache.ClusterCache
	site *site
}

func (c connection) GetClient(ctx context.Context, cluster client.ObjectKey) (client.Client, error) {
	if c.site.isLate {
		return fake.NewClientBuilder().WithScheme(controllertest.Scheme()).Build(), nil
	}
	return c.ClusterCache.GetClient(ctx, cluster)
}

func (connection) GetRESTConfig(context.Context, client.ObjectKey) (*rest.Config, error) {
	return &rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: []byte("the cluster's CA")}}, nil
}

// unless returns an error, or without one the result of a call.
func unless(err error, call func() error) error {
	if err != nil {
		return err
	}
	return call()
}

// reconcile reconciles once, and returns the config.
func (s *site) reconcile(ctx context.Context) (*bootstrapv1.PoolbootConfig, error) {
	GinkgoHelper()
	_, err := s.reconciler.Reconcile(ctx, ctrl.Request{NamespacedName: key})
	config := &bootstrapv1.PoolbootConfig{}
	Expect(s.Get(ctx, key, config)).To(Succeed())
	return config, err
}

// sendRequest reconciles a new host, and then records its request for its configuration.
func (s *site) sendRequest(ctx context.Context) {
	GinkgoHelper()
	config, err := s.reconcile(ctx)
	Expect(err).NotTo(HaveOccurred())
	now := metav1.NewMicroTime(time.Now())
	config.Status.Requests.RequestedTime, config.Status.Requests.FirstRequestedTime = &now, &now
	Expect(s.Status().Update(ctx, config)).To(Succeed())
}

var _ = Describe("A host", func() {
	It("has its data Secret after one reconcile and one patch of the status", func(ctx SpecContext) {
		s := newSite()
		config, err := s.reconcile(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(config.Status.DataSecretName).To(Equal(key.Name))
		Expect(config.Finalizers).To(ContainElement(bootstrapv1.Finalizer))
		Expect(conditions.IsTrue(config, clusterv1.ReadyCondition)).To(BeTrue())
		Expect(config.Status.ObservedGeneration).To(Equal(config.Generation))
		Expect(s.patches).To(Equal(1))
		Expect(s.Get(ctx, key, &corev1.Secret{})).To(Succeed())
	})

	It("gets its data Secret although its workload cluster fails, and the failure is retried", func(ctx SpecContext) {
		s := newSite()
		s.answers = errors.New("no leader")
		config, err := s.reconcile(ctx)
		Expect(err).To(MatchError(ContainSubstring("no leader")))
		Expect(config.Status.DataSecretName).To(Equal(key.Name))
		Expect(config.Status.ObservedGeneration).To(Equal(config.Generation), "the workload cluster is no part of the spec")
	})

	It("is paused and resumed with one write each", func(ctx SpecContext) {
		s := newSite()
		_, err := s.reconcile(ctx)
		Expect(err).NotTo(HaveOccurred())
		for _, isPaused := range []bool{true, false} {
			cluster := &clusterv1.Cluster{}
			Expect(s.Get(ctx, clusterKey, cluster)).To(Succeed())
			cluster.Spec.Paused = ptr.To(isPaused)
			Expect(s.Update(ctx, cluster)).To(Succeed())
			s.patches = 0
			Expect(s.reconciler.Reconcile(ctx, ctrl.Request{NamespacedName: key})).To(BeZero(), "no conflict is retried")
			Expect(s.patches).To(Equal(1))
		}
	})

	It("has a Node that the cache of its workload cluster does not have yet", func(ctx SpecContext) {
		s := newSite()
		s.isLate = true
		s.sendRequest(ctx)
		config, err := s.reconcile(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(conditions.IsTrue(config, bootstrapv1.BootPreparedCondition)).To(BeTrue())
		Expect(conditions.GetReason(config, bootstrapv1.NodeInPoolCondition)).To(Equal(bootstrapv1.WaitingForKubeletReason))
	})

	It("has its boot reported and its Node compared in the reconcile of its request", func(ctx SpecContext) {
		s := newSite()
		s.sendRequest(ctx)
		config, err := s.reconcile(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(conditions.IsTrue(config, bootstrapv1.BootPreparedCondition)).To(BeTrue())
		Expect(conditions.GetReason(config, bootstrapv1.NodeInPoolCondition)).To(Equal(bootstrapv1.WaitingForKubeletReason))
		Expect(conditions.GetReason(config, clusterv1.ReadyCondition)).NotTo(BeEmpty())
	})

	DescribeTable("is left alone", func(ctx SpecContext, change func(*clusterv1.Machine, *bootstrapv1.PoolbootConfig)) {
		s := newSite(change)
		config, err := s.reconcile(ctx)
		Expect(err).NotTo(HaveOccurred())
		conditionsWithoutPause := slices.DeleteFunc(config.Status.Conditions, func(c metav1.Condition) bool { return c.Type == clusterv1.PausedCondition })
		config.Status.Conditions = nil
		Expect(conditionsWithoutPause).To(BeEmpty())
		Expect(config.Status).To(BeZero())
		Expect(client.IgnoreNotFound(s.Get(ctx, key, &corev1.Secret{}))).To(Succeed())
		Expect(config.Finalizers).To(BeEmpty())
	},
		Entry("while its config is paused", func(_ *clusterv1.Machine, config *bootstrapv1.PoolbootConfig) {
			config.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
		}),
		Entry("until its MachineSet has created its Machine", func(_ *clusterv1.Machine, config *bootstrapv1.PoolbootConfig) {
			config.OwnerReferences[0].Kind, config.OwnerReferences[0].Name = "MachineSet", "edge"
		}),
	)
})
