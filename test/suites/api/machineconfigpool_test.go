package api

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
)

// kubelets is a patch of a pool's kubeletConfiguration.
func kubelets(fields string) string { return fmt.Sprintf("spec: {kubeletConfiguration: {%s}}", fields) }

var _ = Describe("A MachineConfigPool", func() {
	const kubeletType = "apiVersion: kubelet.config.k8s.io/v1beta1, kind: KubeletConfiguration"

	DescribeTable("is taken with", takes("MachineConfigPool"),
		Entry("what is required", `{}`),
		Entry("the longest name", `metadata: {name: `+strings.Repeat("a", 63)+`}`),
		Entry("a selector of MachineConfigs by labels", `spec: {machineConfigSelector: {matchLabels: {role: edge}}}`),
		Entry("a selector of MachineConfigs by expressions", `spec: {machineConfigSelector: {matchExpressions: [{key: role, operator: Exists}]}}`),
		Entry("a node selector by labels", `spec: {nodeSelector: {matchLabels: {example.com/site: a}}}`),
		Entry("a node selector by expressions", `spec: {nodeSelector: {matchExpressions: [{key: example.com/site, operator: Exists}]}}`),
		Entry("settings of kubelets", kubelets(kubeletType+", maxPods: 500, systemReserved: {cpu: 500m}, clusterDNS: [10.96.0.10]")),
		Entry("settings of kubelets that set nothing", kubelets(kubeletType)),
	)
	DescribeTable("is taken with this about its Nodes:", func(ctx SpecContext, spec string) {
		takes("MachineConfigPool")(ctx, under(spec, "spec"))
	}, goodNodes)
	DescribeTable("is refused with this about its Nodes:", func(ctx SpecContext, spec, field string, words ...string) {
		refuses("MachineConfigPool")(ctx, under(spec, "spec"), "spec."+field, words...)
	}, badNodes)
	DescribeTable("is refused with", refuses("MachineConfigPool"),
		Entry("no Cluster", `spec: {clusterName: null}`, "spec.clusterName", "Required"),
		Entry("no role", `spec: {poolRole: null}`, "spec.poolRole", "Required"),
		Entry("a role with spaces", `spec: {poolRole: "NOT A ROLE!"}`, "spec.poolRole", "should match"),
		Entry("a role that is too long", `spec: {poolRole: `+strings.Repeat("a", 64)+`}`, "spec.poolRole", "63"),
		Entry("the role of the control plane", `spec: {poolRole: control-plane}`, "spec.poolRole", "control plane machines can't be in a pool"),
		Entry("its old name", `spec: {poolRole: master}`, "spec.poolRole", "control plane machines can't be in a pool"),
		Entry("the pool's label with another role", `spec: {nodeLabels: {node.cluster.x-k8s.io/pool: infra}}`, "spec."+poolLabel, "leave it out"),
		Entry("a Cluster that can't be", `spec: {clusterName: a..b.-c}`, "spec.clusterName", "lowercase RFC 1123 subdomain"),
		Entry("an empty selector of MachineConfigs", `spec: {machineConfigSelector: {}}`, "spec.machineConfigSelector", "leave it out"),
		Entry("a selector of MachineConfigs that has no labels", `spec: {machineConfigSelector: {matchLabels: {}, matchExpressions: []}}`, "spec.machineConfigSelector", "leave it out"),
		Entry("a template whose name can't be", `spec: {hostTemplateRef: {name: a..b.-c}}`, "spec.hostTemplateRef.name", "lowercase RFC 1123 subdomain"),
		Entry("a configuration whose name can't be", `spec: {paused: true, pausedConfiguration: {name: a..b}}`, "spec.pausedConfiguration.name", "lowercase RFC 1123 subdomain"),
		Entry("a node selector that is empty", `spec: {nodeSelector: {}}`, "spec.nodeSelector", "it must not be empty, because it would match nothing: leave it out for the default"),
		Entry("a node selector of empty parts", `spec: {nodeSelector: {matchLabels: {}, matchExpressions: []}}`, "spec.nodeSelector", "leave it out for the default"),
		Entry("a name that no label can hold", `metadata: {name: `+strings.Repeat("a", 64)+`}`, "metadata", "metadata.name must have at most 63 characters"),
		Entry("settings of kubelets without apiVersion", kubelets("kind: KubeletConfiguration, maxPods: 500"), "spec.kubeletConfiguration.apiVersion", "Required value"),
		Entry("settings of kubelets without kind", kubelets("apiVersion: kubelet.config.k8s.io/v1beta1, maxPods: 500"), "spec.kubeletConfiguration.kind", "Required value"),
		Entry("settings of kubelets that are nothing", "spec: {kubeletConfiguration: {}}", "spec.kubeletConfiguration.kind", "Required value"),
		Entry("settings of kubelets of another kind", kubelets("apiVersion: kubelet.config.k8s.io/v1beta1, kind: CredentialProviderConfig"), "spec.kubeletConfiguration",
			"kind must be KubeletConfiguration"),
		Entry("settings of kubelets of another version", kubelets("apiVersion: kubelet.config.k8s.io/v1, kind: KubeletConfiguration"), "spec.kubeletConfiguration",
			"apiVersion must be kubelet.config.k8s.io/v1beta1"),
		Entry("settings of kubelets with metadata", kubelets(kubeletType+", metadata: {name: edge}"), "spec.kubeletConfiguration", "must not have metadata: remove it"),
	)

	DescribeTable("can't be changed", changes("MachineConfigPool"),
		Entry("in its Cluster", `spec: {clusterName: infra-2}`, "spec.clusterName", "it is immutable: create another pool"),
		Entry("in its role", `spec: {poolRole: infra}`, "spec.poolRole", "it is immutable: create another pool"),
	)
})
