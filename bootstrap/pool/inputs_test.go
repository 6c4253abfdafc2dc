package pool_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

var _ = Describe("Inputs", func() {
	type cluster struct {
		pools   []poolv1.MachineConfigPool
		configs []poolv1.MachineConfig
	}
	newCluster := func() *cluster {
		c := &cluster{
			pools: []poolv1.MachineConfigPool{newPool("worker"), newPool("infra"), newPool("storage")},
			configs: []poolv1.MachineConfig{newConfig("00-worker", "worker", "/a", "w"), newConfig("50-infra", "infra", "/b", "i"),
				newConfig("50-storage", "storage", "/c", "s")},
		}
		for i := range c.configs {
			c.configs[i].UID, c.configs[i].Generation = "1", 1
		}
		return c
	}
	DescribeTable("change", func(change func(c *cluster), others bool) {
		before, err := pool.InputsHash("infra", newCluster().pools, newCluster().configs)
		Expect(err).NotTo(HaveOccurred())
		c := newCluster()
		change(c)
		after, err := pool.InputsHash("infra", c.pools, c.configs)
		Expect(err).NotTo(HaveOccurred())
		Expect(after != before).To(Equal(others))
	},
		Entry("when a MachineConfig has changed", func(c *cluster) { c.configs[1].Generation = 2 }, true),
		Entry("when a MachineConfig has changed that it inherits", func(c *cluster) { c.configs[0].Generation = 2 }, true),
		Entry("when a MachineConfig was deleted and created again", func(c *cluster) { c.configs[1].UID = "2" }, true),
		Entry("when a MachineConfig has another name", func(c *cluster) { c.configs[1].Name = "51-infra" }, true),
		Entry("when a MachineConfig was deleted", func(c *cluster) { c.configs = c.configs[:1] }, true),
		Entry("when it gets another MachineConfig", func(c *cluster) { c.configs[2].Labels[roleLabel] = "infra" }, true),
		Entry("when anything in its spec has changed", func(c *cluster) { c.pools[1].Spec.Node.Labels = map[string]string{"a": "b"} }, true),
		Entry("when anything in the worker pool's spec has changed", func(c *cluster) { c.pools[0].Spec.Node.Labels = map[string]string{"a": "b"} }, true),
		Entry("when it has another name", func(c *cluster) { c.pools[1].Name = "infra-2" }, true),
		Entry("not when the pool is paused", func(c *cluster) {
			c.pools[1].Spec.Paused, c.pools[1].Annotations = new(true), map[string]string{poolv1.PausedConfigurationAnnotation: "rendered-infra-0"}
		}, false),
		Entry("not when the pool hands out an earlier config", func(c *cluster) { c.pools[1].Spec.ConfigurationName = "rendered-infra-0" }, false),
		Entry("not when another pool has changed", func(c *cluster) { c.pools[2].Spec.Paused = new(true) }, false),
		Entry("not when another pool's MachineConfig has", func(c *cluster) { c.configs[2].Generation = 2 }, false),
		Entry("not when metadata or the status of a MachineConfig has", func(c *cluster) { c.configs[1].ResourceVersion = "2" }, false),
		Entry("not when its status has", func(c *cluster) { c.pools[1].Status.ObservedGeneration = 2 }, false),
		Entry("not when all come in another order", func(c *cluster) {
			c.pools[0], c.pools[2] = c.pools[2], c.pools[0]
			c.configs[0], c.configs[2] = c.configs[2], c.configs[0]
		}, false),
	)

	DescribeTable("have another ID", func(change func(c *cluster), others bool) {
		before, err := pool.InputsID("infra", newCluster().pools, newCluster().configs)
		Expect(err).NotTo(HaveOccurred())
		c := newCluster()
		change(c)
		after, err := pool.InputsID("infra", c.pools, c.configs)
		Expect(err).NotTo(HaveOccurred())
		Expect(after != before).To(Equal(others))
	},
		Entry("when the spec of a MachineConfig has changed", func(c *cluster) { c.configs[1].Generation = 2 }, true),
		Entry("when that of an inherited MachineConfig has changed", func(c *cluster) { c.configs[0].Generation = 2 }, true),
		Entry("when a MachineConfig was deleted and created again", func(c *cluster) { c.configs[1].UID = "2" }, true),
		Entry("when a MachineConfig was deleted", func(c *cluster) { c.configs = c.configs[:1] }, true),
		Entry("when the worker pool has changed", func(c *cluster) { c.pools[0].Generation = 2 }, true),
		Entry("not when metadata of a MachineConfig has changed", func(c *cluster) { c.configs[1].ResourceVersion = "2" }, false),
		Entry("not when another pool's MachineConfig has changed", func(c *cluster) { c.configs[2].Generation = 2 }, false),
	)

	DescribeTable("return the error of Render when the sources can't be determined", func(pools ...poolv1.MachineConfigPool) {
		_, err := pool.InputsHash("infra", pools, nil)
		_, renderErr := pool.Render("infra", pools, nil)
		Expect(err).To(And(HaveOccurred(), Equal(renderErr)))
	},
		Entry("without the pool", newPool("worker")),
		Entry("without the worker pool", newPool("infra")),
		Entry("with two of the role", newPool("worker"), newPool("infra"), newPool("infra")),
		Entry("with a malformed selector", newPool("worker"), selectingConfigs(newPool("infra"), requirement("a", "Near"))),
	)

	It("select MachineConfigs by the pool's own selector only", func() {
		labels := map[string]string{roleLabel: "infra"}
		Expect(pool.Selects(newPool("infra"), labels)).To(BeTrue())
		Expect(pool.Selects(newPool("worker"), labels)).To(BeFalse())
		Expect(pool.Selects(poolv1.MachineConfigPool{}, labels)).To(BeFalse())
		Expect(pool.Selects(selectingConfigs(newPool("infra"), requirement("a", "Near")), labels)).To(BeFalse())
	})
})

// selectingConfigs adds requirements to the machineConfigSelector of a pool.
func selectingConfigs(p poolv1.MachineConfigPool, requirements ...metav1.LabelSelectorRequirement) poolv1.MachineConfigPool {
	p.Spec.MachineConfigSelector.MatchExpressions = requirements
	return p
}
