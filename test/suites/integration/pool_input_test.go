package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

// formatPool returns the YAML of a pool. more is indented as fields of its spec.
func formatPool(name, cluster, role string, more ...string) string {
	return fmt.Sprintf(`apiVersion: poolboot.io/v1alpha1
kind: MachineConfigPool
metadata: {name: %s}
spec:
  clusterName: %s
  poolRole: %s
  machineConfigSelector: {matchLabels: {role: infra}}
`, name, cluster, role) + strings.Join(more, "")
}

var _ = Describe("A new pool", func() {
	// apply runs kubectl apply and returns its output.
	apply := func(ctx SpecContext, t *tenant.Tenant, yaml string) (string, error) {
		GinkgoHelper()
		path := filepath.Join(GinkgoT().TempDir(), "pool.yaml")
		Expect(os.WriteFile(path, []byte(yaml), 0o600)).To(Succeed())
		return lab.Kubectl(ctx, lab.Management, "apply", "--namespace", t.Namespace, "-f", path)
	}

	It("for a Cluster of another namespace gets a warning and a condition, and does not affect that Cluster", func(ctx SpecContext) {
		other, t := tenant.New(ctx, lab, 0), tenant.NewEmpty(ctx, lab)
		Eventually(ctx, getSources(other.Pool("infra"))).Should(HaveLen(2))
		Expect(apply(ctx, t, formatPool("infra", other.Namespace, "infra"))).To(And(ContainSubstring("created"),
			ContainSubstring("Warning: spec.clusterName: Cluster "+t.Namespace+"/"+other.Namespace+" does not exist now"),
			ContainSubstring("a pool must be in the namespace of its Cluster")))
		Eventually(ctx, getPoolCondition(t.Pool("infra"), poolv1.DegradedCondition)).Should(And(HavePrefix("True ClusterNotFound"),
			ContainSubstring(t.Namespace+"/"+other.Namespace), ContainSubstring("create it")))
		Consistently(ctx, getPoolCondition(other.Pool("infra"), poolv1.DegradedCondition)).Should(HavePrefix("False"))
		_, err := lab.Kubectl(ctx, lab.Management, "delete", "pbpool", "infra", "--namespace", t.Namespace)
		Expect(err).NotTo(HaveOccurred())
	})

	It("with the role of another pool is refused with the other pool's name, until that pool is deleted", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 0)
		_, err := apply(ctx, t, formatPool("infra-2", t.Namespace, "infra"))
		Expect(err).To(MatchError(And(ContainSubstring("spec.poolRole"), ContainSubstring("MachineConfigPool infra of Cluster "+t.Namespace))))
		Expect(lab.ManagementClient.Delete(ctx, t.Pool("infra"))).To(Succeed())
		Expect(apply(ctx, t, formatPool("infra-2", t.Namespace, "infra"))).To(ContainSubstring("created"))
	})

	It("that can share Nodes with another pool gets a warning, and is refused if it always shares them", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 0)
		Expect(apply(ctx, t, formatPool("far", t.Namespace, "far", "  nodeSelector: {matchLabels: {node-restriction.kubernetes.io/site: far}}\n"))).To(And(
			ContainSubstring("created"), ContainSubstring("Warning: spec.nodeSelector: a Node can have these labels and those of MachineConfigPool(s) infra")))
		_, err := apply(ctx, t, formatPool("gpu", t.Namespace, "gpu", "  nodeSelector: {matchLabels: {node-role.kubernetes.io/infra: \"\"}}\n"))
		Expect(err).To(MatchError(And(ContainSubstring("spec.nodeSelector"), ContainSubstring("infra"))))
	})

	It("that selects no MachineConfig gets a warning, and renders those of the worker pool", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 0)
		Expect(lab.ManagementClient.Delete(ctx, t.MachineConfig("51-infra", "", "", ""))).To(Succeed())
		Expect(apply(ctx, t, formatPool("storage", t.Namespace, "storage"))).To(And(ContainSubstring("created"),
			ContainSubstring("Warning: spec.machineConfigSelector selects no MachineConfig of namespace "+t.Namespace+" yet")))
		Eventually(ctx, getSources(t.Pool("storage"))).Should(Equal([]string{"00-worker"}))
		Expect(getPoolCondition(t.Pool("storage"), poolv1.DegradedCondition)(ctx)).To(HavePrefix("False"))
	})

	DescribeTable("in one file with its MachineConfig gets one warning, which says that something comes later,", func(ctx SpecContext, isFirst bool, warning string) {
		t := tenant.New(ctx, lab, 0)
		documents := []string{"apiVersion: poolboot.io/v1alpha1\nkind: MachineConfig\nmetadata: {name: 50-gpu, labels: {role: gpu}}\nspec: {kernelArguments: [quiet]}\n",
			strings.Replace(formatPool("gpu", t.Namespace, "gpu"), "role: infra", "role: gpu", 1)}
		if isFirst {
			slices.Reverse(documents)
		}
		output, err := apply(ctx, t, strings.Join(documents, "---\n"))
		Expect(err).NotTo(HaveOccurred())
		Expect(regexp.MustCompile("(?m)^Warning: .*").FindAllString(output, -1)).To(HaveExactElements(HavePrefix("Warning: " + warning)))
	},
		Entry("after the MachineConfig", false, "metadata.labels: no pool selects them yet, so no host gets this MachineConfig. If you do not create its pool next, correct them"),
		Entry("before the MachineConfig", true, "spec.machineConfigSelector selects no MachineConfig of namespace "),
	)
})
