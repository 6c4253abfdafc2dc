package api

import (
	"fmt"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	"sigs.k8s.io/yaml"
)

// goodSpecs are what a PoolbootConfig and a template may say of a boot.
var goodSpecs = []TableEntry{
	Entry("nothing but the join", `{}`),
	Entry("a kubelet elsewhere", `join: {type: Kubelet, kubelet: {kubeletPath: /opt/bin/kubelet}}`),
	Entry("a join by kubeadm", `join: {type: Kubeadm}`),
	Entry("a join by kubeadm with settings", `join: {type: Kubeadm, kubeadm: {kubeadmPath: /opt/bin/kubeadm, criSocket: "unix:///run/crio/crio.sock", ignorePreflightErrors: [NumCPU]}}`),
	Entry("the config server", `configSource: {type: Server}`),
	Entry("the config server with settings", `configSource: {type: Server, server: {tokenBinding: HostAddresses}}`),
	Entry("an inline configuration", `configSource: {type: Inline}`),
	Entry("an inline configuration for a Node that has its Machine's name, and a pool that is the Machine's",
		`{configSource: {type: Inline}, nodeNameSource: Machine, poolRetention: Machine}`),
	Entry("extra Ignition", `extraConfig: {config: {ignition: {version: 3.5.0}}}`),
	Entry("extra Butane of as many bytes as it may have", fmt.Sprintf("extraConfig: {butane: %q}", strings.Repeat("é", 1<<17))),
	Entry("a role", `poolRole: edge-2`),
	Entry("the longest role", `poolRole: `+strings.Repeat("a", 63)),
	Entry("a host that names the Node and keeps the pool", `{nodeNameSource: Host, poolRetention: Host}`),
}

// badSpecs are what they may not.
var badSpecs = []TableEntry{
	Entry("no join", `join: null`, "join", "Required"),
	Entry("a join of no type", `join: {type: null, kubelet: {kubeletPath: /opt/bin/kubelet}}`, "join.type", "Required"),
	Entry("a join of another type", `join: {type: Ssh}`, "join.type", `supported values: "Kubelet", "Kubeadm"`),
	Entry("settings of kubeadm in a join by the kubelet", `join: {type: Kubelet, kubeadm: {kubeadmPath: /opt/bin/kubeadm}}`, "join.kubeadm",
		"may only be set with type Kubeadm: remove it, or change type"),
	Entry("settings of the kubelet in a join by kubeadm", `join: {type: Kubeadm, kubelet: {kubeletPath: /opt/bin/kubelet}}`, "join.kubelet",
		"may only be set with type Kubelet: remove it, or change type"),
	Entry("settings that set nothing", `join: {type: Kubelet, kubelet: {}}`, "join.kubelet", "at least 1 properties"),
	Entry("a path that is relative", `join: {type: Kubelet, kubelet: {kubeletPath: bin/kubelet}}`, "join.kubelet.kubeletPath", "should match"),
	Entry("a source of no type", `configSource: {server: {tokenBinding: Any}}`, "configSource.type", "Required"),
	Entry("an empty source", `configSource: {}`, "configSource.type", "Required"),
	Entry("a source of another type", `configSource: {type: inline}`, "configSource.type", `supported values: "Server", "Inline"`),
	Entry("settings of the config server in an inline configuration", `configSource: {type: Inline, server: {tokenBinding: Any}}`, "configSource.server",
		"may only be set with type Server: remove it, or change type"),
	Entry("settings of the config server that set nothing", `configSource: {type: Server, server: {}}`, "configSource.server", "at least 1 properties"),
	Entry("another token binding", `configSource: {type: Server, server: {tokenBinding: Host}}`, "configSource.server.tokenBinding", `supported values: "Any", "HostAddresses"`),
	Entry("a host's name for the Node of an inline configuration", `{configSource: {type: Inline}, nodeNameSource: Host}`, "nodeNameSource", "configSource.type Server"),
	Entry("extra Ignition and Butane", `extraConfig: {config: {ignition: {version: 3.5.0}}, butane: "variant: fcos"}`, "extraConfig", "exactly one of config (Ignition), butane"),
	Entry("extra configuration that is neither", `extraConfig: {}`, "extraConfig", "exactly one of config (Ignition), butane"),
	Entry("extra Butane of more bytes than it may have, though not of more characters", fmt.Sprintf("extraConfig: {butane: %q}", strings.Repeat("é", 1<<17+1)),
		"extraConfig.butane", "262144 bytes"),
	Entry("a role with spaces", `poolRole: "NOT A ROLE!"`, "poolRole", "should match"),
	Entry("a role that ends with a dash", `poolRole: edge-`, "poolRole", "should match"),
	Entry("a role that is too long", `poolRole: `+strings.Repeat("a", 64), "poolRole", "63"),
	Entry("the role of the control plane", `poolRole: control-plane`, "poolRole", "control plane provider's own bootstrap config"),
	Entry("its old name", `poolRole: master`, "poolRole", "control plane provider's own bootstrap config"),
	Entry("the pool's label with another role", `{poolRole: edge, nodeLabels: {node.cluster.x-k8s.io/pool: infra}}`, poolLabel, "leave it out"),
	Entry("the pool's label without a role", `nodeLabels: {node.cluster.x-k8s.io/pool: infra}`, poolLabel, "leave it out"),
	Entry("a rule for a label that nodeLabels has", `{nodeLabels: {example.com/rack: r1}, nodeLabelRules: [{key: example.com/rack, valueExpression: host.name}]}`,
		"nodeLabelRules", "nodeLabels has a value for the key of a rule: remove one of the two"),
	Entry("a pool that the host keeps for an inline configuration", `{configSource: {type: Inline}, poolRetention: Host}`, "poolRetention", "configSource.type Server"),
}

// under puts a patch into the fields that it is a part of.
func under(patch string, fields ...string) string {
	GinkgoHelper()
	var whole any
	if err := yaml.Unmarshal([]byte(patch), &whole); err != nil {
		Fail(patch + ": " + err.Error())
	}
	for i := len(fields) - 1; i >= 0; i-- {
		whole = map[string]any{fields[i]: whole}
	}
	document, err := yaml.Marshal(whole)
	if err != nil {
		Fail(err.Error())
	}
	return string(document)
}

var _ = Describe("A PoolbootConfig", func() {
	goodSpecs, badSpecs := slices.Concat(goodSpecs, goodNodes), slices.Concat(badSpecs, badNodes)
	DescribeTable("is taken with", func(ctx SpecContext, spec string) {
		takes("PoolbootConfig")(ctx, under(spec, "spec"))
	}, goodSpecs)
	DescribeTable("is refused with", func(ctx SpecContext, spec, field string, words ...string) {
		refuses("PoolbootConfig")(ctx, under(spec, "spec"), "spec."+field, words...)
	}, badSpecs)
})

var _ = Describe("A PoolbootConfigTemplate", func() {
	goodSpecs, badSpecs := slices.Concat(goodSpecs, goodNodes), slices.Concat(badSpecs, badNodes)
	DescribeTable("is taken with", func(ctx SpecContext, spec string) {
		takes("PoolbootConfigTemplate")(ctx, under(spec, "spec", "template", "spec"))
	}, goodSpecs)
	DescribeTable("is refused with", func(ctx SpecContext, spec, field string, words ...string) {
		refuses("PoolbootConfigTemplate")(ctx, under(spec, "spec", "template", "spec"), "spec.template.spec."+field, words...)
	}, badSpecs)
})

var _ = Describe("The host of a PoolbootConfig without a Machine", func() {
	DescribeTable("is taken with", takes("PoolbootConfig"),
		Entry("the names of a Node and a BareMetalHost", `spec: {poolRole: edge, host: {type: BareMetalHost, nodeName: edge-7.example, bareMetalHostName: edge-7}}`),
	)
	DescribeTable("is refused with", refuses("PoolbootConfig"),
		Entry("no type", `spec: {poolRole: edge, host: {nodeName: edge-7, bareMetalHostName: edge-7}}`, "spec.host.type", "Required"),
		Entry("a BareMetalHost without its name", `spec: {poolRole: edge, host: {type: BareMetalHost, nodeName: edge-7}}`, "spec.host.bareMetalHostName", "BareMetalHost"),
		Entry("no name of a Node", `spec: {poolRole: edge, host: {type: BareMetalHost, bareMetalHostName: edge-7}}`, "spec.host.nodeName", "Required"),
		Entry("a name of a Node that can't be", `spec: {poolRole: edge, host: {type: BareMetalHost, nodeName: a..b.-c, bareMetalHostName: a}}`, "spec.host.nodeName", "lowercase RFC 1123 subdomain"),
		Entry("a name of a BareMetalHost that can't be", `spec: {poolRole: edge, host: {type: BareMetalHost, nodeName: a, bareMetalHostName: A}}`, "spec.host.bareMetalHostName", "lowercase RFC 1123 subdomain"),
	)
})

var _ = Describe("A PoolbootConfig of a host without a Machine", func() {
	const host = `host: {type: BareMetalHost, nodeName: edge-7, bareMetalHostName: edge-7}`
	DescribeTable("is refused with", func(ctx SpecContext, spec, field string, words ...string) {
		refuses("PoolbootConfig")(ctx, under("{"+host+", "+spec+"}", "spec"), field, words...)
	},
		Entry("no role", `nodeTaints: []`, "spec.poolRole", "host needs poolRole"),
		Entry("an inline configuration", `poolRole: edge, configSource: {type: Inline}`, "spec.configSource.type", "needs configSource.type Server"),
		Entry("a pool that the host keeps for its next Machine", `poolRole: edge, poolRetention: Host`, "spec.poolRetention", "Host needs a Machine"),
	)
	DescribeTable("can't be changed", changes("PoolbootConfig"),
		Entry("into one", "spec: {poolRole: edge, "+host+"}", "spec.host", "can't be added"),
	)
})
