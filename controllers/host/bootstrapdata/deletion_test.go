package bootstrapdata

import (
	"context"
	"errors"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/scope"
)

func newNode(owner string, ready corev1.ConditionStatus) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: machineName, UID: "node-uid", Annotations: map[string]string{poolv1.NodeConfigAnnotation: owner}},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}},
	}
}

var _ = Describe("A Node", func() {
	ours := key.String()
	revoked := func(config *bootstrapv1.PoolbootConfig) {
		config.Annotations = map[string]string{bootstrapv1.TokenStateAnnotation: string(bootstrapv1.TokenStateRevoked)}
	}
	DescribeTable("is deleted with its config only if its kubelet never became Ready",
		func(node *corev1.Node, isDeleted bool, change ...func(*bootstrapv1.PoolbootConfig)) {
			Expect((&state{Scope: &scope.Scope{Config: newConfig(change...), Machine: newMachine(nil)}}).hasNeverJoined(node)).To(Equal(isDeleted))
		},
		Entry("pre-registered", newNode(ours, corev1.ConditionFalse), true),
		Entry("pre-registered, and Unknown after a timeout", newNode(ours, corev1.ConditionUnknown), true),
		Entry("Ready", newNode(ours, corev1.ConditionTrue), false),
		Entry("not Ready, but Ready before", newNode(ours, corev1.ConditionUnknown), false, revoked),
		Entry("pre-registered for another config", newNode("site/other", corev1.ConditionFalse), false),
		Entry("not pre-registered", newNode("", corev1.ConditionFalse), false),
	)
	DescribeTable("that is Ready is deleted with its Machine's config only if Cluster API has not found it:",
		func(change func(*clusterv1.Machine), isDeleted bool) {
			machine := newMachine(nil)
			machine.DeletionTimestamp = &metav1.Time{Time: time.Now()}
			change(machine)
			Expect((&state{Scope: &scope.Scope{Config: newConfig(revoked), Machine: machine}}).hasNeverJoined(newNode(ours, corev1.ConditionTrue))).To(Equal(isDeleted))
			Expect((&state{Scope: &scope.Scope{Config: newConfig(revoked), Machine: machine}}).hasNeverJoined(newNode("site/other", corev1.ConditionTrue))).To(BeFalse())
		},
		Entry("neither its name nor its provider ID is known", func(*clusterv1.Machine) {}, true),
		Entry("its provider ID is known", func(m *clusterv1.Machine) { m.Spec.ProviderID = "metal3://site/host-3/m3" }, false),
		Entry("its name is known", func(m *clusterv1.Machine) { m.Status.NodeRef.Name = machineName }, false),
		Entry("the Machine is not being deleted", func(m *clusterv1.Machine) { m.DeletionTimestamp = nil }, false),
	)
})

var _ = Describe("Deleting a PoolbootConfig", func() {
	var ctx context.Context
	BeforeEach(func(c SpecContext) { ctx = c })

	overlay := client.ObjectKey{Namespace: "poolboot-system", Name: "overlay-config-uid"}
	token := client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: "bootstrap-token-abcdef"}
	booting := func(config *bootstrapv1.PoolbootConfig) {
		config.Status.NodeRef = bootstrapv1.NodeReference{Name: machineName, UID: "node-uid"}
		config.Status.Boot.CredentialID = "abcdef"
	}
	// world returns a site with a booting Machine whose config is being deleted for some time.
	world := func(cluster *clusterv1.Cluster, since time.Duration) *site {
		s := newSite(cluster, newMachine(nil), newConfig(booting, deleted(since)),
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: overlay.Namespace, Name: overlay.Name}})
		Expect(s.workload.Create(ctx, newNode(key.String(), corev1.ConditionFalse))).To(Succeed())
		Expect(s.workload.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: token.Namespace, Name: token.Name}})).To(Succeed())
		s.Writes = 0
		return s
	}
	gone := func(c client.Client, key client.ObjectKey, object client.Object) bool {
		return apierrors.IsNotFound(c.Get(ctx, key, object))
	}
	node := client.ObjectKey{Name: machineName}
	leftover := And(HavePrefix("Warning LeftInWorkloadCluster"), ContainSubstring("Secret kube-system/bootstrap-token-abcdef"), ContainSubstring("Node "+machineName))

	It("deletes the overlay, the credential and the Node that no kubelet has adopted, whichever write fails", func() {
		for _, late := range []bool{false, true} {
			for failing := 1; ; failing++ {
				s := world(newCluster(), 0)
				s.CrashAt, s.Late = failing, late
				s.settle(ctx)
				Expect(gone(s, key, &bootstrapv1.PoolbootConfig{})).To(BeTrue(), "write %d", failing)
				Expect(gone(s, overlay, &corev1.Secret{})).To(BeTrue(), "write %d", failing)
				Expect(gone(s.workload, token, &corev1.Secret{})).To(BeTrue(), "write %d", failing)
				Expect(gone(s.workload, node, &corev1.Node{})).To(BeTrue(), "write %d", failing)
				if s.Writes < failing {
					break
				}
			}
		}
	})

	It("waits for an unreachable workload cluster, but not forever", func() {
		s := world(newCluster(), 0)
		s.connected = false
		result, err := s.reconciler.Reconcile(ctx, ctrl.Request{NamespacedName: key})
		for range 2 { // the first reconcile only records that the config is not paused
			Expect(err).NotTo(HaveOccurred())
			result, err = s.reconciler.Reconcile(ctx, ctrl.Request{NamespacedName: key})
		}
		Expect(result.RequeueAfter).To(Equal(unreachableRetry))
		Expect(gone(s, key, &bootstrapv1.PoolbootConfig{})).To(BeFalse())

		s = world(newCluster(), time.Hour)
		s.connected = false
		s.settle(ctx)
		Expect(gone(s, key, &bootstrapv1.PoolbootConfig{})).To(BeTrue())
		Expect(s.newEvents()).To(ConsistOf(leftover, leftover), "on the config and on the Machine")
	})

	DescribeTable("waits for a workload cluster that refuses requests, but not forever",
		func(refusal error) {
			refusing := interceptor.Funcs{
				Delete: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.DeleteOption) error {
					return refusal
				},
			}
			s := world(newCluster(), 0)
			s.reconciler.ClusterCache = clustercache.NewFakeClusterCache(interceptor.NewClient(s.workload, refusing), client.ObjectKey{Namespace: namespace, Name: clusterName})
			for range 3 {
				if _, err := s.reconciler.Reconcile(ctx, ctrl.Request{NamespacedName: key}); err != nil {
					Expect(err).To(MatchError(refusal))
				}
			}
			Expect(gone(s, key, &bootstrapv1.PoolbootConfig{})).To(BeFalse())
			Expect(s.newEvents()).To(BeEmpty())

			s = world(newCluster(), time.Hour)
			s.reconciler.ClusterCache = clustercache.NewFakeClusterCache(interceptor.NewClient(s.workload, refusing), client.ObjectKey{Namespace: namespace, Name: clusterName})
			s.settle(ctx)
			Expect(gone(s, key, &bootstrapv1.PoolbootConfig{})).To(BeTrue())
			Expect(s.newEvents()).To(ConsistOf(And(leftover, ContainSubstring(refusal.Error())), And(leftover, ContainSubstring(refusal.Error()))))
		},
		Entry("400", apierrors.NewBadRequest("a webhook denied the request")),
		Entry("403", apierrors.NewForbidden(corev1.Resource("nodes"), machineName, errors.New("no"))),
		Entry("500", apierrors.NewInternalError(errors.New("no quorum"))),
	)

	It("deletes the Node even if the credential cannot be deleted, and reports only the credential", func() {
		s := world(newCluster(), time.Hour)
		s.reconciler.ClusterCache = clustercache.NewFakeClusterCache(interceptor.NewClient(s.workload, interceptor.Funcs{
			Delete: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.DeleteOption) error {
				if _, ok := o.(*corev1.Secret); ok {
					return apierrors.NewForbidden(corev1.Resource("secrets"), token.Name, errors.New("no"))
				}
				return c.Delete(ctx, o, options...)
			},
		}), client.ObjectKey{Namespace: namespace, Name: clusterName})
		s.settle(ctx)
		Expect(gone(s, key, &bootstrapv1.PoolbootConfig{})).To(BeTrue())
		Expect(gone(s.workload, node, &corev1.Node{})).To(BeTrue())
		Expect(s.newEvents()).To(HaveEach(And(ContainSubstring("Secret kube-system/bootstrap-token-abcdef"), Not(ContainSubstring("Node "+machineName)))))
	})

	// updated returns a site with a running host whose config is deleted in the middle of its update.
	updated := func(change func(*clusterv1.Machine)) *site {
		machine := newMachine(nil)
		machine.Annotations = map[string]string{clusterv1.MachineSkipRemediationAnnotation: "poolboot"}
		change(machine)
		s := newSite(newCluster(), machine, newConfig(deleted(0), func(config *bootstrapv1.PoolbootConfig) {
			config.Status.NodeRef = bootstrapv1.NodeReference{Name: machineName, UID: "node-uid"}
			config.Annotations = map[string]string{bootstrapv1.TokenStateAnnotation: string(bootstrapv1.TokenStateRevoked)}
		}))
		running := newNode(key.String(), corev1.ConditionTrue)
		rollout.Cordon(running)
		running.Annotations[agentv1.DrainedAnnotation] = "revision"
		Expect(s.workload.Create(ctx, running)).To(Succeed())
		s.Writes = 0
		return s
	}

	It("ends what an update did to the Node and the health checks of a host that stays, whichever write fails", func() {
		for _, late := range []bool{false, true} {
			for failing := 1; ; failing++ {
				s := updated(func(*clusterv1.Machine) {})
				s.CrashAt, s.Late = failing, late
				s.settle(ctx)
				Expect(gone(s, key, &bootstrapv1.PoolbootConfig{})).To(BeTrue(), "write %d", failing)
				found, machine := &corev1.Node{}, newMachine(nil)
				Expect(s.workload.Get(ctx, node, found)).To(Succeed())
				Expect(found.Spec).To(BeZero(), "write %d", failing)
				Expect(found.Annotations).To(Equal(map[string]string{poolv1.NodeConfigAnnotation: key.String()}), "write %d", failing)
				Expect(s.Get(ctx, client.ObjectKeyFromObject(machine), machine)).To(Succeed())
				Expect(machine.Annotations).To(BeEmpty(), "write %d", failing)
				if s.Writes < failing {
					break
				}
			}
		}
	})

	It("leaves a Node cordoned that Cluster API drains and deletes", func() {
		s := updated(func(m *clusterv1.Machine) {
			m.Finalizers, m.DeletionTimestamp, m.Status.NodeRef.Name = []string{clusterv1.MachineFinalizer}, &metav1.Time{Time: time.Now()}, machineName
		})
		s.settle(ctx)
		Expect(gone(s, key, &bootstrapv1.PoolbootConfig{})).To(BeTrue())
		found := &corev1.Node{}
		Expect(s.workload.Get(ctx, node, found)).To(Succeed())
		Expect(found.Spec.Unschedulable).To(BeTrue())
	})

	It("does not connect to a Cluster that is being deleted", func() {
		cluster := newCluster()
		cluster.Finalizers = []string{clusterv1.ClusterFinalizer}
		cluster.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		s := world(cluster, 0)
		s.connected = false
		s.settle(ctx)
		Expect(gone(s, key, &bootstrapv1.PoolbootConfig{})).To(BeTrue())
		Expect(gone(s, overlay, &corev1.Secret{})).To(BeTrue())
	})
})
