package validation

import (
	"fmt"
	"slices"
	"strings"
	"time"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/excerpt"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
)

// maxNames is the maximum number of names in a warning.
const maxNames = 10

// PoolWarnings returns warnings about settings of a pool that are allowed but probably a mistake. others are the other
// pools of its Cluster; selects is true if its machineConfigSelector selects a MachineConfig.
func PoolWarnings(p *poolv1.MachineConfigPool, others []poolv1.MachineConfigPool, selects bool) (warnings []string) {
	switch {
	case p.Spec.MachineConfigSelector == nil:
		warnings = append(warnings, "spec.machineConfigSelector is not set, so the pool has no MachineConfigs of its own: if it should have some, set it to their labels")
	case !selects:
		warnings = append(warnings, fmt.Sprintf("spec.machineConfigSelector selects no MachineConfig of namespace %s yet: "+
			"the pool adds nothing until a MachineConfig has these labels", p.Namespace))
	}
	for _, key := range pool.SelectorKeys(*p) {
		if registration.KubeletCanSet(key) {
			warnings = append(warnings, fmt.Sprintf("spec.nodeSelector: a kubelet can set %s when its Node registers again, and at any time in a cluster before "+
				"Kubernetes 1.30, so root on a host can move the host to this pool: select by a label that starts with node-role.kubernetes.io/ or node-restriction.kubernetes.io/", key))
		}
	}
	if p.Annotations[poolv1.PausedConfigurationAnnotation] != "" && !p.Spec.IsPaused() {
		warnings = append(warnings, fmt.Sprintf("the annotation %s: the pool is not paused, so Poolboot removes it: leave it out, or set spec.paused to true", poolv1.PausedConfigurationAnnotation))
	}
	if paths := pool.DefaultsBelowPolicy(p.Spec.Updates.DisruptionPolicy); len(paths) > 0 {
		warnings = append(warnings, fmt.Sprintf("spec.updates.disruptionPolicy.files: the defaults for %s apply instead of the policy for a directory that contains them, "+
			"because their paths are longer: add policies for these paths to replace them", excerpt.Names(maxNames, paths)))
	}
	if nodes := rollout.ExpiredExceptions(p, time.Now()); len(nodes) > 0 {
		warnings = append(warnings, fmt.Sprintf("spec.updates.exceptions: these have expired and do nothing: remove them, or set a later time in until: %s", excerpt.Names(maxNames, nodes)))
	}
	if names := overlappingPools(*p, others); len(names) > 0 {
		remedy := fmt.Sprintf("Select only by node-role.kubernetes.io/%s, or by another value of a label by which they select", p.Spec.PoolRole)
		if selectsByRole(*p) {
			remedy = "Change these pools to select only by their node-role.kubernetes.io/ label, or exclude their labels with NotIn or DoesNotExist"
		}
		warnings = append(warnings, fmt.Sprintf("spec.nodeSelector: a Node can have these labels and those of MachineConfigPool(s) %s, but can be in only one "+
			"custom pool: such a Machine does not boot, and such a Node is reported as an error. %s", excerpt.Names(maxNames, names), remedy))
	}
	return warnings
}

// overlappingPools returns the names of the custom pools that can select the same Node as a custom pool. It ignores
// pairs that select only by role labels: an administrator usually sets one role label on a Node.
func overlappingPools(p poolv1.MachineConfigPool, others []poolv1.MachineConfigPool) []string {
	var names []string
	for _, other := range others {
		if !pool.IsCustom(p.Spec.PoolRole) || !pool.IsCustom(other.Spec.PoolRole) || selectsByRole(p) && selectsByRole(other) {
			continue
		}
		if overlap, err := pool.CanShareNode(p, other); err == nil && overlap { // an error is in the other pool
			names = append(names, other.Name)
		}
	}
	return names
}

// selectsByRole reports whether a pool selects only by role labels.
func selectsByRole(p poolv1.MachineConfigPool) bool {
	return !slices.ContainsFunc(pool.SelectorKeys(p), func(key string) bool { return !strings.HasPrefix(key, poolv1.NodeRoleLabelPrefix) })
}
