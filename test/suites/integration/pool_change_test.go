package integration

import (
	"context"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	nodev1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/node/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

var _ = Describe("Labels and taints that are added to a pool", func() {
	It("are added to existing Nodes: labels whenever a Node lacks them, a taint once", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 1)
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		config := t.Config(ctx, "infra")
		waitForConfiguration(ctx, t, config)
		quiet := corev1.Taint{Key: "example.com/quiet", Effect: corev1.TaintEffectNoSchedule}
		node := func(ctx context.Context) *corev1.Node { return t.Node(ctx, config) }
		label := HaveField("Labels", HaveKeyWithValue("example.com/tier", "infra"))
		taint := HaveField("Spec.Taints", ContainElement(quiet))
		Expect(node(ctx)).NotTo(Or(label, taint))

		infra := t.Pool("infra")
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(infra), infra)).To(Succeed())
		original := infra.DeepCopy()
		infra.Spec.Node.Labels, infra.Spec.Node.Taints = map[string]string{"example.com/tier": "infra"}, []nodev1.Taint{{Key: quiet.Key, Effect: quiet.Effect}}
		Expect(lab.ManagementClient.Patch(ctx, infra, client.MergeFrom(original))).To(Succeed())
		Eventually(ctx, node).Should(And(label, taint))

		before := node(ctx)
		removed := before.DeepCopy()
		delete(removed.Labels, "example.com/tier")
		removed.Spec.Taints = slices.DeleteFunc(removed.Spec.Taints, func(t corev1.Taint) bool { return t == quiet })
		Expect(lab.WorkloadClient.Patch(ctx, removed, client.MergeFrom(before))).To(Succeed())
		Eventually(ctx, node).Should(label)
		Consistently(ctx, node).Should(And(label, Not(taint)))
	})
})

var _ = Describe("A running host with an agent", func() {
	It("changes to the pool that its labels name under the limit of that pool, and back when that pool is deleted", func(ctx SpecContext) {
		const hosts = 2
		t := tenant.New(ctx, lab, hosts)
		worker, infra := t.Pool("worker"), t.Pool("infra")
		t.Create(ctx, t.MachineConfig("52-infra", "infra", "/etc/change", "1"))
		t.Deploy(ctx, tenant.Deployment{Name: "worker", Replicas: hosts})
		nodes := joinHosts(ctx, t, "worker", hosts)
		configs := t.Configs(ctx, "worker")
		history, err := site.RecordNodes(ctx, lab.WorkloadClient)
		Expect(err).NotTo(HaveOccurred())
		// runs expects that all hosts run what a pool renders.
		runs := func(pool *poolv1.MachineConfigPool) {
			GinkgoHelper()
			Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(pool), pool)).To(Succeed())
			name := pool.Status.Configuration.Name
			for i := range configs {
				Eventually(ctx, t.Condition(&configs[i], bootstrapv1.UpdatedCondition)).Should(And(HavePrefix("True Done"), ContainSubstring(name)))
				Expect(configs[i].Status.PoolRole).To(Equal(pool.Spec.PoolRole))
				Expect(t.Node(ctx, &configs[i]).Labels).To(HaveKeyWithValue(poolv1.NodePoolLabel, pool.Spec.PoolRole))
			}
			Eventually(ctx, func() (*int32, error) {
				err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(pool), pool)
				return pool.Status.UpdatedHostCount, err
			}).Should(HaveValue(BeEquivalentTo(hosts)))
			Eventually(ctx, getPoolCondition(pool, poolv1.UpdatedCondition)).Should(HavePrefix("True"))
			Expect(maxUnavailableOf(history, nodes)).To(BeNumerically("<=", 1))
		}
		runs(worker)

		By("labeling both Nodes at the same time")
		for _, name := range nodes {
			_, err := lab.Kubectl(ctx, lab.Workload, "label", "node", name, poolv1.NodeRoleLabelPrefix+"infra=")
			Expect(err).NotTo(HaveOccurred())
		}
		runs(infra)
		for _, name := range nodes {
			Expect(toldRevisions(history, name)).To(HaveLen(2), "each host was told one other revision")
		}

		By("deleting the pool while it has both hosts")
		Eventually(ctx, func(g Gomega) {
			for i := range configs {
				g.Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(&configs[i]), &configs[i])).To(Succeed())
				g.Expect(configs[i].Status.FallbackPoolRole).To(Equal(poolv1.RoleWorker))
			}
		}).Should(Succeed())
		Expect(lab.Kubectl(ctx, lab.Management, "delete", "pbpool", infra.Name, "--namespace", t.Namespace)).To(ContainSubstring("deleted"))
		runs(worker)
	}, SpecTimeout(5*time.Minute))
})
