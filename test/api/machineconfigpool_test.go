package api

import (
	"fmt"

	. "github.com/onsi/ginkgo/v2"
)

// kubelets is a patch of a pool's kubeletConfiguration.
func kubelets(fields string) string { return fmt.Sprintf("spec: {kubeletConfiguration: {%s}}", fields) }

var _ = Describe("A MachineConfigPool", func() {
	const kubeletType = "apiVersion: kubelet.config.k8s.io/v1beta1, kind: KubeletConfiguration"

	DescribeTable("is taken with", takes("MachineConfigPool"),
		Entry("what is required", `{}`),
		Entry("settings of kubelets", kubelets(kubeletType+", maxPods: 500, systemReserved: {cpu: 500m}, clusterDNS: [10.96.0.10]")),
		Entry("settings of kubelets that set nothing", kubelets(kubeletType)),
	)
	DescribeTable("is refused with", refuses("MachineConfigPool"),
		Entry("settings of kubelets without apiVersion", kubelets("kind: KubeletConfiguration, maxPods: 500"), "spec.kubeletConfiguration.apiVersion", "Required value"),
		Entry("settings of kubelets without kind", kubelets("apiVersion: kubelet.config.k8s.io/v1beta1, maxPods: 500"), "spec.kubeletConfiguration.kind", "Required value"),
		Entry("settings of kubelets that are nothing", "spec: {kubeletConfiguration: {}}", "spec.kubeletConfiguration.kind", "Required value"),
		Entry("settings of kubelets of another kind", kubelets("apiVersion: kubelet.config.k8s.io/v1beta1, kind: CredentialProviderConfig"), "spec.kubeletConfiguration",
			"kind must be KubeletConfiguration"),
		Entry("settings of kubelets of another version", kubelets("apiVersion: kubelet.config.k8s.io/v1, kind: KubeletConfiguration"), "spec.kubeletConfiguration",
			"apiVersion must be kubelet.config.k8s.io/v1beta1"),
		Entry("settings of kubelets with metadata", kubelets(kubeletType+", metadata: {name: edge}"), "spec.kubeletConfiguration", "has no metadata: remove it"),
	)
})
