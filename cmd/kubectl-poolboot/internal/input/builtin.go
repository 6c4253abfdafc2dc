package input

import (
	"fmt"
	"maps"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// RoleLabel is the label by which OpenShift's pools select MachineConfigs.
const RoleLabel = "machineconfiguration.openshift.io/role"

// NewBuiltIn returns one of the two pools that every OpenShift cluster has, as OpenShift installs it.
func NewBuiltIn(role string) poolv1.MachineConfigPool {
	p := poolv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: role, Labels: map[string]string{
		"machineconfiguration.openshift.io/mco-built-in":                         "",
		fmt.Sprintf("pools.operator.machineconfiguration.openshift.io/%s", role): "",
	}}}
	p.SetGroupVersionKind(OpenShiftPoolKind)
	p.Spec.PoolRole = role
	p.Spec.MachineConfigSelector = &metav1.LabelSelector{MatchLabels: map[string]string{RoleLabel: role}}
	p.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"node-role.kubernetes.io/" + role: ""}}
	return p
}

// completeWorker gives a pool worker what OpenShift's has and the files leave out, as GitOps repositories do: they have
// only labels and spec.paused, and OpenShift's operator sets the selectors. It returns a remark, or "" if nothing is
// missing.
func completeWorker(worker *poolv1.MachineConfigPool) string {
	builtIn := NewBuiltIn(poolv1.RoleWorker)
	var added []string
	if worker.Spec.MachineConfigSelector == nil {
		worker.Spec.MachineConfigSelector = builtIn.Spec.MachineConfigSelector
		added = append(added, "spec.machineConfigSelector")
	}
	if SelectsNothing(worker) {
		worker.Spec.NodeSelector = builtIn.Spec.NodeSelector
		added = append(added, nodeSelectorField)
	}
	if len(added) == 0 {
		return ""
	}
	maps.Copy(builtIn.Labels, worker.Labels) // KubeletConfigs select the labels of the built-in pool
	worker.Labels = builtIn.Labels
	return fmt.Sprintf("MachineConfigPool %q: the labels and %s of OpenShift's built-in pool are added, which the files do not contain",
		worker.Name, strings.Join(added, " and "))
}

// SelectsNothing reports whether a pool of OpenShift's has no node selector or an empty one, with which it selects no
// Node.
func SelectsNothing(p *poolv1.MachineConfigPool) bool {
	return IsOpenShift(p.TypeMeta) && (p.Spec.NodeSelector == nil || isEmptySelector(p))
}

const nodeSelectorField = "spec.nodeSelector"

func isEmptySelector(p *poolv1.MachineConfigPool) bool {
	s := p.Spec.NodeSelector
	return s != nil && len(s.MatchLabels)+len(s.MatchExpressions) == 0
}
