package updates

import (
	"os"
	"regexp"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/clusterapi"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/sourcetree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

// The pools with which the examples of docs/tasks.md begin.
const taskPools = `# pools.yaml
apiVersion: poolboot.io/v1alpha1
kind: MachineConfigPool
metadata: {name: worker}
spec:
  clusterName: edge
  poolRole: worker
  machineConfigSelector: {matchLabels: {poolboot.io/role: worker}}
---
apiVersion: poolboot.io/v1alpha1
kind: MachineConfigPool
metadata: {name: infra}
spec:
  clusterName: edge
  poolRole: infra
  machineConfigSelector: {matchLabels: {poolboot.io/role: infra}}
---
apiVersion: poolboot.io/v1alpha1
kind: MachineConfig
metadata: {name: 51-infra, labels: {poolboot.io/role: infra}}
spec:
  config: {ignition: {version: 3.4.0}, storage: {files: [{path: /etc/infratest, contents: {source: "data:,infra"}}]}}
`

// Each spec runs the commands of a section.
var _ = Describe("An operator can, as docs/tasks.md shows,", Ordered, func() {
	var s *flowSite

	BeforeAll(func(ctx SpecContext) {
		s = &flowSite{Tenant: tenant.NewEmpty(ctx, lab), dir: GinkgoT().TempDir()}
		s.CreateCluster(ctx, clusterapi.ClusterOptions{})
		s.writeKubeconfigs()
		s.write(taskPools)
		Expect(s.runInShell(ctx, "hub", "kubectl apply -f pools.yaml")).To(ContainSubstring("infra created"))
		s.AddHost(ctx, "server-1")
		s.AddHost(ctx, "server-2")
		s.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 2, Labels: map[string]string{"node-role.kubernetes.io/infra": ""},
			Config: func(spec *bootstrapv1.BootSpec) { spec.NodeNameSource = bootstrapv1.NodeNameSourceHost }})
		Eventually(ctx, func() []bootstrapv1.PoolbootConfig { return s.Configs(ctx, "infra") }).Should(HaveLen(2))
		for _, config := range s.Configs(ctx, "infra") {
			expectJoined(ctx, s.Tenant, &config)
		}
	}, NodeTimeout(5*time.Minute))

	// expectReboots expects that a section reboots both hosts.
	expectReboots := func(ctx SpecContext, title string) {
		one, two := lab.Hardware.Host("server-1"), lab.Hardware.Host("server-2")
		before := []string{one.BootID(), two.BootID()}
		page, err := os.ReadFile(sourcetree.Path("docs", "tasks.md"))
		Expect(err).NotTo(HaveOccurred())
		section := regexp.MustCompile("(?ms)^## " + title + "\n(.*?)^## ").FindSubmatch(page)
		Expect(section).NotTo(BeNil(), title)
		s.runSection(ctx, section[1])
		Expect(one.BootID()).NotTo(Or(BeEmpty(), Equal(before[0])))
		Expect(two.BootID()).NotTo(Or(BeEmpty(), Equal(before[1])))
	}

	It("try a change on one host first", func(ctx SpecContext) {
		expectReboots(ctx, "Try a change on one host first")
		Expect(lab.Hardware.Host("server-2").Run(ctx, "cat", "/etc/change")).To(Equal("change"))
	}, SpecTimeout(8*time.Minute))

	It("reboot a pool, and one host", func(ctx SpecContext) { expectReboots(ctx, "Reboot hosts without a change") }, SpecTimeout(8*time.Minute))
})
