package rollout

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
)

// nodeMember returns a Node as the manager sees it that told the Node what to run. The file contains no record of
// what it should run, so that is what it was told. If the annotation with the name of that config is missing, it is the
// config that the host runs, provided that the host has done what it was told.
func nodeMember(p *poolv1.MachineConfigPool, pools []poolv1.MachineConfigPool, node *corev1.Node) member {
	config := &bootstrapv1.PoolbootConfig{}
	config.Name = node.Name
	if key, ok := record.ConfigOfNode(node); ok {
		config.Name = key.Name
	}
	config.Status.PoolRole = p.Spec.PoolRole
	config.Status.NodeRef = bootstrapv1.NodeReference{Name: node.Name, UID: string(node.UID)}
	config.Status.Update.DesiredRevision = node.Annotations[agentv1.DesiredAnnotation]
	config.Status.Update.Desired.Name = node.Annotations[agentv1.DesiredConfigAnnotation]
	h := rollout.HostOf(pools, config, nil, node)
	told := &config.Status.Update.Desired.Name
	if *told == "" && h.Report.IsDone(h.Told()) {
		*told = node.Annotations[poolv1.NodeCurrentConfigAnnotation]
	}
	m := memberOf(p, h)
	m.Name = node.Name
	if m.note == "" && *told == "" {
		m.note = fmt.Sprintf("its annotation %s is missing, so it is not known which config it was told to run: use the Node as kubectl get -o yaml prints it",
			agentv1.DesiredConfigAnnotation)
	}
	return m
}

// memberOf returns a host of a pool. A host that was told to run the rendered config that the pool hands out has its
// target.
func memberOf(p *poolv1.MachineConfigPool, h *rollout.Host) member {
	configuration, told := p.Status.Configuration.Name, h.Config.Status.Update.Desired.Name
	target := configuration
	if told == configuration {
		target = h.Desired()
	}
	if told == "" {
		target = ""
	}
	m := member{Candidate: h.ForRollout(p, target, rollout.SlotOf(p.Status.Slots, h.Name()))}
	m.place = describePlace(&m.Candidate, h)
	m.note = m.place
	switch {
	case h.IsUnrecorded:
		m.note = "the record of its Node is lost: see the condition " + bootstrapv1.NodeInPoolCondition + " of the PoolbootConfig"
	case !h.HasAgent():
		m.note = "it runs no agent"
	case h.Desired() == "":
		m.note = "it was not told yet what it runs"
	}
	return m
}
