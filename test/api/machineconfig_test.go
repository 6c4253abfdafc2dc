package api

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
)

func init() {
	valid["MachineConfig"] = `
apiVersion: pool.cluster.x-k8s.io/v1alpha1
kind: MachineConfig
metadata: {name: 50-edge}
`
	valid["MachineConfigPool"] = `
apiVersion: pool.cluster.x-k8s.io/v1alpha1
kind: MachineConfigPool
metadata: {name: edge}
spec: {clusterName: metal, poolRole: edge}
`
}

var _ = Describe("A MachineConfig", func() {
	DescribeTable("is taken with", takes("MachineConfig"),
		Entry("nothing", `{}`),
		Entry("Ignition", `spec: {config: {ignition: {version: 3.5.0}}}`),
		Entry("Butane of as many bytes as it may have", fmt.Sprintf("spec: {butane: %q}", strings.Repeat("é", 1<<19))),
	)
	DescribeTable("is refused with", refuses("MachineConfig"),
		Entry("a spec that says nothing", `spec: {}`, "spec", "at least 1 properties"),
		Entry("Ignition and Butane", `spec: {config: {ignition: {version: 3.5.0}}, butane: "variant: fcos"}`, "spec", "not both"),
		Entry("Butane of more bytes than it may have, though not of more characters", fmt.Sprintf("spec: {butane: %q}", strings.Repeat("é", 1<<19+1)),
			"spec.butane", "1048576 bytes"),
	)
})

var _ = Describe("A MachineConfigPool", func() {
	DescribeTable("is taken with", takes("MachineConfigPool"),
		Entry("nothing but its Cluster and role", `{}`),
		Entry("a selector of MachineConfigs by labels", `spec: {machineConfigSelector: {matchLabels: {role: edge}}}`),
		Entry("a selector of MachineConfigs by expressions", `spec: {machineConfigSelector: {matchExpressions: [{key: role, operator: Exists}]}}`),
		Entry("Node labels as long as they may be", fmt.Sprintf("spec: {nodeLabels: {%s/%s: %[2]s}}", strings.Repeat("a", 253), strings.Repeat("a", 63))),
	)
	DescribeTable("is refused with", refuses("MachineConfigPool"),
		Entry("no Cluster", `spec: {clusterName: null}`, "spec.clusterName", "Required"),
		Entry("a Cluster that can't be", `spec: {clusterName: a..b}`, "spec.clusterName", "lowercase RFC 1123 subdomain"),
		Entry("a role that is no label", `spec: {poolRole: a.b}`, "spec.poolRole", "should match"),
		Entry("an empty selector of MachineConfigs", `spec: {machineConfigSelector: {}}`, "spec.machineConfigSelector", "leave it out"),
		Entry("a selector of MachineConfigs that has no labels", `spec: {machineConfigSelector: {matchLabels: {}, matchExpressions: []}}`, "spec.machineConfigSelector", "leave it out"),
		Entry("a Node label whose value is too long", fmt.Sprintf("spec: {nodeLabels: {a: %s}}", strings.Repeat("a", 64)), "spec.nodeLabels", "a value 63"),
		Entry("a Node label whose key is too long", fmt.Sprintf("spec: {nodeLabels: {%s: a}}", strings.Repeat("a", 318)), "spec.nodeLabels", "317 characters"),
		Entry("a template whose name can't be", `spec: {hostTemplateRef: {name: a..b}}`, "spec.hostTemplateRef.name", "lowercase RFC 1123 subdomain"),
		Entry("a configuration whose name can't be", `spec: {paused: true, pausedConfiguration: {name: a..b}}`, "spec.pausedConfiguration.name", "lowercase RFC 1123 subdomain"),
	)
})
