package api

import (
	"fmt"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	"sigs.k8s.io/yaml"
)

// validSpecs are valid fields of PoolbootConfigs and templates.
var validSpecs = []TableEntry{
	Entry("the join only", `{}`),
	Entry("another path of the kubelet", `join: {type: Kubelet, kubelet: {kubeletPath: /opt/bin/kubelet}}`),
	Entry("a join by kubeadm", `join: {type: Kubeadm}`),
	Entry("a join by kubeadm with settings", `join: {type: Kubeadm, kubeadm: {kubeadmPath: /opt/bin/kubeadm, criSocket: "unix:///run/crio/crio.sock", ignorePreflightErrors: [NumCPU]}}`),
	Entry("the config server", `configSource: {type: Server}`),
	Entry("the config server with settings", `configSource: {type: Server, server: {tokenBinding: HostAddresses}}`),
	Entry("an inline configuration", `configSource: {type: Inline}`),
	Entry("an inline configuration with the Machine's name and the Machine's pool",
		`{configSource: {type: Inline}, nodeNameSource: Machine, poolRetention: Machine}`),
	Entry("extra Ignition", `extraConfig: {config: {ignition: {version: 3.5.0}}}`),
	Entry("extra Butane of the maximum size in bytes", fmt.Sprintf("extraConfig: {butane: %q}", strings.Repeat("é", 1<<17))),
	Entry("a role", `poolRole: edge-2`),
	Entry("the longest role", `poolRole: `+strings.Repeat("a", 63)),
	Entry("a Node name of the host, and a pool that the host keeps", `{nodeNameSource: Host, poolRetention: Host}`),
}

// invalidSpecs are invalid fields of PoolbootConfigs and templates.
var invalidSpecs = []TableEntry{
	Entry("no join", `join: null`, "join", "Required"),
	Entry("a join without a type", `join: {type: null, kubelet: {kubeletPath: /opt/bin/kubelet}}`, "join.type", "Required"),
	Entry("a join of an unknown type", `join: {type: Ssh}`, "join.type", `supported values: "Kubelet", "Kubeadm"`),
	Entry("settings of kubeadm in a join by the kubelet", `join: {type: Kubelet, kubeadm: {kubeadmPath: /opt/bin/kubeadm}}`, "join.kubeadm",
		"may only be set with type Kubeadm: remove it, or change type"),
	Entry("settings of the kubelet in a join by kubeadm", `join: {type: Kubeadm, kubelet: {kubeletPath: /opt/bin/kubelet}}`, "join.kubelet",
		"may only be set with type Kubelet: remove it, or change type"),
	Entry("empty settings", `join: {type: Kubelet, kubelet: {}}`, "join.kubelet", "at least 1 properties"),
	Entry("a relative path", `join: {type: Kubelet, kubelet: {kubeletPath: bin/kubelet}}`, "join.kubelet.kubeletPath", "should match"),
	Entry("a source without a type", `configSource: {server: {tokenBinding: Any}}`, "configSource.type", "Required"),
	Entry("an empty source", `configSource: {}`, "configSource.type", "Required"),
	Entry("a source of an unknown type", `configSource: {type: inline}`, "configSource.type", `supported values: "Server", "Inline"`),
	Entry("settings of the config server in an inline configuration", `configSource: {type: Inline, server: {tokenBinding: Any}}`, "configSource.server",
		"may only be set with type Server: remove it, or change type"),
	Entry("empty settings of the config server", `configSource: {type: Server, server: {}}`, "configSource.server", "at least 1 properties"),
	Entry("an unknown token binding", `configSource: {type: Server, server: {tokenBinding: Host}}`, "configSource.server.tokenBinding", `supported values: "Any", "HostAddresses"`),
	Entry("a host's name for the Node of an inline configuration", `{configSource: {type: Inline}, nodeNameSource: Host}`, "nodeNameSource", "configSource.type Server"),
	Entry("extra Ignition and Butane", `extraConfig: {config: {ignition: {version: 3.5.0}}, butane: "variant: fcos"}`, "extraConfig", "exactly one of config (Ignition), butane"),
	Entry("empty extra configuration", `extraConfig: {}`, "extraConfig", "exactly one of config (Ignition), butane"),
	Entry("extra Butane with too many bytes, but not too many characters", fmt.Sprintf("extraConfig: {butane: %q}", strings.Repeat("é", 1<<17+1)),
		"extraConfig.butane", "262144 bytes"),
	Entry("a role with spaces", `poolRole: "NOT A ROLE!"`, "poolRole", "should match"),
	Entry("a role that ends with a dash", `poolRole: edge-`, "poolRole", "should match"),
	Entry("a role that is too long", `poolRole: `+strings.Repeat("a", 64), "poolRole", "63"),
	Entry("the role of the control plane", `poolRole: control-plane`, "poolRole", "hosts of the control plane boot by the control plane provider"),
	Entry("the old role of the control plane", `poolRole: master`, "poolRole", "the role of the control plane's pool is control-plane"),
	Entry("the pool's label with another role", `{poolRole: edge, node: {labels: {poolboot.io/pool: infra}}}`, poolLabel, "leave it out"),
	Entry("the pool's label without a role", `node: {labels: {poolboot.io/pool: infra}}`, poolLabel, "leave it out"),
	Entry("a rule for a label that labels has", `node: {labels: {example.com/rack: r1}, labelRules: [{key: example.com/rack, valueExpression: host.name}]}`,
		"node.labelRules", "labels has a value for the key of a rule: remove one of the two"),
	Entry("a pool that the host keeps for an inline configuration", `{configSource: {type: Inline}, poolRetention: Host}`, "poolRetention", "configSource.type Server"),
}

// nestPatch nests a patch in fields.
func nestPatch(patch string, fields ...string) string {
	GinkgoHelper()
	var value any
	if err := yaml.Unmarshal([]byte(patch), &value); err != nil {
		Fail(patch + ": " + err.Error())
	}
	for i := len(fields) - 1; i >= 0; i-- {
		value = map[string]any{fields[i]: value}
	}
	document, err := yaml.Marshal(value)
	if err != nil {
		Fail(err.Error())
	}
	return string(document)
}

var _ = Describe("A PoolbootConfig", func() {
	goodSpecs, badSpecs := slices.Concat(validSpecs, validNodeFields), slices.Concat(invalidSpecs, invalidNodeFields)
	DescribeTable("is accepted with", func(ctx SpecContext, spec string) {
		expectAccepted("PoolbootConfig")(ctx, nestPatch(spec, "spec"))
	}, goodSpecs)
	DescribeTable("is refused with", func(ctx SpecContext, spec, field string, words ...string) {
		expectRefused("PoolbootConfig")(ctx, nestPatch(spec, "spec"), "spec."+field, words...)
	}, badSpecs)
})

var _ = Describe("A PoolbootConfigTemplate", func() {
	goodSpecs, badSpecs := slices.Concat(validSpecs, validNodeFields), slices.Concat(invalidSpecs, invalidNodeFields)
	DescribeTable("is accepted with", func(ctx SpecContext, spec string) {
		expectAccepted("PoolbootConfigTemplate")(ctx, nestPatch(spec, "spec", "template", "spec"))
	}, goodSpecs)
	DescribeTable("is refused with", func(ctx SpecContext, spec, field string, words ...string) {
		expectRefused("PoolbootConfigTemplate")(ctx, nestPatch(spec, "spec", "template", "spec"), "spec.template.spec."+field, words...)
	}, badSpecs)
})

var _ = Describe("The host of a PoolbootConfig without a Machine", func() {
	DescribeTable("is accepted with", expectAccepted("PoolbootConfig"),
		Entry("the names of a Node and a BareMetalHost", `spec: {poolRole: edge, host: {type: BareMetalHost, nodeName: edge-7.example, bareMetalHostName: edge-7}}`),
		Entry("a Node of the control plane", `spec: {poolRole: control-plane, join: null, host: {type: Node, nodeName: cp-1, adoption: Preview}}`),
		Entry("the name of a Node that Poolboot did not boot", `spec: {poolRole: edge, join: null, host: {type: Node, nodeName: edge-7, adoption: Preview}}`),
	)
	DescribeTable("is refused with", expectRefused("PoolbootConfig"),
		Entry("no type", `spec: {poolRole: edge, host: {nodeName: edge-7, bareMetalHostName: edge-7}}`, "spec.host.type", "Required"),
		Entry("a BareMetalHost without its name", `spec: {poolRole: edge, host: {type: BareMetalHost, nodeName: edge-7}}`, "spec.host.bareMetalHostName", "BareMetalHost"),
		Entry("no Node name", `spec: {poolRole: edge, host: {type: BareMetalHost, bareMetalHostName: edge-7}}`, "spec.host.nodeName", "Required"),
		Entry("a Node without what its host gets", `spec: {poolRole: edge, join: null, host: {type: Node, nodeName: edge-7}}`, "spec.host.adoption", "required with type Node"),
		Entry("what a host gets that boots", `spec: {poolRole: edge, host: {type: BareMetalHost, nodeName: edge-7, bareMetalHostName: edge-7, adoption: Follow}}`, "spec.host.adoption", "forbidden otherwise"),
		Entry("a Node that joins", `spec: {poolRole: edge, host: {type: Node, nodeName: edge-7, adoption: Follow}}`, "spec.join", "has joined before"),
		Entry("a Node that gets a configuration", `spec: {poolRole: edge, join: null, configSource: {type: Server}, host: {type: Node, nodeName: edge-7, adoption: Follow}}`, "spec.host.type", "does not boot"),
		Entry("an invalid Node name", `spec: {poolRole: edge, host: {type: BareMetalHost, nodeName: a..b.-c, bareMetalHostName: a}}`, "spec.host.nodeName", "lowercase RFC 1123 subdomain"),
		Entry("an invalid BareMetalHost name", `spec: {poolRole: edge, host: {type: BareMetalHost, nodeName: a, bareMetalHostName: A}}`, "spec.host.bareMetalHostName", "lowercase RFC 1123 subdomain"),
	)
})

var _ = Describe("A PoolbootConfig of a host without a Machine", func() {
	const host = `host: {type: BareMetalHost, nodeName: edge-7, bareMetalHostName: edge-7}`
	DescribeTable("is refused with", func(ctx SpecContext, spec, field string, words ...string) {
		expectRefused("PoolbootConfig")(ctx, nestPatch("{"+host+", "+spec+"}", "spec"), field, words...)
	},
		Entry("no role", `node: {taints: []}`, "spec.poolRole", "host needs poolRole"),
		Entry("an inline configuration", `poolRole: edge, configSource: {type: Inline}`, "spec.configSource.type", "needs configSource.type Server"),
		Entry("a pool that the host keeps for its next Machine", `poolRole: edge, poolRetention: Host`, "spec.poolRetention", "Host needs a Machine"),
	)
	DescribeTable("can't be changed", expectImmutable("PoolbootConfig"),
		Entry("by adding host", "spec: {poolRole: edge, "+host+"}", "spec.host", "can't be added"),
	)
})
