package admission

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
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

// ValidateUpdate validates a changed spec as ValidateCreate does, and otherwise only a changed annotation. A rendered
// config that the pool is to hand out from now on must exist. When a pool is created, as by clusterctl move, it exists
// before its rendered configs.
func (w *MachineConfigPool) ValidateUpdate(ctx context.Context, before, p *poolv1.MachineConfigPool) (admission.Warnings, error) {
	const annotation = poolv1.PausedConfigurationAnnotation
	switch {
	case !isUnchanged(p, before.Spec, p.Spec):
		if before.Spec.ConfigurationName != p.Spec.ConfigurationName {
			if err := w.checkConfigurationName(ctx, p); err != nil {
				return nil, err
			}
		}
		return w.ValidateCreate(ctx, p)
	case !isUnchanged(p, before.Annotations[annotation], p.Annotations[annotation]):
		return nil, invalid(poolv1.GroupVersion.WithKind("MachineConfigPool"), p, validation.PausedConfiguration(p))
	}
	return nil, nil
}

// checkConfigurationName refuses a spec.configurationName that names no rendered config of the pool.
func (w *MachineConfigPool) checkConfigurationName(ctx context.Context, p *poolv1.MachineConfigPool) error {
	key := client.ObjectKey{Namespace: p.Namespace, Name: p.Spec.ConfigurationName}
	if !pool.IsRenderedNameOf(p.Name, key.Name) { // ValidateCreate refuses it, or there is none
		return nil
	}
	rendered, err := workload.GetIfExists[poolv1.MachineConfig](ctx, w.Reader, key)
	switch {
	case err != nil:
		return apierrors.NewInternalError(fmt.Errorf("MachineConfig %s: %w", key, err))
	case rendered == nil || rendered.Labels[poolv1.RenderedForLabel] != p.Name:
		return invalid(poolv1.GroupVersion.WithKind("MachineConfigPool"), p, field.ErrorList{validation.NotRendered(p)})
	}
	return nil
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
	selects, err := w.selectsAny(ctx, p)
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("MachineConfigs of namespace %s: %w", p.Namespace, err))
	}
	return append(warnings, validation.PoolWarnings(p, others, selects)...), nil
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
