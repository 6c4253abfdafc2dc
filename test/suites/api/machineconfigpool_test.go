package api

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
)

// newKubeletPatch returns a patch of a pool's kubeletConfiguration.
func newKubeletPatch(fields string) string {
	return fmt.Sprintf("spec: {kubeletConfiguration: {%s}}", fields)
}

var _ = Describe("A MachineConfigPool", func() {
	const kubeletType = "apiVersion: kubelet.config.k8s.io/v1beta1, kind: KubeletConfiguration"

	DescribeTable("is accepted with", expectAccepted("MachineConfigPool"),
		Entry("the required fields only", `{}`),
		Entry("the longest name", `metadata: {name: `+strings.Repeat("a", 63)+`}`),
		Entry("a selector of MachineConfigs by labels", `spec: {machineConfigSelector: {matchLabels: {role: edge}}}`),
		Entry("a selector of MachineConfigs by expressions", `spec: {machineConfigSelector: {matchExpressions: [{key: role, operator: Exists}]}}`),
		Entry("a node selector by labels", `spec: {nodeSelector: {matchLabels: {example.com/site: a}}}`),
		Entry("a node selector by expressions", `spec: {nodeSelector: {matchExpressions: [{key: example.com/site, operator: Exists}]}}`),
		Entry("a kubelet configuration", newKubeletPatch(kubeletType+", maxPods: 500, systemReserved: {cpu: 500m}, clusterDNS: [10.96.0.10]")),
		Entry("a kubelet configuration without settings", newKubeletPatch(kubeletType)),
	)
	DescribeTable("is accepted with these fields for its Nodes:", func(ctx SpecContext, spec string) {
		expectAccepted("MachineConfigPool")(ctx, nestPatch(spec, "spec"))
	}, validNodeFields)
	DescribeTable("is refused with these fields for its Nodes:", func(ctx SpecContext, spec, field string, words ...string) {
		expectRefused("MachineConfigPool")(ctx, nestPatch(spec, "spec"), "spec."+field, words...)
	}, invalidNodeFields)
	DescribeTable("is refused with", expectRefused("MachineConfigPool"),
		Entry("no Cluster", `spec: {clusterName: null}`, "spec.clusterName", "Required"),
		Entry("no role", `spec: {poolRole: null}`, "spec.poolRole", "Required"),
		Entry("a role with spaces", `spec: {poolRole: "NOT A ROLE!"}`, "spec.poolRole", "should match"),
		Entry("a role that is too long", `spec: {poolRole: `+strings.Repeat("a", 64)+`}`, "spec.poolRole", "63"),
		Entry("the role of the control plane", `spec: {poolRole: control-plane}`, "spec.poolRole", "control plane machines can't be in a pool"),
		Entry("the old role of the control plane", `spec: {poolRole: master}`, "spec.poolRole", "control plane machines can't be in a pool"),
		Entry("the pool's label with another role", `spec: {nodeLabels: {node.cluster.x-k8s.io/pool: infra}}`, "spec."+poolLabel, "leave it out"),
		Entry("an invalid Cluster name", `spec: {clusterName: a..b.-c}`, "spec.clusterName", "lowercase RFC 1123 subdomain"),
		Entry("an empty selector of MachineConfigs", `spec: {machineConfigSelector: {}}`, "spec.machineConfigSelector", "leave it out"),
		Entry("a selector of MachineConfigs with empty fields", `spec: {machineConfigSelector: {matchLabels: {}, matchExpressions: []}}`, "spec.machineConfigSelector", "leave it out"),
		Entry("an invalid template name", `spec: {hostTemplateRef: {name: a..b.-c}}`, "spec.hostTemplateRef.name", "lowercase RFC 1123 subdomain"),
		Entry("an invalid configuration name", `spec: {paused: true, pausedConfiguration: {name: a..b}}`, "spec.pausedConfiguration.name", "lowercase RFC 1123 subdomain"),
		Entry("an empty node selector", `spec: {nodeSelector: {}}`, "spec.nodeSelector", "it must not be empty, because it would match nothing: leave it out for the default"),
		Entry("a node selector with empty fields", `spec: {nodeSelector: {matchLabels: {}, matchExpressions: []}}`, "spec.nodeSelector", "leave it out for the default"),
		Entry("a name that is too long for a label", `metadata: {name: `+strings.Repeat("a", 64)+`}`, "metadata", "metadata.name must have at most 63 characters"),
		Entry("a kubelet configuration without apiVersion", newKubeletPatch("kind: KubeletConfiguration, maxPods: 500"), "spec.kubeletConfiguration.apiVersion", "Required value"),
		Entry("a kubelet configuration without kind", newKubeletPatch("apiVersion: kubelet.config.k8s.io/v1beta1, maxPods: 500"), "spec.kubeletConfiguration.kind", "Required value"),
		Entry("an empty kubelet configuration", "spec: {kubeletConfiguration: {}}", "spec.kubeletConfiguration.kind", "Required value"),
		Entry("a kubelet configuration of another kind", newKubeletPatch("apiVersion: kubelet.config.k8s.io/v1beta1, kind: CredentialProviderConfig"), "spec.kubeletConfiguration",
			"kind must be KubeletConfiguration"),
		Entry("a kubelet configuration of another version", newKubeletPatch("apiVersion: kubelet.config.k8s.io/v1, kind: KubeletConfiguration"), "spec.kubeletConfiguration",
			"apiVersion must be kubelet.config.k8s.io/v1beta1"),
		Entry("a kubelet configuration with metadata", newKubeletPatch(kubeletType+", metadata: {name: edge}"), "spec.kubeletConfiguration", "must not have metadata: remove it"),
	)

	DescribeTable("can't be changed", expectImmutable("MachineConfigPool"),
		Entry("in its Cluster", `spec: {clusterName: infra-2}`, "spec.clusterName", "it is immutable: create another pool"),
		Entry("in its role", `spec: {poolRole: infra}`, "spec.poolRole", "it is immutable: create another pool"),
	)
})
