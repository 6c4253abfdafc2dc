package node

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
)

// asFound decides about the Node of an adopted host that is as it was found: the Node names its PoolbootConfig, and has
// nothing of a pool.
func asFound(node *corev1.Node, f facts) *decision {
	if byLabels, err := pool.Decide(node.Labels, nil); err == nil && byLabels.ControlPlane {
		return notInPool(bootstrapv1.ControlPlaneNodeReason, "Node %s has the labels of a control plane, which is in no pool: delete PoolbootConfig %s", node.Name, f.config.Name)
	}
	_, declared, _ := poolWithLabels(f.pools, f.config.Status.PoolRole)
	release(node, declared)
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

// adopt adds the labels of its pool to the Node of an adopted host, and records which of them it did not have. It
// returns a problem if these labels do not put the Node in the pool.
func adopt(node *corev1.Node, f facts) (problem *decision) {
	_, declared, err := poolWithLabels(f.pools, f.config.Spec.PoolRole)
	if err != nil {
		return notInPool(bootstrapv1.NodeOutsidePoolReason, "Node %s can't be adopted: %s", node.Name, err)
	}
	var added []string
	for _, key := range slices.Sorted(maps.Keys(declared)) {
		if _, has := node.Labels[key]; !has {
			added = append(added, key+"="+declared[key])
		}
	}
	registration.AddLabels(node, declared)
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, poolv1.NodeAdoptedLabelsAnnotation, strings.Join(added, ","))
	role, problem := decideRole(node, f)
	if problem == nil && role != f.config.Spec.PoolRole {
		problem = notInPool(bootstrapv1.NodeOutsidePoolReason, "Node %s can't be adopted for pool %q: with its own labels, it would be in pool %q: correct them, or spec.poolRole of PoolbootConfig %s",
			node.Name, f.config.Spec.PoolRole, role, f.config.Name)
	}
	return problem
}

// release removes from the Node of an adopted host what its pool has added: of the labels that the pool declares, those
// that are listed.
func release(node *corev1.Node, declared map[string]string) {
	added := strings.Split(node.Annotations[poolv1.NodeAdoptedLabelsAnnotation], ",")
	maps.DeleteFunc(node.Labels, func(key, value string) bool { return declared[key] == value && slices.Contains(added, key+"="+value) })

	applied := strings.Split(node.Annotations[poolv1.NodeAppliedTaintsAnnotation], ",")
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return slices.Contains(applied, taint.ToString()) })
	delete(node.Labels, poolv1.NodePoolLabel)
	delete(node.Annotations, poolv1.NodeAdoptedLabelsAnnotation)
	delete(node.Annotations, poolv1.NodeAppliedTaintsAnnotation)
}
