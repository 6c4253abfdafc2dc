package machineconfigpool

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

var _ = Describe("Watches", func() {
	DescribeTable("trigger the pools that an object concerns",
		func(o client.Object, concerns func(client.Object, []poolv1.MachineConfigPool) poolFilter, names ...string) {
			otherCluster, otherNamespace := newPool("worker-c2", "worker", 0), newPool("elsewhere", "worker", 0)
			otherCluster.Spec.ClusterName, otherNamespace.Namespace = "c2", "elsewhere"
			s := newFixture(newPool("worker", "worker", 0), newPool("infra", "infra", 0), otherCluster, otherNamespace)
			var found []string
			for _, request := range s.reconciler.requestPools(concerns)(ctx(), o) {
				Expect(request.Namespace).To(Equal(namespace))
				found = append(found, request.Name)
			}
			Expect(found).To(ConsistOf(names))
		},
		Entry("a Cluster: its pools", cluster(), ofCluster, "worker", "infra"),
		Entry("a pool: those of its Cluster", newPool("worker", "worker", 0), ofPool, "worker", "infra"),
		Entry("a MachineConfig of worker: every pool of the Clusters whose worker pool selects it", config("00-base", "worker", ""), ofMachineConfig, "worker", "infra", "worker-c2"),
		Entry("a custom pool's MachineConfig: that pool only", config("50-infra", "infra", ""), ofMachineConfig, "infra"),
		Entry("a MachineConfig that no pool selects: none", config("50-other", "other", ""), ofMachineConfig),
		Entry("a rendered config: the pool for which it was created", rendered(), ofMachineConfig, "infra"),
		Entry("a PoolbootConfig: its recorded pool", machine("m1", "infra", "", false), ofPoolbootConfig, "infra"),
		Entry("a PoolbootConfig that has joined and lost its record: all of the Cluster", joined(machine("m1", "", "", false)), ofPoolbootConfig, "worker", "infra"),
		Entry("a PoolbootConfig without a pool yet: none", machine("m1", "", "", false), ofPoolbootConfig),
	)

	DescribeTable("ignore what a pool does not count",
		func(change func(*bootstrapv1.PoolbootConfig), counts bool) {
			before := machine("m1", "infra", "rendered-infra-0", false)
			after := before.DeepCopy()
			change(after)
			Expect(countsDiffer(event.UpdateEvent{ObjectOld: before, ObjectNew: after})).To(Equal(counts))
		},
		Entry("a boot request", func(c *bootstrapv1.PoolbootConfig) { c.Status.Boot.CredentialID = "abcdef" }, false),
		Entry("a move to another pool", func(c *bootstrapv1.PoolbootConfig) { c.Status.PoolRole = "worker" }, true),
		Entry("a boot", func(c *bootstrapv1.PoolbootConfig) { c.Status.Boot.ServedConfiguration.Name = "rendered-infra-1" }, true),
		Entry("a Node that is Ready", func(c *bootstrapv1.PoolbootConfig) {
			c.Status.Conditions = machine("m1", "", "", true).Status.Conditions
		}, true),
		Entry("a kubelet that joined", func(c *bootstrapv1.PoolbootConfig) { joined(c) }, true),
		Entry("a boot that needs a user to act", func(c *bootstrapv1.PoolbootConfig) {
			withProblem(c, bootstrapv1.BootPreparedCondition, bootstrapv1.LabelConflictReason, "make them agree")
		}, true),
		Entry("a boot that waits", func(c *bootstrapv1.PoolbootConfig) {
			withProblem(c, bootstrapv1.BootPreparedCondition, bootstrapv1.WaitingForHostReason, "")
		}, false),
	)
})

func rendered() *poolv1.MachineConfig {
	c := config("rendered-infra-0", "worker", "")
	c.Labels[poolv1.RenderedForLabel] = "infra"
	return c
}
