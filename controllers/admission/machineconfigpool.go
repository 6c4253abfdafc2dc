package admission

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/validation"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// +kubebuilder:webhook:verbs=create;update;delete,path=/validate-poolboot-io-v1alpha1-machineconfigpool,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=poolboot.io,resources=machineconfigpools,versions=v1alpha1,name=validation.machineconfigpool.poolboot.io,sideEffects=None,admissionReviewVersions=v1

// MachineConfigPool validates MachineConfigPools: there must be labels that select a Node for this pool and for no
// other pool, and only one pool of a Cluster can have a role. It refuses the deletion of a pool in use.
type MachineConfigPool struct {
	// Reader reads from the API server.
	Reader client.Reader
}

var _ admission.Validator[*poolv1.MachineConfigPool] = &MachineConfigPool{}

// ValidateCreate refuses a pool in which no Node can register, and returns warnings about probable mistakes.
func (w *MachineConfigPool) ValidateCreate(ctx context.Context, p *poolv1.MachineConfigPool) (admission.Warnings, error) {
	others, err := w.otherPools(ctx, p)
	if err != nil {
		return nil, err
	}
	if err := invalid(poolv1.GroupVersion.WithKind("MachineConfigPool"), p, validation.MachineConfigPool(p, others)); err != nil {
		return nil, err
	}
	return w.warnings(ctx, p, others)
}

// otherPools returns the other pools of the Cluster of a pool.
func (w *MachineConfigPool) otherPools(ctx context.Context, p *poolv1.MachineConfigPool) ([]poolv1.MachineConfigPool, error) {
	pools := &poolv1.MachineConfigPoolList{}
	if err := w.Reader.List(ctx, pools, client.InNamespace(p.Namespace)); err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("MachineConfigPools of namespace %s: %w", p.Namespace, err))
	}
	return slices.DeleteFunc(pools.Items, func(other poolv1.MachineConfigPool) bool {
		return other.Name == p.Name || other.Spec.ClusterName != p.Spec.ClusterName
	}), nil
}

// ValidateUpdate validates a changed spec as ValidateCreate does, and otherwise only a changed annotation.
func (w *MachineConfigPool) ValidateUpdate(ctx context.Context, before, p *poolv1.MachineConfigPool) (admission.Warnings, error) {
	const annotation = poolv1.PausedConfigurationAnnotation
	switch {
	case !isUnchanged(p, before.Spec, p.Spec):
		return w.ValidateCreate(ctx, p)
	case !isUnchanged(p, before.Annotations[annotation], p.Annotations[annotation]):
		return nil, invalid(poolv1.GroupVersion.WithKind("MachineConfigPool"), p, validation.PausedConfiguration(p))
	}
	return nil, nil
}

// warnings returns warnings about settings that are allowed but probably a mistake.
func (w *MachineConfigPool) warnings(ctx context.Context, p *poolv1.MachineConfigPool, others []poolv1.MachineConfigPool) (admission.Warnings, error) {
	var warnings admission.Warnings
	cluster, err := clusterOf(ctx, w.Reader, p)
	if err != nil {
		return nil, err
	}
	if cluster == nil {
		warnings = append(warnings, fmt.Sprintf("spec.clusterName: Cluster %s does not exist now: the pool renders nothing until it exists; "+
			"a pool must be in the namespace of its Cluster", workload.ClusterOfPool(p)))
	}
	switch selects, err := w.selectsAny(ctx, p); {
	case err != nil:
		return nil, apierrors.NewInternalError(fmt.Errorf("MachineConfigs of namespace %s: %w", p.Namespace, err))
	case p.Spec.MachineConfigSelector == nil:
		warnings = append(warnings, "spec.machineConfigSelector is not set, so the pool has no MachineConfigs of its own: if it should have some, set it to their labels")
	case !selects:
		warnings = append(warnings, fmt.Sprintf("spec.machineConfigSelector selects no MachineConfig of namespace %s now: "+
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
			"because their paths are longer: add policies for these paths to replace them", joinNames(paths)))
	}
	if names := overlappingPools(*p, others); len(names) > 0 {
		remedy := fmt.Sprintf("Select only by node-role.kubernetes.io/%s, or by another value of a label by which they select", p.Spec.PoolRole)
		if selectsByRole(*p) {
			remedy = "Change these pools to select only by their node-role.kubernetes.io/ label, or exclude their labels with NotIn or DoesNotExist"
		}
		warnings = append(warnings, fmt.Sprintf("spec.nodeSelector: a Node can have these labels and those of MachineConfigPool(s) %s, but can be in only one "+
			"custom pool: such a Machine does not boot, and such a Node is reported as an error. %s", joinNames(names), remedy))
	}
	return warnings, nil
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

// selectsAny reports whether the pool selects any MachineConfig. It reads only their metadata.
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
