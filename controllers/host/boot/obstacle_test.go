package boot

import (
	"encoding/json"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

var _ = Describe("A host that cannot get its configuration", func() {
	var s *setting
	BeforeEach(func() { s = newSetting() })

	DescribeTable("gets nothing, and the condition reports why,",
		func(ctx SpecContext, spoil func(), reason string, message ...string) {
			spoil()
			w := s.world()
			_, err := w.sendRequest(ctx)
			Expect(err).To(HaveOccurred(), "a fault backs off")
			expectNotPrepared(ctx, w, reason, message...)
			written := w.writes
			_, err = w.reconcile(ctx)
			Expect(err).To(HaveOccurred())
			Expect(w.newEvents()).To(BeEmpty(), "it is reported once")
			Expect(w.writes).To(BeNumerically("<=", written))
		},
		Entry("while its pool is not rendered", func() { s.infra.Status.Configuration = poolv1.PoolConfiguration{} },
			bootstrapv1.PoolNotRenderedReason, "edge-infra", "status.configuration"),
		Entry("when its pool does not exist", func() { s.config.Spec.PoolRole = "storage" },
			bootstrapv1.PoolNotFoundReason, "storage"),
		Entry("when no pool selects the role label of its Machine", func() {
			delete(s.machine.Labels, infraLabel)
			s.machine.Labels[poolv1.NodeRoleLabelPrefix+"gpu"] = ""
		}, bootstrapv1.PoolNotFoundReason, poolv1.NodeRoleLabelPrefix+"gpu=", "spec.poolRole: worker"),
		Entry("when its Machine has a label that its pool excludes", func() {
			s.config.Spec.PoolRole = "infra"
			s.machine.Labels[poolv1.NodeRoleLabelPrefix+"worker"] = ""
			s.infra.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{infraLabel: ""}, MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: poolv1.NodeRoleLabelPrefix + "worker", Operator: metav1.LabelSelectorOpDoesNotExist}}}
		}, bootstrapv1.LabelConflictReason, "DoesNotExist", "Machine metadata.labels"),
		Entry("when two pools match", func() {
			s.worker.Spec.PoolRole = "storage"
			s.machine.Labels[poolv1.NodeRoleLabelPrefix+"storage"] = ""
		}, bootstrapv1.PoolConflictReason, "infra", "storage"),
		Entry("when the selector of its pool is not registrable", func() {
			s.config.Spec.PoolRole = "infra"
			s.infra.Spec.NodeSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: infraLabel, Operator: metav1.LabelSelectorOpNotIn, Values: []string{"no"}}}}
		}, bootstrapv1.PoolNotRegistrableReason, "edge-infra"),
		Entry("when two sources set different values for one label", func() {
			s.infra.Spec.Node.Labels = map[string]string{"example.com/rack": "a"}
			s.config.Spec.Node.Labels = map[string]string{"example.com/rack": "b"}
		}, bootstrapv1.LabelConflictReason, "example.com/rack"),
		Entry("when the extraConfig is invalid", func() {
			s.config.Spec.ExtraConfig = &bootstrapv1.ExtraConfig{Config: &runtime.RawExtension{Raw: json.RawMessage(`{"ignition":{"version":"9.9.9"}}`)}}
		}, bootstrapv1.ExtraConfigInvalidReason, "spec.extraConfig", "9.9.9"),
		Entry("when the Cluster has no endpoint", func() { s.cluster.Spec.ControlPlaneEndpoint = clusterv1.APIEndpoint{} },
			bootstrapv1.BootFailedReason, "spec.controlPlaneEndpoint"),
	)

	It("waits while its pool is missing instead of booting as a worker, and continues when the pool exists", func(ctx SpecContext) {
		w := s.world()
		Expect(w.management.Delete(ctx, s.infra.DeepCopy())).To(Succeed())
		_, err := w.sendRequest(ctx)
		Expect(err).To(HaveOccurred())
		expectNotPrepared(ctx, w, bootstrapv1.PoolNotFoundReason, infraLabel, "create that pool")
		Expect(w.nodes(ctx)).To(BeEmpty())
		Expect(w.management.Create(ctx, newPool("edge-infra", "infra"))).To(Succeed())
		Expect(w.reconcile(ctx)).To(BeZero())
		expectPrepared(ctx, w, machineName)
	})

	It("waits while its BareMetalHost has no consumerRef, and continues when it has one", func(ctx SpecContext) {
		consumer := s.host.Spec.ConsumerRef
		s.host.Spec.ConsumerRef = nil
		w := s.world()
		Expect(w.sendRequest(ctx)).To(BeZero(), "the watch on hosts triggers the next try")
		expectNotPrepared(ctx, w, bootstrapv1.HostNotReadyReason, hostName)
		change(ctx, w.management, s.host, func(h *hostObject) { h.Spec.ConsumerRef = consumer })
		Expect(w.reconcile(ctx)).To(BeZero())
		expectPrepared(ctx, w, machineName)
	})

	DescribeTable("waits while its workload cluster is unreachable, and continues when it is reachable",
		func(ctx SpecContext, down, up func(w *world)) {
			w := s.world()
			down(w)
			result, err := w.sendRequest(ctx)
			Expect(err).NotTo(HaveOccurred())
			Expect(result.RequeueAfter).To(Equal(retryInterval))
			expectNotPrepared(ctx, w, bootstrapv1.WorkloadClusterUnreachableReason, "edge")
			up(w)
			Expect(w.reconcile(ctx)).To(BeZero())
			expectPrepared(ctx, w, machineName)
		},
		Entry("without a connection", func(w *world) { w.clusters.down = true }, func(w *world) { w.clusters.down = false }),
		Entry("with a connection that just broke", func(w *world) {
			w.before = func(n int) error {
				if n == 1 {
					return fmt.Errorf("edge: %w", errRefused)
				}
				return nil
			}
		}, func(w *world) { clear(w.reconciler.outages.down) }),
	)

	DescribeTable("is ignored",
		func(ctx SpecContext, unless func(w *world)) {
			s.config.Status.Requests.RequestedTime = microTime(time.Now())
			unless(nil)
			w := s.world()
			Expect(w.reconcile(ctx)).To(BeZero())
			Expect(w.writes).To(BeZero())
		},
		Entry("while its cluster is paused", func(*world) { s.cluster.Spec.Paused = ptr.To(true) }),
		Entry("while its config is paused", func(*world) { s.config.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} }),
		Entry("when its Machine is being deleted", func(*world) {
			s.machine.Finalizers, s.machine.DeletionTimestamp = []string{"keep"}, ptr.To(metav1.Now())
		}),
		Entry("when its config is being deleted", func(*world) { s.config.DeletionTimestamp = ptr.To(metav1.Now()) }),
		Entry("when no Machine owns its config", func(*world) { s.config.OwnerReferences = nil }),
		Entry("when its token is revoked", func(*world) {
			s.config.Annotations = map[string]string{bootstrapv1.TokenStateAnnotation: string(bootstrapv1.TokenStateRevoked)}
		}),
		Entry("when its Node is in its pool", func(*world) {
			conditions.Set(s.config, metav1.Condition{Type: bootstrapv1.NodeInPoolCondition, Status: metav1.ConditionTrue, Reason: bootstrapv1.NodeReadyInPoolReason})
		}),
		Entry("when its request was answered", func(*world) { s.config.Status.Boot.AnsweredRequestTime = s.config.Status.Requests.RequestedTime }),
	)

	It("is ignored by a manager that watches other objects", func(ctx SpecContext) {
		w := s.world()
		w.reconciler.hosts.WatchFilterValue = "another"
		Expect(w.sendRequest(ctx)).To(BeZero())
		Expect(w.writes).To(BeZero())
	})
})
