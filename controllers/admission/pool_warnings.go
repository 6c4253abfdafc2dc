package admission

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
)

// warnings tells of what is allowed and seldom meant.
func (w *MachineConfigPool) warnings(ctx context.Context, p *poolv1.MachineConfigPool, others []poolv1.MachineConfigPool) (admission.Warnings, error) {
	var warnings admission.Warnings
	cluster := client.ObjectKey{Namespace: p.Namespace, Name: p.Spec.ClusterName}
	if err := w.Reader.Get(ctx, cluster, &clusterv1.Cluster{}); apierrors.IsNotFound(err) {
		warnings = append(warnings, fmt.Sprintf("spec.clusterName: Cluster %s does not exist now: the pool renders nothing until it does; "+
			"a pool is in the namespace of its Cluster", cluster))
	} else if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("pool's Cluster %s: %w", cluster, err))
	}
	selects, err := w.selectsAny(ctx, p)
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("MachineConfigs of namespace %s: %w", p.Namespace, err))
	}
	if !selects {
		warnings = append(warnings, fmt.Sprintf("spec.machineConfigSelector selects no MachineConfig of namespace %s now: "+
			"the pool adds nothing until one has its labels", p.Namespace))
	}
	for _, key := range pool.SelectorKeys(*p) {
		if registration.KubeletMaySet(key) {
			warnings = append(warnings, fmt.Sprintf("spec.nodeSelector: a kubelet may set %s when it registers its Node anew, and at any time in a cluster before "+
				"Kubernetes 1.30, so whoever has a host could bring it into this pool: select by a label that starts with node-role.kubernetes.io/ or node-restriction.kubernetes.io/", key))
		}
	}
	if p.Spec.PausedConfiguration.Name != "" && !p.Spec.IsPaused() {
		warnings = append(warnings, "spec.pausedConfiguration: the pool is not paused, so Poolboot removes it: leave it out, or set paused to true")
	}
	if names := overlapping(*p, others); len(names) > 0 {
		cure := fmt.Sprintf("Select by node-role.kubernetes.io/%s alone, or by another value of a label that they select by", p.Spec.PoolRole)
		if selectsByRole(*p) {
			cure = "Have them select by their own node-role.kubernetes.io/ label alone, or exclude by NotIn or DoesNotExist what they select by"
		}
		warnings = append(warnings, fmt.Sprintf("spec.nodeSelector: a Node may have these labels and those of MachineConfigPool(s) %s, and can be in one "+
			"custom pool only: such a Machine does not boot and such a Node is in error. %s", list(names), cure))
	}
	return warnings, nil
}

// overlapping returns the names of the custom pools that could select a Node that a custom pool selects. Two that
// select by role labels only are passed over: a person gives a Node its role, and gives it one.
func overlapping(p poolv1.MachineConfigPool, others []poolv1.MachineConfigPool) []string {
	var names []string
	for _, other := range others {
		if !pool.IsCustom(p.Spec.PoolRole) || !pool.IsCustom(other.Spec.PoolRole) || selectsByRole(p) && selectsByRole(other) {
			continue
		}
		if may, err := pool.CanShareNode(p, other); err == nil && may { // a malformed selector is that pool's own mistake
			names = append(names, other.Name)
		}
	}
	return names
}

// selectsByRole says whether a pool selects by role labels only.
func selectsByRole(p poolv1.MachineConfigPool) bool {
	return !slices.ContainsFunc(pool.SelectorKeys(p), func(key string) bool { return !strings.HasPrefix(key, poolv1.NodeRoleLabelPrefix) })
}

// selectsAny says whether the pool's selector selects any MachineConfig. It reads their metadata only.
func (w *MachineConfigPool) selectsAny(ctx context.Context, p *poolv1.MachineConfigPool) (bool, error) {
	selector, err := metav1.LabelSelectorAsSelector(p.Spec.MachineConfigSelector)
	if err != nil || selector.Empty() {
		return false, err // an empty selector selects nothing
	}
	rendered, err := labels.NewRequirement(poolv1.RenderedForLabel, "!", nil)
	if err != nil {
		return false, err
	}
	configs := &metav1.PartialObjectMetadataList{}
	configs.SetGroupVersionKind(poolv1.GroupVersion.WithKind("MachineConfigList"))
	err = w.Reader.List(ctx, configs, client.InNamespace(p.Namespace), client.MatchingLabelsSelector{Selector: selector.Add(*rendered)}, client.Limit(1))
	return len(configs.Items) > 0, err
}
