package poolbootconfig

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
)

var _ = Describe("An obstacle to the creation of a data Secret", func() {
	type world struct {
		config  *bootstrapv1.PoolbootConfig
		machine *clusterv1.Machine
		cluster *clusterv1.Cluster
	}
	DescribeTable("is reported with a reason:",
		func(change func(*world), reason string) {
			w := &world{newConfig(), newMachine(nil), newCluster()}
			change(w)
			got := obstacle(w.config, w.machine, w.cluster)
			if reason == "" {
				Expect(got).To(BeNil())
				return
			}
			Expect(got).NotTo(BeNil())
			Expect(got.Reason).To(Equal(reason))
			Expect(got.Type).To(Equal(bootstrapv1.DataSecretAvailableCondition))
			Expect(got.Status).To(Equal(metav1.ConditionFalse))
			Expect(got.Message).NotTo(BeEmpty())
		},
		Entry("no obstacle", func(*world) {}, ""),
		Entry("no owner", func(w *world) { w.machine = nil }, bootstrapv1.WaitingForOwnerReason),
		Entry("a MachinePool as owner", func(w *world) {
			w.machine = nil
			w.config.OwnerReferences = []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "MachinePool", Name: "p"}}
		}, bootstrapv1.MachinePoolNotSupportedReason),
		Entry("a control plane Machine, before anything that can still appear", func(w *world) {
			w.machine.Labels = map[string]string{clusterv1.MachineControlPlaneLabel: ""}
			w.cluster = nil
		}, bootstrapv1.ControlPlaneNotSupportedReason),
		Entry("no Cluster", func(w *world) { w.cluster = nil }, bootstrapv1.WaitingForClusterReason),
		Entry("no infrastructure", func(w *world) {
			w.cluster.Status.Initialization.InfrastructureProvisioned = nil
		}, bootstrapv1.WaitingForClusterInfrastructureReason),
		Entry("a Machine whose name is the control plane endpoint's", func(w *world) {
			w.cluster.Spec.ControlPlaneEndpoint.Host = machineName
		}, bootstrapv1.NodeNameReservedReason),
		Entry("a Machine whose name is the control plane endpoint's, and whose Node exists", func(w *world) {
			w.cluster.Spec.ControlPlaneEndpoint.Host = machineName
			w.config.Status.NodeRef = bootstrapv1.NodeReference{Name: machineName}
		}, ""),
		Entry("a host that enrolled as the API server", func(w *world) {
			w.machine, w.config.Spec.Host = nil, bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeEnrollment, NodeName: "kubernetes.default.svc", Enrollment: bootstrapv1.EnrolledHost{Name: "edge", Address: "192.0.2.7"}}
		}, bootstrapv1.NodeNameReservedReason),
		Entry("no control plane", func(w *world) { w.cluster.Status.Conditions = nil }, bootstrapv1.WaitingForControlPlaneReason),
	)
})

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
			got := ready(newConfig(change...))
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
		Entry("a deletion", metav1.ConditionFalse, bootstrapv1.DeletingReason, complete, deleted(0)),
	)
})
