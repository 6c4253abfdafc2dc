package node

import (
	"context"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/controllertest"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/ownwrites"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/scope"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/scrape"
)

var (
	key     = client.ObjectKey{Namespace: namespace, Name: name}
	overlay = client.ObjectKey{Namespace: "poolboot-system", Name: "overlay-config-uid"}
	token   = client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: "bootstrap-token-abcdef"}
)

// site is a management cluster, its workload cluster with the Node, and the reconciler under test.
type site struct {
	client.Client
	workload   client.WithWatch
	events     *events.FakeRecorder
	reconciler *reconciler

	controllertest.Process

	// cached is the PoolbootConfig in the reconciler's cache, or nil if the cache is current.
	cached *bootstrapv1.PoolbootConfig
}

func newSite(changes ...any) *site {
	f := situation(changes...)
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: clusterName}}
	conditions.Set(cluster, metav1.Condition{Type: clusterv1.ClusterControlPlaneInitializedCondition, Status: metav1.ConditionTrue, Reason: "Initialized"})
	objects := []client.Object{f.config, f.machine, cluster, secretAt(overlay)}
	for i := range f.pools {
		objects = append(objects, &f.pools[i])
	}
	scheme := controllertest.Scheme()
	s := &site{events: events.NewFakeRecorder(100)}
	s.workload = fake.NewClientBuilder().WithScheme(scheme).WithObjects(f.node, secretAt(token)).Build()
	s.Client = controllertest.NewClientBuilder(objects...).WithStatusSubresource(&bootstrapv1.PoolbootConfig{}).Build()
	s.reconciler = &reconciler{Phases: Phases{Env: scope.Env{
		Client: interceptor.NewClient(s.Client.(client.WithWatch), s.faults()),
		ClusterCache: clustercache.NewFakeClusterCache(interceptor.NewClient(s.workload, s.faults()),
			client.ObjectKey{Namespace: namespace, Name: clusterName}, watchName),
		Recorder:         s.events,
		OverlayNamespace: overlay.Namespace,
	}}}
	s.reconciler.hosts = scope.Hosts{Client: s.reconciler.Client, Live: s.Client}
	return s
}

// reconciler reconciles with the phases of this package only.
type reconciler struct {
	Phases
	hosts scope.Hosts
}

func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	return r.hosts.Reconcile(ctx, request, func(ctx context.Context, s *scope.Scope) (ctrl.Result, error) {
		return ctrl.Result{}, r.Phases.Reconcile(ctx, s)
	})
}

func secretAt(key client.ObjectKey) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
}

func (s *site) faults() interceptor.Funcs {
	faults := controllertest.InterceptWrites(s.Write)
	faults.Get = func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
		if config, ok := o.(*bootstrapv1.PoolbootConfig); ok && s.cached != nil {
			s.cached.DeepCopyInto(config)
			return nil
		}
		return c.Get(ctx, key, o, opts...)
	}
	return faults
}

// settle reconciles until nothing more is written, and returns the config and the Node.
func (s *site) settle(ctx context.Context) (*bootstrapv1.PoolbootConfig, *corev1.Node) {
	GinkgoHelper()
	s.Settle(func() (ctrl.Result, error) { return s.reconciler.Reconcile(ctx, ctrl.Request{NamespacedName: key}) })
	config, node := &bootstrapv1.PoolbootConfig{}, &corev1.Node{}
	Expect(s.Get(ctx, key, config)).To(Succeed())
	Expect(s.workload.Get(ctx, client.ObjectKey{Name: name}, node)).To(Succeed())
	return config, node
}

// newEvents returns the events since the last call.
func (s *site) newEvents() string {
	return strings.Join(controllertest.Events(s.events), "\n")
}

var _ = Describe("A boot", func() {
	var ctx context.Context
	BeforeEach(func(c SpecContext) { ctx = c })

	exists := func(c client.Client, key client.ObjectKey) bool {
		err := c.Get(ctx, key, &corev1.Secret{})
		Expect(client.IgnoreNotFound(err)).To(Succeed())
		return !apierrors.IsNotFound(err)
	}

	It("continues while the kubelet is not Ready, and keeps its token, credential and overlay", func() {
		s := newSite()
		config, node := s.settle(ctx)
		Expect(config.Annotations).To(HaveKeyWithValue(bootstrapv1.TokenHashAnnotation, "abc"))
		Expect(config.Status.Boot.CredentialID).To(Equal("abcdef"))
		Expect(exists(s, overlay)).To(BeTrue())
		Expect(exists(s.workload, token)).To(BeTrue())
		Expect(node.Spec.Taints).To(ContainElement(unassigned))
	})

	It("records its last times in the write that it needs anyway", func() {
		registered := metav1.NewTime(time.Now().Add(-time.Minute).Truncate(time.Second))
		s := newSite(ready, func(node *corev1.Node) {
			for i, kind := range []corev1.NodeConditionType{corev1.NodeDiskPressure, corev1.NodeMemoryPressure} {
				node.Status.Conditions = append(node.Status.Conditions,
					corev1.NodeCondition{Type: kind, Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(registered.Add(time.Duration(i) * time.Second))})
			}
		})
		joined := map[string]string{"pool": "infra", "stage": "Joining", "outcome": "Done"}
		over, timed := scrape.Sum(metrics.Registry, "poolboot_boots_total", joined), scrape.Sum(metrics.Registry, "poolboot_boot_stage_seconds", nil)
		config, _ := s.settle(ctx)
		Expect(scrape.Sum(metrics.Registry, "poolboot_boots_total", joined) - over).To(Equal(1.0))
		Expect(scrape.Sum(metrics.Registry, "poolboot_boot_stage_seconds", nil)).To(BeNumerically(">", timed))
		boot := config.Status.Boot
		Expect(boot.KubeletRegisteredTime.Time).To(BeTemporally("==", registered.Time))
		Expect(boot.NodeReadyTime.Time).To(BeTemporally("~", time.Now(), time.Minute))
		Expect(boot.TokenRevokedTime.Time).To(BeTemporally(">=", boot.NodeReadyTime.Time))
		Expect(s.Writes).To(Equal(5), "the Node, the token, the overlay, the credential, the status")
	})

	It("waits until the cache contains its last write, instead of being completed again", func() {
		s := newSite(ready)
		before := &bootstrapv1.PoolbootConfig{}
		Expect(s.Get(ctx, key, before)).To(Succeed())
		s.settle(ctx)
		s.cached = before
		writes := s.Writes
		Expect(s.reconciler.Reconcile(ctx, ctrl.Request{NamespacedName: key})).To(Equal(ctrl.Result{RequeueAfter: ownwrites.MaxLag}))
		Expect(s.Writes).To(Equal(writes))
	})

	It("is completed when the kubelet is Ready in its pool, whichever write fails, and leaves nothing behind", func() {
		for _, late := range []bool{false, true} {
			for failing := 1; ; failing++ {
				s := newSite(ready)
				s.CrashAt, s.Late = failing, late
				config, node := s.settle(ctx)
				Expect(config.Annotations).To(And(HaveKeyWithValue(bootstrapv1.TokenStateAnnotation, string(bootstrapv1.TokenStateRevoked)),
					Not(HaveKey(bootstrapv1.TokenHashAnnotation))), "write %d", failing)
				Expect(config.Status.Boot.CredentialID).To(BeEmpty(), "write %d", failing)
				Expect(config.Status.Boot.CredentialExpirationTime).To(BeNil(), "write %d", failing)
				Expect(conditions.IsTrue(config, bootstrapv1.NodeInPoolCondition)).To(BeTrue(), "write %d", failing)
				Expect(exists(s, overlay)).To(BeFalse(), "write %d", failing)
				Expect(exists(s.workload, token)).To(BeFalse(), "write %d", failing)
				Expect(node.Spec.Taints).NotTo(ContainElement(unassigned), "write %d", failing)
				Expect(s.newEvents()).To(BeEmpty(), "write %d: its times are in the status", failing)
				if s.Writes < failing {
					break
				}
			}
		}
	})

	It("is complete: a Node that registers again gets its labels back, and its UID is recorded", func() {
		s := newSite(revoked, bare, ready)
		config, node := s.settle(ctx)
		Expect(config.Status.NodeRef.UID).To(Equal(newUID))
		Expect(config.Status.PoolRole).To(Equal("infra"))
		Expect(node.Labels).To(HaveKeyWithValue(poolv1.NodeRoleLabelPrefix+"infra", ""))
		Expect(s.newEvents()).To(ContainSubstring(bootstrapv1.EventLabelsRestored))
	})

	It("is complete: an event reports that a problem is resolved", func() {
		s := newSite(revoked, ready, func(config *bootstrapv1.PoolbootConfig) {
			conditions.Set(config, metav1.Condition{Type: bootstrapv1.NodeInPoolCondition, Status: metav1.ConditionFalse, Reason: bootstrapv1.PoolConflictReason})
		})
		s.settle(ctx)
		Expect(s.newEvents()).To(HavePrefix("Normal " + bootstrapv1.EventNodeReady))
	})

	It("is complete: a relabeled Node moves, and a conflict is reported once", func() {
		s := newSite(revoked, ready, labeled(role("edge")), func(config *bootstrapv1.PoolbootConfig) {
			conditions.Set(config, registration.BootPrepared(config.Status.NodeRef.Name, "infra", "rendered-infra-1"))
		})
		config, _ := s.settle(ctx)
		Expect(config.Status.PoolRole).To(Equal("edge"))
		Expect(conditions.GetMessage(config, bootstrapv1.BootPreparedCondition)).To(Equal("Node "+config.Status.NodeRef.Name+` was registered in pool "infra" to boot with rendered-infra-1`),
			"it is about the boot, and not about what the host became")
		Expect(s.newEvents()).To(ContainSubstring(bootstrapv1.EventPoolChanged))

		ofNode := map[string]string{"kind": "Node"}
		conflicts := scrape.Sum(metrics.Registry, "poolboot_pool_conflicts_total", ofNode)
		s = newSite(revoked, ready, labeled(role("edge", "infra")))
		config, _ = s.settle(ctx)
		Expect(scrape.Sum(metrics.Registry, "poolboot_pool_conflicts_total", ofNode) - conflicts).To(Equal(1.0))
		Expect(config.Status.PoolRole).To(Equal("infra"))
		Expect(strings.Count(s.newEvents(), bootstrapv1.PoolConflictReason)).To(Equal(1))
	})

	It("says which MachineDeployment sets the labels of a Node that a user relabels, and that Cluster API labels again", func() {
		ofDeployment := func(f *facts) { f.machine.Labels[clusterv1.MachineDeploymentNameLabel] = "rack1" }
		const change = "change them in spec.template.metadata.labels of MachineDeployment rack1"
		s := newSite(revoked, ready, ofDeployment, labeled(role("edge")))
		s.settle(ctx)
		Expect(s.newEvents()).To(And(ContainSubstring("Warning PoolChanged"), ContainSubstring(`select pool "infra", and Cluster API copies them to the Node: `+change)))

		s = newSite(revoked, ready, ofDeployment, func(config *bootstrapv1.PoolbootConfig) { config.Status.PoolRole = "edge" })
		s.settle(ctx)
		Expect(s.newEvents()).To(And(ContainSubstring("Normal PoolChanged"), ContainSubstring("copies them from Machine "+name+": to move its host, "+change)))

		s = newSite(revoked, ready, ofDeployment, labeled(role("edge", "infra")))
		s.settle(ctx)
		Expect(s.newEvents()).To(And(ContainSubstring("Warning PoolConflict"), ContainSubstring(change)))
		s = newSite(revoked, ready, func(f *facts) { f.machine.Labels = nil }, labeled(role("edge", "infra")))
		s.settle(ctx)
		Expect(s.newEvents()).To(And(ContainSubstring("Warning PoolConflict"), Not(ContainSubstring("Machine"))))
	})

	It("does not advise to change the MachineDeployment of a canary, whose additional label Cluster API leaves on the Node", func() {
		canaryOfInfra := func(f *facts) {
			f.machine.Labels[clusterv1.MachineDeploymentNameLabel] = "infra"
			infra := slices.IndexFunc(f.pools, func(p poolv1.MachineConfigPool) bool { return p.Spec.PoolRole == "infra" })
			canary := f.pools[infra].DeepCopy()
			canary.Name, canary.Spec.PoolRole = "canary", "canary"
			canary.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: role("infra", "canary")}
			f.pools[infra].Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: role("infra"),
				MatchExpressions: []metav1.LabelSelectorRequirement{{Key: poolv1.NodeRoleLabelPrefix + "canary", Operator: metav1.LabelSelectorOpDoesNotExist}}}
			f.pools = append(f.pools, *canary)
		}
		s := newSite(revoked, ready, canaryOfInfra, labeled(role("infra", "canary")))
		config, _ := s.settle(ctx)
		Expect(s.newEvents()).To(HaveSuffix("Normal PoolChanged The labels of Node " + name + ` now select pool "canary" instead of pool "infra"`))
		Expect(conditions.GetMessage(config, bootstrapv1.NodeInPoolCondition)).To(HaveSuffix(`is Ready in pool "canary"`))

		s = newSite(revoked, ready, canaryOfInfra, func(config *bootstrapv1.PoolbootConfig) { config.Status.PoolRole = "canary" })
		s.settle(ctx)
		Expect(s.newEvents()).To(HaveSuffix("Normal PoolChanged The labels of Node " + name + ` now select pool "infra" instead of pool "canary"`))
	})
})
