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

	It("refuses a static manager without what it needs, as in OpenShift's documentation", func() {
		for _, spec := range []string{static, "systemReserved: {cpu: 0m}, " + static} {
			clitest.ExpectError(runPoolboot("convert", "-f", clitest.WriteFile("objects.yaml", worker, infra, newKubeletConfig("cpumanager-enabled", "role: infra", "kubeletConfig: {"+spec+"}")),
				"--cluster", "infra-1", "-n", "edge"), 1, `KubeletConfig "cpumanager-enabled": spec.kubeletConfig.cpuManagerPolicy: Invalid value: "static": the kubelet does not start with it if no CPU is reserved: set reservedSystemCPUs, or cpu`)
		}
		clitest.ExpectError(runPoolboot("convert", "-f", clitest.WriteFile("objects.yaml", worker, infra, newKubeletConfig("m", "role: infra", "kubeletConfig: {memoryManagerPolicy: Static}")),
			"--cluster", "infra-1", "-n", "edge"), 1, `KubeletConfig "m": spec.kubeletConfig.memoryManagerPolicy: Invalid value: "Static": the kubelet does not start with it if no memory is reserved: set memory in the limits of reservedMemory`)
	})

	DescribeTable("converts a static CPU manager with reserved CPUs",
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
