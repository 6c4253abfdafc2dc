package rollout

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
)

// planLive returns the plan of a pool in the management cluster, by its role. What a host is told also depends on what
// this command can't know, such as the agent that the manager offers. So a host that has the config of its pool needs
// an update if the manager has it wait for one.
func (o *planOptions) planLive(ctx context.Context, name string) (map[string]plan, error) {
	cluster, p, err := openPool(ctx, o.connection, name)
	if err != nil {
		return nil, err
	}
	ofCluster, err := poolsOfCluster(ctx, cluster, p)
	if err != nil {
		return nil, err
	}
	configs, err := listConfigs(ctx, cluster, p)
	if err != nil {
		return nil, err
	}
	machines := &clusterv1.MachineList{}
	if err := cluster.List(ctx, machines, configsOf(p)...); err != nil {
		return nil, fmt.Errorf("list Machines: %w", err)
	}
	workload, err := cluster.Workload(ctx, client.ObjectKey{Namespace: p.Namespace, Name: p.Spec.ClusterName})
	if err != nil {
		return nil, fmt.Errorf("the Nodes of %s can't be read: %w", describe(p), err)
	}
	nodes := &corev1.NodeList{}
	if err := workload.List(ctx, nodes); err != nil {
		return nil, fmt.Errorf("list Nodes of Cluster %s/%s: %w", p.Namespace, p.Spec.ClusterName, err)
	}
	hosts := rollout.HostsOfPool(p.Spec.PoolRole, ofCluster, configs.Items, machines.Items, nodes.Items)
	notReplaced := rollout.NotReplaced(p, len(hosts))
	limit, err := rollout.MaxUnavailable(p.Spec.MaxUnavailable, len(hosts)+len(notReplaced))
	if err != nil {
		return nil, fmt.Errorf("%s: spec.%w", describe(p), err)
	}
	members, hold := make([]member, len(hosts)), rollout.HoldOf(p, time.Now())
	for i, h := range hosts {
		members[i] = memberOf(p, h, hold)
		members[i].Name = record.HostName(h.Config)
		updated := conditions.Get(h.Config, bootstrapv1.UpdatedCondition)
		if updated == nil || updated.Status == metav1.ConditionTrue {
			continue
		}
		if members[i].note != "" || members[i].IsExcluded {
			members[i].note = updated.Reason + ": " + updated.Message
		}
		waits := rollout.IsForced(h.Config) || updated.Reason == bootstrapv1.UpdateWaitingReason || updated.Reason == bootstrapv1.UpdateFailingReason
		if waits && members[i].Progress == rollout.Done && members[i].Desired == members[i].Target {
			of := hold.Of(h.NodeName())
			members[i].Target, members[i].HasBegun, members[i].IsSkipped, members[i].IsHeld = "another revision", false, of.IsSkipped, of.Why != ""
		}
		if members[i].isWaiting() && !members[i].IsSkipped {
			members[i].staging = describeNotStaged(p, h)
			members[i].IsStaging = members[i].staging != ""
		}
	}
	for _, gone := range notReplaced {
		members = append(members, member{Candidate: gone, place: "its Machine is gone, and its replacement has not joined"})
	}
	return map[string]plan{p.Spec.PoolRole: decide(p, members, limit)}, nil
}

// describeNotStaged returns why a host that waits for its update has not staged it, or "".
func describeNotStaged(p *poolv1.MachineConfigPool, h *rollout.Host) string {
	entry := rollout.StagingOf(p.Status.Staging, h.Name())
	switch next := h.Node.Annotations[agentv1.NextAnnotation]; {
	case h.Report.Staging == "", next != "" && h.HasStaged(next) && h.Report.Staging == next: // or an earlier agent, which does not stage
		return ""
	case next != "" && h.WhyNotStaged(next) != "":
		return "its host cannot stage the update, which it retries without a place: " + h.WhyNotStaged(next)
	case entry == nil || entry.StartTime == nil:
		return fmt.Sprintf("others stage their updates first: spec.updates.staging.maxHosts is %d", p.Spec.Updates.StagingHosts())
	case rollout.StagingLeft(entry, time.Now()) <= 0:
		return "its agent has not said for " + duration.HumanDuration(rollout.StagingPatience) + " whether the update is on the host: check poolboot-agent.service on it"
	}
	return "its host downloads what the update needs"
}

// nodeMember returns a Node as the manager sees it that told the Node what to run. The file contains no record of
// what it should run, so that is what it was told. If the annotation with the name of that config is missing, it is the
// config that the host runs, provided that the host has done what it was told.
func nodeMember(p *poolv1.MachineConfigPool, pools []poolv1.MachineConfigPool, node *corev1.Node, hold rollout.Hold) member {
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
	m := memberOf(p, h, hold)
	m.Name = node.Name
	if m.note == "" && *told == "" {
		m.note = fmt.Sprintf("its annotation %s is missing, so it is not known which config it was told to run: use the Node as kubectl get -o yaml prints it",
			agentv1.DesiredConfigAnnotation)
	}
	return m
}

// memberOf returns a host of a pool. A host that was told to run the rendered config that the pool hands out has its
// target.
func memberOf(p *poolv1.MachineConfigPool, h *rollout.Host, hold rollout.Hold) member {
	configuration, told := p.Status.Configuration.Name, h.Config.Status.Update.Desired.Name
	target := configuration
	if told == configuration {
		target = h.Desired()
	}
	if told == "" {
		target = ""
	}
	m := member{Candidate: h.ForRollout(p, target, rollout.SlotOf(p.Status.Slots, h.Name()), hold), node: h.NodeName(), hold: holdOn(p, h.NodeName(), hold)}
	if !m.IsSkipped || m.TakesPlace() {
		m.place = describePlace(&m.Candidate, h)
	}
	m.note = m.place
	switch {
	case h.IsUnrecorded:
		m.note = "the record of its Node is lost: see the condition " + bootstrapv1.NodeInPoolCondition + " of the PoolbootConfig"
	case !h.HasAgent():
		m.note = "it runs no agent"
	case m.note == "" && h.Report.Silence != "" && m.Desired != m.Target: // of a host that needs no update, the record says it
		m.note = h.Report.Silence
	case h.Desired() == "":
		m.note = "it was not told yet what it runs"
	}
	return m
}
