package operator

import (
	"os"
	"regexp"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/sourcetree"
)

// The pools with which the examples of docs/tasks.md begin.
const taskPools = `# pools.yaml
apiVersion: poolboot.io/v1alpha1
kind: MachineConfigPool
metadata: {name: worker}
spec:
  clusterName: edge
  poolRole: worker
  machineConfigSelector: {matchLabels: {machineconfiguration.openshift.io/role: worker}}
---
apiVersion: poolboot.io/v1alpha1
kind: MachineConfigPool
metadata: {name: infra}
spec:
  clusterName: edge
  poolRole: infra
  machineConfigSelector: {matchLabels: {machineconfiguration.openshift.io/role: infra}}
---
apiVersion: poolboot.io/v1alpha1
kind: MachineConfig
metadata: {name: 51-infra, labels: {machineconfiguration.openshift.io/role: infra}}
spec:
  config: {ignition: {version: 3.4.0}, storage: {files: [{path: /etc/infratest, contents: {source: "data:,infra"}}]}}
`

// describeTasks has the specs that run the commands of sections of docs/tasks.md. Each reboots both hosts of infra.
func describeTasks(reader func() *flowReader) {
	servers := []string{"server-1", "server-2"}
	bootIDs := func() (ids []string) {
		for _, server := range servers {
			ids = append(ids, reader().runInShell("edge", "kubectl get node "+server+" -o jsonpath={.status.nodeInfo.bootID}"))
		}
		return ids
	}

	BeforeAll(func(ctx SpecContext) {
		r := reader()
		r.write(taskPools)
		const labels = `'{"spec":{"template":{"metadata":{"labels":{"node-role.kubernetes.io/infra":"","node-role.kubernetes.io/worker":null}}}}}'`
		for _, line := range []string{
			"kubectl scale machinedeployment --all --replicas=0; until [ -z \"$(kubectl get machine -o name)\" ]; do sleep 1; done",
			"kubectl delete pbpool,pbmconf --all; kubectl delete baremetalhost server-3 --ignore-not-found",
			"kubectl patch machinedeployment infra --type=merge -p " + labels,
			"kubectl apply -f pools.yaml; kubectl scale machinedeployment infra --replicas=2",
		} {
			expectSuccess(r.inShell("hub", "set -e; "+line))
		}
		for _, server := range servers {
			Eventually(ctx, r.runInShell).WithArguments("edge", "kubectl get node "+server+` -o jsonpath='{.status.conditions[?(@.type=="Ready")].status}'`).Should(Equal("True"))
		}
	}, NodeTimeout(5*time.Minute))

	expectReboots := func(ctx SpecContext, title string) {
		before := bootIDs()
		page, err := os.ReadFile(sourcetree.Path("docs", "tasks.md"))
		Expect(err).NotTo(HaveOccurred())
		section := regexp.MustCompile("(?ms)^## " + title + "\n(.*?)^## ").FindSubmatch(page)
		Expect(section).NotTo(BeNil(), title)
		reader().runSection(ctx, section[1])
		for i, after := range bootIDs() {
			Expect(after).To(And(MatchRegexp("^[0-9a-f-]{36}$"), Not(Equal(before[i]))), servers[i])
		}
	}

	It("try a change on one host first", func(ctx SpecContext) {
		expectReboots(ctx, "Try a change on one host first")
		Expect(reader().runInShell("server-2", "cat /etc/change")).To(Equal("change"))
	}, SpecTimeout(8*time.Minute))

	It("reboot a pool, and one host", func(ctx SpecContext) { expectReboots(ctx, "Reboot hosts without a change") }, SpecTimeout(8*time.Minute))
}
