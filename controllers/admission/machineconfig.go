package admission

import (
	"context"
	"fmt"
	"maps"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/validation"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// +kubebuilder:webhook:verbs=create;update;delete,path=/validate-poolboot-io-v1alpha1-machineconfig,mutating=false,failurePolicy=fail,matchPolicy=Equivalent,groups=poolboot.io,resources=machineconfigs,versions=v1alpha1,name=validation.machineconfig.poolboot.io,sideEffects=None,admissionReviewVersions=v1

// MachineConfig validates MachineConfigs: they must be valid Ignition or Butane and must not change what Poolboot
// manages. The name of a rendered config must match its content.
type MachineConfig struct {
	// Reader reads pools and Clusters from the API server.
	Reader client.Reader
}

var _ admission.Validator[*poolv1.MachineConfig] = &MachineConfig{}

// ValidateCreate refuses a MachineConfig that no pool can render, and a rendered config that no pool has rendered. It
// warns of one that no pool selects.
func (w *MachineConfig) ValidateCreate(ctx context.Context, config *poolv1.MachineConfig) (admission.Warnings, error) {
	pools, err := w.pools(ctx, config)
	if err != nil {
		return nil, err
	}
	return validate(config, pools)
}

func validate(config *poolv1.MachineConfig, pools []poolv1.MachineConfigPool) (admission.Warnings, error) {
	warnings, errs := validation.MachineConfig(config, pools...)
	if len(errs) > 0 {
		return warnings, invalid(poolv1.GroupVersion.WithKind("MachineConfig"), config, errs)
	}
	return append(warnings, notSelected(config, pools)...), nil
}

// pools returns the pools that can select a MachineConfig.
func (w *MachineConfig) pools(ctx context.Context, config *poolv1.MachineConfig) ([]poolv1.MachineConfigPool, error) {
	pools := &poolv1.MachineConfigPoolList{}
	if err := w.Reader.List(ctx, pools, client.InNamespace(config.Namespace)); err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("MachineConfigPools of namespace %s: %w", config.Namespace, err))
	}
	return pools.Items, nil
}

// notSelected warns of a MachineConfig that no pool selects.
func notSelected(config *poolv1.MachineConfig, pools []poolv1.MachineConfigPool) admission.Warnings {
	if warning := pool.NotSelected(config, pools); warning != "" {
		return admission.Warnings{warning}
	}
	return nil
}

// ValidateUpdate validates a changed spec as ValidateCreate does, and labels by which a pool for the control plane
// selects it. So the spec of a rendered config cannot change, because its name would no longer match.
func (w *MachineConfig) ValidateUpdate(ctx context.Context, before, config *poolv1.MachineConfig) (admission.Warnings, error) {
	isSame := isUnchanged(config, before.Spec, config.Spec)
	if isSame && maps.Equal(before.Labels, config.Labels) {
		return nil, nil
	}
	pools, err := w.pools(ctx, config)
	if err != nil {
		return nil, err
	}
	if scope := pool.ScopeOf(config, pools); isSame && (!scope.ControlPlane || scope == pool.ScopeOf(before, pools)) {
		return notSelected(config, pools), nil
	}
	return validate(config, pools)
}

// ValidateDelete refuses only the deletion of the rendered config that a paused pool hands out, or that
// spec.configurationName of a pool names. Other rendered configs in use are rendered again. These cannot be rendered
// again after their MachineConfigs have changed.
func (w *MachineConfig) ValidateDelete(ctx context.Context, config *poolv1.MachineConfig) (admission.Warnings, error) {
	key := client.ObjectKey{Namespace: config.Namespace, Name: config.Labels[poolv1.RenderedForLabel]}
	if _, isMoved := config.Annotations[clusterctlv1.DeleteForMoveAnnotation]; isMoved || key.Name == "" {
		return nil, nil
	}
	p, err := workload.GetIfExists[poolv1.MachineConfigPool](ctx, w.Reader, key)
	if err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("MachineConfigPool %s: %w", key, err))
	}
	if p == nil {
		return nil, nil
	}
	handedOut := p.Annotations[poolv1.PausedConfigurationAnnotation]
	if handedOut == "" { // not set yet
		handedOut = p.Status.Configuration.Name
	}
	how := ""
	switch {
	case p.Spec.IsPaused() && handedOut == config.Name:
		how = fmt.Sprintf("the paused MachineConfigPool %s hands it out", p.Name)
	case p.Spec.ConfigurationName == config.Name:
		how = fmt.Sprintf("spec.configurationName of MachineConfigPool %s names it", p.Name)
	}
	if how == "" || !p.DeletionTimestamp.IsZero() {
		return nil, nil
	}
	if deleted, err := isClusterDeleted(ctx, w.Reader, p); err != nil || deleted {
		return nil, err
	}
	return nil, apierrors.NewForbidden(poolv1.GroupVersion.WithResource("machineconfigs").GroupResource(), config.Name,
		fmt.Errorf("%s, and the pool cannot render it again after its MachineConfigs have changed: first run %s", how, rollout.Command("resume", p)))
}
