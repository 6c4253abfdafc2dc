package convert

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/clitest"
)

var _ = Describe("convert, of KubeletConfigs that rely on what OpenShift reserves", func() {
	worker, infra := addLabel(clitest.OpenShiftWorker, `role: worker`), addLabel(clitest.OpenShiftInfra, `role: infra`)
	remarksOf := func(documents ...string) string {
		r := runPoolboot("convert", "-f", clitest.WriteFile("objects.yaml", append([]string{worker, infra}, documents...)...), "--cluster", "infra-1", "-n", "edge")
		Expect(r.Code).To(BeZero(), r.ErrOut)
		return r.ErrOut
	}
	const static = "cpuManagerPolicy: static, cpuManagerReconcilePeriod: 5s"
	const noCPUs = `: spec.kubeletConfig.cpuManagerPolicy: the kubelets of the pool infra do not start: static needs reserved CPUs`

	It("warns of a static CPU manager without reserved CPUs, as in OpenShift's documentation", func() {
		Expect(remarksOf(newKubeletConfig("cpumanager-enabled", "role: infra", "kubeletConfig: {"+static+"}"))).To(HavePrefix(`warning: KubeletConfig "cpumanager-enabled"` + noCPUs))
		Expect(remarksOf(newKubeletConfig("a", "role: infra", "kubeletConfig: {systemReserved: {cpu: 0m}, "+static+"}"))).To(HavePrefix(`warning: KubeletConfig "a"` + noCPUs))
	})

	DescribeTable("does not warn of a static CPU manager with reserved CPUs",
		func(documents ...string) { Expect(remarksOf(documents...)).NotTo(ContainSubstring("do not start")) },
		Entry("of the system", newKubeletConfig("a", "role: infra", "kubeletConfig: {systemReserved: {cpu: 500m}, "+static+"}")),
		Entry("of Kubernetes", newKubeletConfig("a", "role: infra", "kubeletConfig: {kubeReserved: {cpu: 500m}, "+static+"}")),
		Entry("by number", newKubeletConfig("a", "role: infra", "kubeletConfig: {reservedSystemCPUs: 0-1, "+static+"}")),
		Entry("by the size of the host", newKubeletConfig("a", "role: infra", "autoSizingReserved: true, kubeletConfig: {"+static+"}")),
		Entry("of worker", newKubeletConfig("a", "role: infra", "kubeletConfig: {"+static+"}"), newKubeletConfig("b", "role: worker", "kubeletConfig: {systemReserved: {cpu: 500m}}")),
		Entry("by the size of the host, of worker", newKubeletConfig("a", "role: infra", "kubeletConfig: {"+static+"}"), newKubeletConfig("b", "role: worker", "autoSizingReserved: true")),
	)

	DescribeTable("compares the memory that is reserved of NUMA nodes with the other reservations",
		func(kubeletConfig, warning string) {
			got := remarksOf(newKubeletConfig("m", "role: infra", "kubeletConfig: {memoryManagerPolicy: Static, reservedMemory: [{numaNode: 0, limits: {memory: 1Gi}}, {numaNode: 1, limits: {memory: 100Mi}}], "+kubeletConfig+"}"))
			if warning == "" {
				Expect(got).To(BeEmpty())
				return
			}
			Expect(got).To(HavePrefix(`warning: KubeletConfig "m": spec.kubeletConfig.reservedMemory: the kubelets of the pool infra do not start: ` + warning))
		},
		Entry("of OpenShift's default only", "maxPods: 100", "its memory is 1124Mi, and kubeReserved, systemReserved and evictionHard are 100Mi together"),
		Entry("the same", "kubeReserved: {memory: 512Mi}, systemReserved: {memory: 512Mi}", ""),
		Entry("the same, with evictions", "systemReserved: {memory: 1000Mi}, evictionHard: {memory.available: 124Mi}", ""),
		Entry("without evictions for memory", "systemReserved: {memory: 1124Mi}, evictionHard: {nodefs.available: 5%}", ""),
		Entry("with a percentage, which depends on the host", "systemReserved: {memory: 1Mi}, evictionHard: {memory.available: 5%}", ""),
	)
})
