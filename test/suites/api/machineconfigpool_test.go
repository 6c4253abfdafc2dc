package api

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// newPolicyPatch returns a patch of a pool's disruption policy.
func newPolicyPatch(fields string) string {
	return fmt.Sprintf("spec: {updates: {disruptionPolicy: {%s}}}", fields)
}

// newActionsPatch returns a patch of a pool's disruption policy with these actions for a file.
func newActionsPatch(actions string) string {
	return newPolicyPatch(fmt.Sprintf("files: [{path: /etc/a, actions: [%s]}]", actions))
}

// newKubeletPatch returns a patch of a pool's kubelet configuration.
func newKubeletPatch(fields string) string {
	return fmt.Sprintf("spec: {kubelet: {configuration: {%s}}}", fields)
}

// manyExceptions returns exceptions for a number of hosts.
func manyExceptions(number int) string {
	exceptions := make([]string, number)
	for i := range exceptions {
		exceptions[i] = fmt.Sprintf(`{node: a%d, action: Skip, until: "2026-12-24T06:00:00Z", reason: x}`, i)
	}
	return strings.Join(exceptions, ", ")
}

var _ = Describe("A MachineConfigPool", func() {
	const kubeletType = "apiVersion: kubelet.config.k8s.io/v1beta1, kind: KubeletConfiguration"

	DescribeTable("is accepted with", expectAccepted("MachineConfigPool"),
		Entry("the required fields only", `{}`),
		Entry("the role of the control plane", `spec: {poolRole: control-plane}`),
		Entry("the longest name", `metadata: {name: `+strings.Repeat("a", 63)+`}`),
		Entry("a selector of MachineConfigs by labels", `spec: {machineConfigSelector: {matchLabels: {role: edge}}}`),
		Entry("a selector of MachineConfigs by expressions", `spec: {machineConfigSelector: {matchExpressions: [{key: role, operator: Exists}]}}`),
		Entry("a node selector by labels", `spec: {nodeSelector: {matchLabels: {example.com/site: a}}}`),
		Entry("a node selector by expressions", `spec: {nodeSelector: {matchExpressions: [{key: example.com/site, operator: Exists}]}}`),
		Entry("a kubelet configuration", newKubeletPatch(kubeletType+", maxPods: 500, systemReserved: {cpu: 500m}, clusterDNS: [10.96.0.10]")),
		Entry("a kubelet configuration without settings", newKubeletPatch(kubeletType)),
		Entry("a wrapper of the kubelet", "spec: {kubelet: {wrapper: [/usr/bin/nsenter, '--mount=/run/kubens/mnt']}}"),
		Entry("an earlier rendered config", "metadata: {name: infra}\nspec: {configurationName: rendered-infra-6db67f471f5b8ea1b6a6ed0ff73d6a3e}"),
		Entry("a disruption policy with every action", newActionsPatch("{type: DaemonReload}, {type: Drain}, {type: Reload, unit: crio.service}, {type: Restart, unit: 'dev-disk-by\\x2duuid.mount'}")),
		Entry("a disruption policy for everything", newPolicyPatch("files: [{path: /, actions: [{type: None}]}, {path: /etc/.a/..b, actions: [{type: Reboot}]}], "+
			"units: [{name: getty@tty1.service, actions: [{type: None}]}], sshKeys: {actions: [{type: None}]}")),
	)
	DescribeTable("is accepted with these fields for updates:", func(ctx SpecContext, spec string) {
		expectAccepted("MachineConfigPool")(ctx, "spec: {"+spec+"}")
	},
		Entry(nil, `maxUnavailable: 3, updates: {failureDomainLabel: example.com/rack, minReadySeconds: 0, readyDeadlineSeconds: 60, drainTimeoutSeconds: 604800, drainTimeoutPolicy: Force, diskPolicy: NewHostsOnly, driftPolicy: Repair, rebootMethod: SoftReboot}, hosts: {architecture: arm64, networkRenderer: NetworkManager}`),
		Entry(nil, `updates: {staging: {maxHosts: 2, bandwidthPerHost: 20Mi, prefetch: ["registry.example/a/b:v1", "10.0.0.1:5000/a@sha256:`+strings.Repeat("0", 64)+`"]}}`),
		Entry(nil, `updates: {staging: {bandwidthPerHost: 131072}}`),
		Entry(nil, `updates: {maintenanceWindow: {schedule: "0 22 * * 6", durationMinutes: 240, timeZone: Europe/Berlin}}`),
		Entry(nil, `updates: {gates: [{name: storage, objectRef: {apiVersion: ceph.rook.io/v1, kind: CephCluster, namespace: rook-ceph, name: main}, expression: "object.status.ceph.health == 'HEALTH_OK'"},
			{name: node, objectRef: {apiVersion: v1, kind: Node, name: a.example.com}, expression: "true"}]}`),
		Entry(nil, `poolRole: worker, updates: {approval: Manual, cluster: {order: [{pools: [canary, control-plane], soakSeconds: 3600}, {pools: [worker]}]}}`),
		Entry(nil, `updates: {restart: {id: "2026-12-01T03:04:05.678901234Z", kind: Kubelet}}`),
		Entry(nil, `updates: {canary: {hosts: 2, soakSeconds: 3600}}`),
		Entry("exceptions, also one that has expired", `updates: {exceptions: [{node: edge-1.example.com, action: Skip, until: "2020-01-01T00:00:00Z", reason: wartet auf eine Platte – 日本}, {node: edge-2, action: IgnoreWindow, until: "2999-01-01T00:00:00+02:00", reason: `+strings.Repeat("é", 256)+`}]}`),
		Entry(nil, `poolRole: worker, updates: {cluster: {maxUnavailable: "10%", failureDomainLabel: example.com/rack}}`),
		Entry("no host of all pools, which is one", `poolRole: worker, updates: {cluster: {maxUnavailable: "0%"}}`),
		Entry(nil, `updates: {canary: {nodeSelector: {matchLabels: {example.com/canary: ""}}}}`),
		Entry("none, as after kubectl patch that removes the last one", `updates: {}`),
		Entry(nil, `adoption: Follow`),
		Entry(nil, `maxUnavailable: "10%"`),
		Entry("no host, which is one", `maxUnavailable: "0%"`),
		Entry(nil, `maxUnavailable: "100%"`),
	)
	DescribeTable("is refused with a rendered config", func(ctx SpecContext, name string, words ...string) {
		expectRefused("MachineConfigPool")(ctx, fmt.Sprintf("metadata: {name: infra}\nspec: {configurationName: %q}", name), "spec.configurationName", words...)
	},
		Entry("of another pool", "rendered-gpu-6db67f471f5b8ea1b6a6ed0ff73d6a3e", "it must be a rendered config of this pool"),
		Entry("that is none", "50-infra", "it must be a rendered config of this pool"),
		Entry("that is no name", "rendered-infra-A", "lowercase RFC 1123"),
		Entry("that is empty", "", "at least 1"),
	)
	DescribeTable("is refused with these fields for updates:", func(ctx SpecContext, spec, field string, words ...string) {
		expectRefused("MachineConfigPool")(ctx, "spec: {"+spec+"}", "spec."+field, words...)
	},
		Entry(nil, `maxUnavailable: 0`, "maxUnavailable", "it must be a number of at least 1, or a percentage"),
		Entry(nil, `maxUnavailable: -1`, "maxUnavailable", "it must be a number of at least 1, or a percentage"),
		Entry(nil, `maxUnavailable: "2"`, "maxUnavailable", "it must be a number of at least 1, or a percentage"),
		Entry(nil, `maxUnavailable: "101%"`, "maxUnavailable", "it must be a number of at least 1, or a percentage"),
		Entry(nil, `maxUnavailable: "0 %"`, "maxUnavailable", "it must be a number of at least 1, or a percentage"),
		Entry(nil, `updates: {staging: {bandwidthPerHost: 100Ki}}`, "updates.staging.bandwidthPerHost", "at least 128Ki"),
		Entry(nil, `updates: {staging: {bandwidthPerHost: 1000}}`, "updates.staging.bandwidthPerHost", "at least 128Ki"),
		Entry(nil, `updates: {staging: {maxHosts: 0, prefetch: [a.example/b]}}`, "updates.staging.maxHosts", "greater than or equal to 1"),
		Entry(nil, `updates: {staging: {prefetch: [nginx]}}`, "updates.staging.prefetch", "each image must have a registry with a dot or a port, such as registry.example/team/app:v1"),
		Entry(nil, `updates: {staging: {prefetch: ["--all.example/a"]}}`, "updates.staging.prefetch", "each image must have a registry"),
		Entry(nil, `updates: {staging: {prefetch: ["localhost/pause:1"]}}`, "updates.staging.prefetch", "each image must have a registry"),
		Entry(nil, `updates: {failureDomainLabel: a b}`, "updates.failureDomainLabel", "it must be a label key"),
		Entry(nil, `updates: {failureDomainLabel: ""}`, "updates.failureDomainLabel", "at least 1"),
		Entry(nil, `updates: {maintenanceWindow: {schedule: "0 22 * * 6"}}`, "updates.maintenanceWindow.durationMinutes", "Required value"),
		Entry(nil, `updates: {maintenanceWindow: {durationMinutes: 5}}`, "updates.maintenanceWindow.schedule", "Required value"),
		Entry(nil, `updates: {maintenanceWindow: {schedule: "0 22 * * 6", durationMinutes: 10081}}`, "updates.maintenanceWindow.durationMinutes", "less than or equal to 10080"),
		Entry(nil, `updates: {gates: [{name: a, objectRef: {apiVersion: v1, kind: Secret, namespace: a, name: b}, expression: "true"}]}`, "updates.gates[0].objectRef", "a gate can't read Secrets"),
		Entry(nil, `updates: {gates: [{name: a, objectRef: {apiVersion: v1, kind: secret, namespace: a, name: b}, expression: "true"}]}`, "updates.gates[0].objectRef", "a gate can't read Secrets"),
		Entry(nil, `updates: {gates: [{name: a, objectRef: {apiVersion: apps/v1/b, kind: Deployment, name: b}, expression: "true"}]}`, "updates.gates[0].objectRef.apiVersion", "should match"),
		Entry(nil, `updates: {gates: [{name: a, objectRef: {apiVersion: v1, kind: ConfigMap, name: a/b}, expression: "true"}]}`, "updates.gates[0].objectRef.name", "without '/'"),
		Entry(nil, `updates: {gates: [{name: a, expression: "true"}]}`, "updates.gates[0].objectRef", "Required value"),
		Entry(nil, `updates: {gates: [{name: a, objectRef: {apiVersion: v1, kind: ConfigMap, name: a}}]}`, "updates.gates[0].expression", "Required value"),
		Entry(nil, `updates: {gates: [`+strings.Repeat(`{name: a, objectRef: {apiVersion: v1, kind: ConfigMap, name: a}, expression: "true"}, `, 2)+`]}`, "updates.gates[1]", "Duplicate value"),
		Entry("two exceptions for one host", `updates: {exceptions: [`+strings.Repeat(`{node: a, action: Skip, until: "2026-12-24T06:00:00Z", reason: x}, `, 2)+`]}`, "updates.exceptions[1]", "Duplicate value"),
		Entry("more exceptions than a person reads", `updates: {exceptions: [`+manyExceptions(33)+`]}`, "updates.exceptions", "at most 32 items"),
		Entry("an exception without an end", `updates: {exceptions: [{node: a, action: Skip, reason: x}]}`, "updates.exceptions[0].until", "Required value"),
		Entry("an exception until a text", `updates: {exceptions: [{node: a, action: Skip, until: tomorrow, reason: x}]}`, "updates.exceptions[0].until", "date-time"),
		Entry("an exception without a reason", `updates: {exceptions: [{node: a, action: Skip, until: "2026-12-24T06:00:00Z"}]}`, "updates.exceptions[0].reason", "Required value"),
		Entry("an exception with a reason of blanks", `updates: {exceptions: [{node: a, action: Skip, until: "2026-12-24T06:00:00Z", reason: "  "}]}`, "updates.exceptions[0].reason", "it must be text in one line"),
		Entry("an exception with a reason that controls a terminal", `updates: {exceptions: [{node: a, action: Skip, until: "2026-12-24T06:00:00Z", reason: "a\e[31m"}]}`, "updates.exceptions[0].reason", "it must be text in one line"),
		Entry("an exception with a reason of two lines", `updates: {exceptions: [{node: a, action: Skip, until: "2026-12-24T06:00:00Z", reason: "a\nb"}]}`, "updates.exceptions[0].reason", "it must be text in one line"),
		Entry("an exception with a long reason", `updates: {exceptions: [{node: a, action: Skip, until: "2026-12-24T06:00:00Z", reason: `+strings.Repeat("a", 257)+`}]}`, "updates.exceptions[0].reason", "Too long"),
		Entry("an exception for no host", `updates: {exceptions: [{action: Skip, until: "2026-12-24T06:00:00Z", reason: x}]}`, "updates.exceptions[0].node", "Required value"),
		Entry("an exception for what is no name of a Node", `updates: {exceptions: [{node: A_b, action: Skip, until: "2026-12-24T06:00:00Z", reason: x}]}`, "updates.exceptions[0].node", "it must be the name of a Node"),
		Entry("an exception that does something else", `updates: {exceptions: [{node: a, action: Force, until: "2026-12-24T06:00:00Z", reason: x}]}`, "updates.exceptions[0].action", `"Skip", "IgnoreWindow"`),
		Entry("canaries by number and by label", `updates: {canary: {hosts: 2, nodeSelector: {matchLabels: {a: b}}}}`, "updates.canary", "set either hosts or nodeSelector"),
		Entry("no canaries", `updates: {canary: {soakSeconds: 5}}`, "updates.canary", "set either hosts or nodeSelector"),
		Entry("a selector of no canary", `updates: {canary: {nodeSelector: {}}}`, "updates.canary.nodeSelector", "it must not be empty, because it would match nothing"),
		Entry("0 canaries", `updates: {canary: {hosts: 0, nodeSelector: {matchLabels: {a: b}}}}`, "updates.canary.hosts", "greater than or equal to 1"),
		Entry(nil, `updates: {approval: Ask}`, "updates.approval", `"Automatic", "Manual"`),
		Entry("an order that is not in the worker pool", `poolRole: infra, updates: {cluster: {order: [{pools: [a]}]}}`, "updates.cluster", "it applies to all pools of the cluster: set it in the worker pool"),
		Entry("no host of all pools as a number", `poolRole: worker, updates: {cluster: {maxUnavailable: 0}}`, "updates.cluster.maxUnavailable", "it must be a number of at least 1, or a percentage"),
		Entry(nil, `poolRole: worker, updates: {cluster: {failureDomainLabel: a b}}`, "updates.cluster.failureDomainLabel", "it must be a label key"),
		Entry("a pool in two steps", `poolRole: worker, updates: {cluster: {order: [{pools: [a, b]}, {pools: [c, a]}]}}`, "updates.cluster.order", "a role can be in one step only: remove it from the others"),
		Entry("a pool twice in a step", `poolRole: worker, updates: {cluster: {order: [{pools: [a, a]}]}}`, "updates.cluster.order[0].pools[1]", "Duplicate value"),
		Entry("a step without pools", `poolRole: worker, updates: {cluster: {order: [{soakSeconds: 5}]}}`, "updates.cluster.order[0].pools", "Required value"),
		Entry("no settings for all pools", `poolRole: worker, updates: {cluster: {}}`, "updates.cluster", "at least 1"),
		Entry(nil, `updates: {minReadySeconds: -1}`, "updates.minReadySeconds", "greater than or equal to 0"),
		Entry(nil, `updates: {readyDeadlineSeconds: 59}`, "updates.readyDeadlineSeconds", "greater than or equal to 60"),
		Entry(nil, `updates: {readyDeadlineSeconds: 60, minReadySeconds: 60}`, "updates.readyDeadlineSeconds", "it must be longer than minReadySeconds"),
		Entry("a minimum of more than the default deadline", `updates: {minReadySeconds: 1200}`, "updates.readyDeadlineSeconds", "it must be longer than minReadySeconds"),
		Entry(nil, `updates: {drainTimeoutSeconds: 604801}`, "updates.drainTimeoutSeconds", "less than or equal to 604800"),
		Entry(nil, `updates: {drainTimeoutPolicy: Never}`, "updates.drainTimeoutPolicy", `"Wait", "Force"`),
		Entry(nil, `updates: {diskPolicy: NewHosts}`, "updates.diskPolicy", `"Refuse", "NewHostsOnly"`),
		Entry(nil, `updates: {rebootMethod: Warm}`, "updates.rebootMethod", `"Full", "Kexec", "SoftReboot"`),
		Entry(nil, `updates: {restart: {id: a, kind: Firmware}}`, "updates.restart.kind", `"Reboot", "Kubelet"`),
		Entry(nil, `updates: {restart: {id: a}}`, "updates.restart.kind", "Required value"),
		Entry(nil, `updates: {restart: {id: "a b", kind: Reboot}}`, "updates.restart.id", "should match"),
		Entry(nil, `updates: {restart: {id: `+strings.Repeat("a", 65)+`, kind: Reboot}}`, "updates.restart.id", "Too long"),
		Entry(nil, `updates: {driftPolicy: Undo}`, "updates.driftPolicy", `"Report", "Repair"`),
		Entry(nil, `adoption: Always`, "adoption", `"Ask", "Preview", "Follow"`),
		Entry(nil, `hosts: {architecture: s390x}`, "hosts.architecture", `"amd64", "arm64"`),
		Entry(nil, `hosts: {networkRenderer: Netplan}`, "hosts.networkRenderer", `"SystemdNetworkd", "NetworkManager", "None"`),
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
		Entry("the old role of the control plane", `spec: {poolRole: master}`, "spec.poolRole", "the role of the control plane's pool is control-plane"),
		Entry("a node selector for the control plane", `spec: {poolRole: control-plane, nodeSelector: {matchLabels: {example.com/site: a}}}`, "spec.nodeSelector", "leave it out"),
		Entry("a limit for the control plane", `spec: {poolRole: control-plane, maxUnavailable: 2}`, "spec.maxUnavailable", "updated one at a time: leave it out"),
		Entry("hosts that enroll in the control plane", `spec: {poolRole: control-plane, hosts: {templateRef: {name: a}}}`, "spec.hosts.templateRef", "leave it out"),
		Entry("the pool's label with another role", `spec: {node: {labels: {poolboot.io/pool: infra}}}`, "spec."+poolLabel, "leave it out"),
		Entry("an invalid Cluster name", `spec: {clusterName: a..b.-c}`, "spec.clusterName", "lowercase RFC 1123 subdomain"),
		Entry("an empty selector of MachineConfigs", `spec: {machineConfigSelector: {}}`, "spec.machineConfigSelector", "leave it out"),
		Entry("a selector of MachineConfigs with empty fields", `spec: {machineConfigSelector: {matchLabels: {}, matchExpressions: []}}`, "spec.machineConfigSelector", "leave it out"),
		Entry("an invalid template name", `spec: {hosts: {templateRef: {name: a..b.-c}}}`, "spec.hosts.templateRef.name", "lowercase RFC 1123 subdomain"),
		Entry("an empty node selector", `spec: {nodeSelector: {}}`, "spec.nodeSelector", "it must not be empty, because it would match nothing: leave it out for the default"),
		Entry("a node selector with empty fields", `spec: {nodeSelector: {matchLabels: {}, matchExpressions: []}}`, "spec.nodeSelector", "leave it out for the default"),
		Entry("a name that is too long for a label", `metadata: {name: `+strings.Repeat("a", 64)+`}`, "metadata", "metadata.name must have at most 63 characters"),
		Entry("a kubelet configuration without apiVersion", newKubeletPatch("kind: KubeletConfiguration, maxPods: 500"), "spec.kubelet.configuration.apiVersion", "Required value"),
		Entry("a kubelet configuration without kind", newKubeletPatch("apiVersion: kubelet.config.k8s.io/v1beta1, maxPods: 500"), "spec.kubelet.configuration.kind", "Required value"),
		Entry("an empty kubelet configuration", "spec: {kubelet: {configuration: {}}}", "spec.kubelet.configuration.kind", "Required value"),
		Entry("a kubelet configuration of another kind", newKubeletPatch("apiVersion: kubelet.config.k8s.io/v1beta1, kind: CredentialProviderConfig"), "spec.kubelet.configuration",
			"kind must be KubeletConfiguration"),
		Entry("a kubelet configuration of another version", newKubeletPatch("apiVersion: kubelet.config.k8s.io/v1, kind: KubeletConfiguration"), "spec.kubelet.configuration",
			"apiVersion must be kubelet.config.k8s.io/v1beta1"),
		Entry("an empty wrapper of the kubelet", "spec: {kubelet: {wrapper: []}}", "spec.kubelet.wrapper", "at least 1"),
		Entry("a wrapper of the kubelet without an absolute path", "spec: {kubelet: {wrapper: [nsenter]}}", "spec.kubelet.wrapper", "absolute path of a program"),
		Entry("a wrapper of the kubelet that systemd would expand", "spec: {kubelet: {wrapper: [/usr/bin/nsenter, '--mount=%t/mnt']}}", "spec.kubelet.wrapper[1]", "should match"),
		Entry("an empty disruption policy", newPolicyPatch(""), "spec.updates.disruptionPolicy", "at least 1"),
		Entry("a relative path in a disruption policy", newPolicyPatch("files: [{path: etc/a, actions: [{type: None}]}]"), "spec.updates.disruptionPolicy.files[0].path", "must be an absolute path"),
		Entry("a path with a slash at its end", newPolicyPatch("files: [{path: /etc/, actions: [{type: None}]}]"), "spec.updates.disruptionPolicy.files[0].path", "without a slash at its end"),
		Entry("a path that leads up", newPolicyPatch("files: [{path: /etc/.., actions: [{type: None}]}]"), "spec.updates.disruptionPolicy.files[0].path", "'..'"),
		Entry("two disruption policies for a path", newPolicyPatch("files: [{path: /a, actions: [{type: None}]}, {path: /a, actions: [{type: Drain}]}]"), "spec.updates.disruptionPolicy.files[1]", "Duplicate"),
		Entry("a unit without a type", newPolicyPatch("units: [{name: crio, actions: [{type: None}]}]"), "spec.updates.disruptionPolicy.units[0].name", "such as crio.service"),
		Entry("no action", newActionsPatch(""), "spec.updates.disruptionPolicy.files[0].actions", "at least 1"),
		Entry("an unknown action", newActionsPatch("{type: Special}"), "spec.updates.disruptionPolicy.files[0].actions[0].type", "Unsupported value"),
		Entry("None beside other actions", newActionsPatch("{type: None}, {type: Drain}"), "spec.updates.disruptionPolicy.files[0].actions", "None and Reboot must be the only action"),
		Entry("Reboot beside other actions", newPolicyPatch("sshKeys: {actions: [{type: Drain}, {type: Reboot}]}"), "spec.updates.disruptionPolicy.sshKeys.actions", "None and Reboot must be the only action"),
		Entry("Restart without a unit", newActionsPatch("{type: Restart}"), "spec.updates.disruptionPolicy.files[0].actions[0].unit", "need the name of the unit"),
		Entry("Drain with a unit", newActionsPatch("{type: Drain, unit: crio.service}"), "spec.updates.disruptionPolicy.files[0].actions[0].unit", "leave it out"),
		Entry("a kubelet configuration with metadata", newKubeletPatch(kubeletType+", metadata: {name: edge}"), "spec.kubelet.configuration", "must not have metadata: remove it"),
	)

	It("can't request another kind of restart with the same id, because hosts that have restarted would not do so again", func(ctx SpecContext) {
		p := newObject("MachineConfigPool", `{metadata: {name: restarts}, spec: {updates: {restart: {id: a, kind: Kubelet}}}}`)
		Expect(k8sClient.Create(ctx, p)).To(Succeed())
		change := func(patch string) error {
			return k8sClient.Patch(ctx, p, client.RawPatch(types.MergePatchType, []byte(patch)), client.DryRunAll)
		}
		Expect(change(`{"spec":{"updates":{"restart":{"kind":"Reboot"}}}}`)).To(matchRefusal("spec.updates.restart.kind", "set another id"))
		Expect(change(`{"spec":{"updates":{"restart":{"id":"b","kind":"Reboot"}}}}`)).To(Succeed())
		Expect(change(`{"spec":{"updates":{"restart":null}}}`)).To(Succeed())
	})
	DescribeTable("can't be changed", expectImmutable("MachineConfigPool"),
		Entry("in its Cluster", `spec: {clusterName: infra-2}`, "spec.clusterName", "it is immutable: create another pool"),
		Entry("in its role", `spec: {poolRole: infra}`, "spec.poolRole", "it is immutable: create another pool"),
	)
})
