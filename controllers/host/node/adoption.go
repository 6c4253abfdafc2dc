package node

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	nodev1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/node/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
)

// asFound decides about the Node of an adopted host that is as it was found: the Node names its PoolbootConfig, and has
// nothing of a pool.
func asFound(node *corev1.Node, f facts) *decision {
	if problem := checkControlPlane(node, f.config); problem != nil {
		return problem
	}
	if p, declared, err := poolWithLabels(f.pools, cmp.Or(f.config.Status.PoolRole, f.config.Spec.PoolRole)); err == nil {
		release(node, declared, nodev1.CoreTaints(p.Spec.Node.Taints))
	}
	delete(node.Labels, poolv1.NodePoolLabel)
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, poolv1.NodeConfigAnnotation, record.Key(f.config).String())
	d := notInPool(bootstrapv1.AdoptionPreviewReason, "Node %s is adopted for pool %q and as it was found: see the condition %s for what the pool changes, and set spec.host.adoption to %s to put the Node in the pool",
		node.Name, f.config.Spec.PoolRole, bootstrapv1.UpdatedCondition, bootstrapv1.AdoptionFollow)
	d.condition.Status = metav1.ConditionUnknown
	d.record = &nodeRecord{
		pool: f.config.Spec.PoolRole, node: bootstrapv1.NodeReference{Name: node.Name, UID: string(node.UID)}, configuration: agentv1.AsFoundConfig,
	}
	if needsPatch(f.node, node) {
		d.node = node
	}
	return d
}

// checkControlPlane reports a Node of the control plane that is to be in a pool for other Nodes, or the reverse.
func checkControlPlane(node *corev1.Node, config *bootstrapv1.PoolbootConfig) *decision {
	isFor := config.Spec.PoolRole == poolv1.RoleControlPlane
	switch {
	case pool.IsControlPlane(node.Labels) == isFor:
		return nil
	case isFor:
		return notInPool(bootstrapv1.NodeOutsidePoolReason, "Node %s has no label of a control plane: delete PoolbootConfig %s, and create it with another poolRole", node.Name, config.Name)
	case record.IsAdopted(config):
		return notInPool(bootstrapv1.ControlPlaneNodeReason, "Node %s has the labels of a control plane, whose Nodes can only be in the pool %s: delete PoolbootConfig %s, and create it with this poolRole",
			node.Name, poolv1.RoleControlPlane, config.Name)
	}
	return notInPool(bootstrapv1.ControlPlaneNodeReason, "Node %s has the labels of a control plane, whose hosts don't boot into a pool: remove the control-plane label", node.Name)
}

// adopt adds the labels of its pool to the Node of an adopted host, and records which of them it did not have. It
// returns a problem if these labels do not put the Node in the pool.
func adopt(node *corev1.Node, f facts) (problem *decision) {
	_, declared, err := poolWithLabels(f.pools, f.config.Spec.PoolRole)
	if err != nil {
		return notInPool(bootstrapv1.NodeOutsidePoolReason, "Node %s can't be adopted: %s", node.Name, err)
	}
	addDeclared(node, declared)
	role, problem := decideRole(node, f)
	if problem == nil && role != f.config.Spec.PoolRole {
		problem = notInPool(bootstrapv1.NodeOutsidePoolReason, "Node %s can't be adopted for pool %q: with its own labels, it would be in pool %q: correct them, or spec.poolRole of PoolbootConfig %s",
			node.Name, f.config.Spec.PoolRole, role, f.config.Name)
	}
	return problem
}

// addDeclared adds the labels of its pool to the Node of an adopted host, and those that it did not have to the list of
// them.
func addDeclared(node *corev1.Node, declared map[string]string) {
	added := listed(node, poolv1.NodeAdoptedLabelsAnnotation)
	for key, value := range declared {
		if label := key + "=" + value; !metav1.HasLabel(node.ObjectMeta, key) && !slices.Contains(added, label) {
			added = append(added, label)
		}
	}
	slices.Sort(added)
	registration.AddLabels(node, declared)
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, poolv1.NodeAdoptedLabelsAnnotation, strings.Join(added, ","))
}

// release removes from the Node of an adopted host what its pool has added: of the labels and taints that the pool
// declares, those that are listed. Root on a host can write the lists.
func release(node *corev1.Node, declared map[string]string, taints []corev1.Taint) {
	added, applied := listed(node, poolv1.NodeAdoptedLabelsAnnotation), listed(node, poolv1.NodeAppliedTaintsAnnotation)
	maps.DeleteFunc(node.Labels, func(key, value string) bool { return declared[key] == value && slices.Contains(added, key+"="+value) })
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(taint corev1.Taint) bool {
		return slices.Contains(applied, taint.ToString()) && slices.ContainsFunc(taints, func(t corev1.Taint) bool { return t.ToString() == taint.ToString() })
	})
	delete(node.Annotations, poolv1.NodeAdoptedLabelsAnnotation)
	delete(node.Annotations, poolv1.NodeAppliedTaintsAnnotation)
}

// listed returns what an annotation of a Node lists.
func listed(node *corev1.Node, annotation string) []string {
	return strings.FieldsFunc(node.Annotations[annotation], func(r rune) bool { return r == ',' })
}

// hasPoolConfig reports whether the Node of an adopted host says that the host was told to have the configuration of a
// pool. clusterctl move drops the record of that.
func hasPoolConfig(node *corev1.Node) bool {
	told := node.Annotations[agentv1.DesiredConfigAnnotation]
	return told != "" && told != agentv1.AsFoundConfig
}
