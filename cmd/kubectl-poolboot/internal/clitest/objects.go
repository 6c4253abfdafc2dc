package clitest

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
)

// Objects of OpenShift. OpenShiftInfra and OpenShiftInfra51 are the custom pool and the MachineConfig in the
// documentation of the Machine Config Operator.
const (
	OpenShiftInfra = `apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfigPool
metadata:
  name: infra
spec:
  machineConfigSelector:
    matchExpressions:
      - {key: machineconfiguration.openshift.io/role, operator: In, values: [worker,infra]}
  nodeSelector:
    matchLabels:
      node-role.kubernetes.io/infra: ""
`
	OpenShiftInfra51 = `apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfig
metadata:
  labels:
    machineconfiguration.openshift.io/role: infra
  name: 51-infra
spec:
  config:
    ignition:
      version: 2.2.0
    storage:
      files:
      - contents:
          source: data:,infra
        filesystem: root
        mode: 0644
        path: /etc/infratest
`
	OpenShiftWorker = `apiVersion: machineconfiguration.openshift.io/v1
kind: MachineConfigPool
metadata:
  name: worker
spec:
  machineConfigSelector:
    matchLabels:
      machineconfiguration.openshift.io/role: worker
  nodeSelector:
    matchLabels:
      node-role.kubernetes.io/worker: ""
  paused: false
  configuration: {}
status:
  machineCount: 3
`
)

// OpenShiftMaster is the pool of OpenShift's control plane.
var OpenShiftMaster = strings.ReplaceAll(OpenShiftWorker, "worker", "master")

// Pool returns Poolboot's pool of a role, of a cluster, that selects the MachineConfigs labeled with the role.
func Pool(cluster, role string) string {
	return `apiVersion: poolboot.io/v1alpha1
kind: MachineConfigPool
metadata:
  name: ` + role + `
spec:
  clusterName: ` + cluster + `
  poolRole: ` + role + `
  machineConfigSelector:
    matchLabels:
      machineconfiguration.openshift.io/role: ` + role + `
`
}

// Config returns Poolboot's MachineConfig, labeled for a role, with a spec in YAML's flow style.
func Config(name, role, spec string) string {
	return `apiVersion: poolboot.io/v1alpha1
kind: MachineConfig
metadata:
  name: ` + name + `
  labels: {machineconfiguration.openshift.io/role: ` + role + `}
spec: ` + spec + `
`
}

// Motd returns the spec of a MachineConfig that writes a word into /etc/motd.
func Motd(word string) string {
	return `{config: {ignition: {version: 3.2.0}, storage: {files: [{path: /etc/motd, mode: 0644, contents: {source: "data:,` + word + `"}}]}}}`
}

// RoleLabels returns the labels of a Node with roles, as kubectl label takes them.
func RoleLabels(names ...string) string {
	given := make([]string, len(names))
	for i, name := range names {
		given[i] = "node-role.kubernetes.io/" + name + "="
	}
	return strings.Join(given, ",")
}

// PoolbootConfig returns the PoolbootConfig of a Machine of the Cluster infra-1 that is recorded in a pool, with the
// name of its Node, which may be empty.
func PoolbootConfig(role, machine, node string) *bootstrapv1.PoolbootConfig {
	config := &bootstrapv1.PoolbootConfig{ObjectMeta: metav1.ObjectMeta{
		Name: machine + "-config", Namespace: "edge", Labels: map[string]string{clusterv1.ClusterNameLabel: "infra-1"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: machine, UID: "1"}},
	}}
	config.Status.PoolRole = role
	config.Status.NodeRef = bootstrapv1.NodeReference{Name: node}
	return config
}

// AdoptedConfig returns the PoolbootConfig of a host that was adopted for the pool infra of the Cluster infra-1, and is
// as it was found, with what its condition Updated says.
func AdoptedConfig(node, reason, message string) *bootstrapv1.PoolbootConfig {
	config := PoolbootConfig("infra", "", node)
	config.Name, config.OwnerReferences, config.CreationTimestamp = node, nil, metav1.NewTime(time.Now().Add(-2*time.Hour).Truncate(time.Second))
	record.RevokeToken(config)
	config.Spec.PoolRole = "infra"
	config.Spec.Host = bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeNode, NodeName: node, Adoption: bootstrapv1.AdoptionPreview}
	config.Status.NodeRef.UID = "uid-" + node
	since := metav1.NewTime(time.Now().Add(-time.Hour).Truncate(time.Second))
	config.Status.Conditions = []metav1.Condition{
		{Type: bootstrapv1.UpdatedCondition, Status: metav1.ConditionFalse, Reason: reason, Message: message, LastTransitionTime: since},
		{Type: bootstrapv1.NodeInPoolCondition, Status: metav1.ConditionUnknown, Reason: bootstrapv1.AdoptionPreviewReason, Message: "see the condition Updated", LastTransitionTime: since},
	}
	if reason == bootstrapv1.NoAgentReason {
		config.Status.Conditions[0].Status = metav1.ConditionUnknown
	} else {
		config.Status.Update.Desired.Name, config.Status.Boot.ServedConfiguration.Name = agentv1.AsFoundConfig, agentv1.AsFoundConfig
		config.Status.Update.DesiredRevision = strings.Repeat("f", 64)
	}
	return config
}

// RecordTwoAddresses has the token of a boot, which is bound to its host's first address, used from two
// addresses.
func RecordTwoAddresses(c *bootstrapv1.PoolbootConfig) {
	first := metav1.NewMicroTime(time.Now().Add(-time.Hour).Truncate(time.Second))
	c.Spec.ConfigSource = bootstrapv1.ConfigSource{Type: bootstrapv1.ConfigSourceTypeServer, Server: bootstrapv1.ServerSource{TokenBinding: bootstrapv1.TokenBindingHostAddresses}}
	c.Status.HostAddresses = []string{"192.0.2.7"}
	c.Status.Requests.Addresses = []bootstrapv1.TokenAddress{
		{Address: "192.0.2.8", FirstUsedTime: metav1.NewMicroTime(first.Add(time.Minute))},
		{Address: "192.0.2.7", FirstUsedTime: first},
	}
}
