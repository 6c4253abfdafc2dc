package outlook

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
)

var _ = Describe("Ready", func() {
	condition := func(kind string, status metav1.ConditionStatus, reason string) func(*bootstrapv1.PoolbootConfig) {
		return func(config *bootstrapv1.PoolbootConfig) {
			conditions.Set(config, metav1.Condition{Type: kind, Status: status, Reason: reason})
		}
	}
	complete := func(config *bootstrapv1.PoolbootConfig) {
		config.Status.DataSecretName = config.Name
		config.Status.Initialization.DataSecretCreated = ptr.To(true)
		condition(bootstrapv1.DataSecretAvailableCondition, metav1.ConditionTrue, bootstrapv1.DataSecretCreatedReason)(config)
		condition(bootstrapv1.PoolDecidedCondition, metav1.ConditionTrue, bootstrapv1.PoolFromMachineLabelsReason)(config)
	}
	DescribeTable("follows from the other conditions",
		func(status metav1.ConditionStatus, reason string, change ...func(*bootstrapv1.PoolbootConfig)) {
			config := &bootstrapv1.PoolbootConfig{ObjectMeta: metav1.ObjectMeta{Name: "machine"}}
			for _, apply := range change {
				apply(config)
			}
			got := Ready(config)
			Expect(got.Status).To(Equal(status))
			Expect(got.Reason).To(Equal(reason))
		},
		Entry("nothing known", metav1.ConditionFalse, "DataSecretAvailableUnknown"),
		Entry("the Secret and the pool", metav1.ConditionTrue, clusterv1.ReadyReason, complete),
		Entry("no name in the status", metav1.ConditionFalse, bootstrapv1.DataSecretFailedReason, complete,
			func(config *bootstrapv1.PoolbootConfig) { config.Status.DataSecretName = "" }),
		Entry("no Secret", metav1.ConditionFalse, bootstrapv1.WaitingForControlPlaneReason, complete,
			condition(bootstrapv1.DataSecretAvailableCondition, metav1.ConditionFalse, bootstrapv1.WaitingForControlPlaneReason)),
		Entry("no pool", metav1.ConditionFalse, bootstrapv1.PoolConflictReason, complete,
			condition(bootstrapv1.PoolDecidedCondition, metav1.ConditionFalse, bootstrapv1.PoolConflictReason)),
		Entry("a boot that no host has requested yet", metav1.ConditionTrue, clusterv1.ReadyReason, complete,
			condition(bootstrapv1.BootPreparedCondition, metav1.ConditionUnknown, bootstrapv1.WaitingForHostReason)),
		Entry("a boot that waits for its host", metav1.ConditionTrue, clusterv1.ReadyReason, complete,
			condition(bootstrapv1.BootPreparedCondition, metav1.ConditionFalse, bootstrapv1.HostNotReadyReason)),
		Entry("a boot that failed", metav1.ConditionFalse, bootstrapv1.NodeNameTakenReason, complete,
			condition(bootstrapv1.BootPreparedCondition, metav1.ConditionFalse, bootstrapv1.NodeNameTakenReason)),
		Entry("a boot that failed although the host joined later", metav1.ConditionTrue, clusterv1.ReadyReason, complete,
			condition(bootstrapv1.BootPreparedCondition, metav1.ConditionFalse, bootstrapv1.JoinCredentialExpiredReason),
			func(config *bootstrapv1.PoolbootConfig) {
				metav1.SetMetaDataAnnotation(&config.ObjectMeta, bootstrapv1.TokenStateAnnotation, string(bootstrapv1.TokenStateRevoked))
			}),
		Entry("a Node that waits for its kubelet", metav1.ConditionTrue, clusterv1.ReadyReason, complete,
			condition(bootstrapv1.NodeInPoolCondition, metav1.ConditionFalse, bootstrapv1.WaitingForKubeletReason)),
		Entry("a Node outside its pool", metav1.ConditionFalse, bootstrapv1.NodeOutsidePoolReason, complete,
			condition(bootstrapv1.NodeInPoolCondition, metav1.ConditionFalse, bootstrapv1.NodeOutsidePoolReason)),
		Entry("a deletion", metav1.ConditionFalse, bootstrapv1.DeletingReason, complete,
			func(config *bootstrapv1.PoolbootConfig) { config.DeletionTimestamp = ptr.To(metav1.Now()) }),
	)
})

var _ = Describe("Message", func() {
	It("does not say that a host has not requested its configuration once it has, and the manager did not see it", func() {
		config := &bootstrapv1.PoolbootConfig{}
		conditions.Set(config, metav1.Condition{Type: bootstrapv1.BootPreparedCondition, Status: metav1.ConditionUnknown, Reason: bootstrapv1.WaitingForRequestReason,
			Message: "host server-2 was chosen and has not requested its configuration from https://boot.example.com yet: check its console"})
		Expect(Message(config)).To(HavePrefix("host server-2 was chosen and has not requested"))
		config.Status.Requests.RequestedTime = ptr.To(metav1.NowMicro())
		stage, _ := record.StageOf(config)
		Expect(stage).To(Equal(record.StagePreparing))
		Expect(Message(config)).To(HavePrefix("the host has requested its configuration: "))
	})
})
