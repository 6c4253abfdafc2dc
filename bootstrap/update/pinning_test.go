package update_test

import (
	"fmt"
	"net/url"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

const kubeletDropIns = "/etc/kubernetes/kubelet.conf.d/"

// kubelet returns a config with drop-ins of the kubelet's configuration: pairs of a name and fields in flow style.
func kubelet(dropIns ...string) string {
	var files []string
	for i := 0; i < len(dropIns); i += 2 {
		text := "{apiVersion: kubelet.config.k8s.io/v1beta1, kind: KubeletConfiguration, " + dropIns[i+1] + "}"
		files = append(files, fmt.Sprintf(`{path: %s%s, contents: {source: "data:,%s"}}`, kubeletDropIns, dropIns[i], url.PathEscape(text)))
	}
	return withIgnition("storage: {files: [" + strings.Join(files, ", ") + "]}")
}

var _ = Describe("A change of what the kubelet pins to CPUs and memory", func() {
	const (
		worker, pool = "97-poolboot-worker.conf", "98-poolboot-pool.conf"
		restart      = "Restart kubelet.service"
	)
	without := []string{"Drain", "Stop poolboot-checkpoints.service", restart}
	of := func(before, after string, policies ...string) []string {
		GinkgoHelper()
		plan := planOf(before, after)
		if len(policies) > 0 {
			plan = planOf(before, after, policy(policies[0]))
		}
		Expect(plan.Obstacles).To(BeEmpty())
		return describe(plan.Actions)
	}

	DescribeTable("drains the Node, and starts the kubelet without its checkpoints, in both directions", func(before, after string) {
		Expect(of(before, after)).To(Equal(without))
		Expect(of(after, before)).To(Equal(without))
		plan := planOf(before, after)
		Expect(plan.Drains()).To(BeTrue())
		Expect(plan.Effect()).To(Equal(update.EffectRestart))
	},
		Entry("the policy for CPUs", kubelet(pool, "maxPods: 250"), kubelet(pool, `maxPods: 250, cpuManagerPolicy: static, reservedSystemCPUs: "0"`)),
		Entry("of worker", kubelet(), kubelet(worker, "cpuManagerPolicy: static")),
		Entry("its options", kubelet(pool, "cpuManagerPolicy: static"), kubelet(pool, `cpuManagerPolicy: static, cpuManagerPolicyOptions: {strict-cpu-reservation: "true"}`)),
		Entry("the policy for memory", kubelet(pool, "memoryManagerPolicy: None"), kubelet(pool, "memoryManagerPolicy: Static")),
		Entry("reserved CPUs", kubelet(pool, `reservedSystemCPUs: "0"`), kubelet(pool, `reservedSystemCPUs: "0-1"`)),
		Entry("reserved memory", kubelet(pool, `reservedMemory: [{numaNode: 0, limits: {memory: 1Gi}}]`), kubelet(pool, `reservedMemory: [{numaNode: 0, limits: {memory: 2Gi}}]`)),
		Entry("the policy for topology", kubelet(), kubelet(pool, "topologyManagerPolicy: single-numa-node")),
		Entry("its scope", kubelet(pool, "topologyManagerScope: pod"), kubelet(pool, "topologyManagerScope: container")),
		Entry("its options", kubelet(), kubelet(pool, `topologyManagerPolicyOptions: {max-allowable-numa-nodes: "9"}`)),
		Entry("the format of checkpoints", kubelet(), kubelet(pool, "featureGates: {PodLevelResourceManagers: true}")),
		Entry("reserved resources, while CPUs are pinned", kubelet(worker, "cpuManagerPolicy: static", pool, "systemReserved: {cpu: 500m}"),
			kubelet(worker, "cpuManagerPolicy: static", pool, "systemReserved: {cpu: 1500m}")),
		Entry("reserved resources, while memory is pinned", kubelet(worker, "memoryManagerPolicy: Static"), kubelet(worker, "memoryManagerPolicy: Static, kubeReserved: {memory: 1Gi}")),
	)

	It("needs this whatever the policy of a pool says, unless the host reboots: then nothing runs when the kubelet starts", func() {
		before, after := kubelet("50-mine.conf", "maxPods: 9"), kubelet("50-mine.conf", "cpuManagerPolicy: static")
		Expect(of(before, after, "{files: [{path: "+kubeletDropIns+"50-mine.conf, actions: [{type: None}]}]}")).To(Equal(without))
		Expect(of(before, after, "{files: [{path: /etc/kubernetes, actions: [{type: Reload, unit: a.service}]}]}")).
			To(Equal([]string{"Drain", "Stop poolboot-checkpoints.service", "Reload a.service", restart}))
		Expect(of(before, after)).To(Equal([]string{"Reboot"}))
	})

	DescribeTable("is not", func(before, after string) {
		Expect(of(before, after)).To(Equal([]string{restart}))
		Expect(of(after, before)).To(Equal([]string{restart}))
	},
		Entry("another setting", kubelet(pool, "cpuManagerPolicy: static, maxPods: 9"), kubelet(pool, "cpuManagerPolicy: static, maxPods: 10")),
		Entry("the same value in another notation", kubelet(pool, "cpuManagerPolicy: static"), kubelet(pool, `"cpuManagerPolicy": "static"`)),
		Entry("a setting that the pool overrides", kubelet(worker, "cpuManagerPolicy: none", pool, "cpuManagerPolicy: static"), kubelet(worker, "maxPods: 9", pool, "cpuManagerPolicy: static")),
		Entry("reserved resources while nothing is pinned", kubelet(pool, "systemReserved: {cpu: 1}"), kubelet(pool, "systemReserved: {cpu: 2}")),
		Entry("another feature gate", kubelet(pool, "featureGates: {A: true}"), kubelet(pool, "featureGates: {B: true}")),
		Entry("a file that is not YAML", kubelet(pool, "a: ["), kubelet(pool, "b: [")),
	)

	It("is found in the order of the kubelet: the last drop-in wins, and objects are merged by key", func() {
		options := func(text string) string { return "cpuManagerPolicyOptions: {" + text + "}" }
		before := kubelet(worker, options("a: x, b: x"), pool, options("b: z"))
		Expect(of(before, kubelet(worker, options("a: x"), pool, options("b: z")))).To(Equal([]string{restart}))
		Expect(of(before, kubelet(worker, options("a: z, b: x"), pool, options("b: z")))).To(Equal(without))
	})

	It("is also one of the flags of the kubelet, and of what the host computes", func() {
		dropIn := func(name, text string) string {
			return withIgnition("systemd: {units: [{name: kubelet.service, dropins: [{name: " + name + ", contents: \"" + text + "\"}]}]}")
		}
		const flags = `[Service]\nEnvironment='KUBELET_EXTRA_ARGS=--v=2 --cpu-manager-policy=static'`
		Expect(of(nothing, dropIn("a.conf", flags))).To(Equal([]string{"Drain", "Stop poolboot-checkpoints.service", "DaemonReload", restart}))
		Expect(of(dropIn("a.conf", flags), dropIn("b.conf", flags))).To(Equal([]string{"DaemonReload", restart}))
		Expect(of(nothing, file("/etc/default/kubelet", `contents: {source: "data:,KUBELET_EXTRA_ARGS=--reserved-cpus%200"}`),
			"{files: [{path: /etc/default, actions: [{type: Restart, unit: kubelet.service}]}]}")).To(ContainElement("Stop poolboot-checkpoints.service"))

		link := "links: [{path: " + kubeletDropIns + "97-poolboot-worker-reserved.conf, target: /run/a}]"
		pinned := strings.TrimSuffix(kubelet(worker, "cpuManagerPolicy: static"), "}}}")
		Expect(of(pinned+"}}}", pinned+", "+link+"}}}")).To(Equal(without))
		Expect(of(nothing, withIgnition("storage: {"+link+"}"))).To(Equal([]string{restart}))
	})

	It("stops the kubelet before any other change restarts it, and says why", func() {
		before := kubelet(worker, "maxPods: 1", pool, "maxPods: 1")
		plan := planOf(before, kubelet(worker, "maxPods: 2", pool, "cpuManagerPolicy: static"))
		Expect(describe(plan.Actions)).To(Equal([]string{"Drain", "Stop poolboot-checkpoints.service", restart, restart}))
		Expect(plan.Changes[0].Reason).To(Equal("the default for " + kubeletDropIns + worker))
		Expect(plan.Changes[1].Reason).To(Equal("it changes cpuManagerPolicy, so the kubelet must start without its checkpoints of CPUs and memory"))
	})
})
