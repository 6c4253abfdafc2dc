package bootstrapdata

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/scope"
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
			got := obstacle(&scope.Scope{Config: w.config, Machine: w.machine, Cluster: w.cluster})
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
			w.machine, w.config.Spec.Host = nil, bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeEnrollment, NodeName: "kubernetes.default.svc", Enrollment: bootstrapv1.EnrolledHost{Name: "edge"}}
		}, bootstrapv1.NodeNameReservedReason),
		Entry("no control plane", func(w *world) { w.cluster.Status.Conditions = nil }, bootstrapv1.WaitingForControlPlaneReason),
	)
})
