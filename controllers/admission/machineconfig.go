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
	warnings, errs := validation.MachineConfig(config)
	if len(errs) > 0 {
		return warnings, invalid(poolv1.GroupVersion.WithKind("MachineConfig"), config, errs)
	}
	notSelected, err := w.warnNotSelected(ctx, config)
	return append(warnings, notSelected...), err
}

// warnNotSelected warns of a MachineConfig that no pool selects.
func (w *MachineConfig) warnNotSelected(ctx context.Context, config *poolv1.MachineConfig) (admission.Warnings, error) {
	if pool.IsRendered(config) {
		return nil, nil
	}
	pools := &poolv1.MachineConfigPoolList{}
	if err := w.Reader.List(ctx, pools, client.InNamespace(config.Namespace)); err != nil {
		return nil, apierrors.NewInternalError(fmt.Errorf("MachineConfigPools of namespace %s: %w", config.Namespace, err))
	}
	if warning := pool.NotSelected(config, pools.Items); warning != "" {
		return admission.Warnings{warning}, nil
	}
	return nil, nil
}

// ValidateUpdate validates a changed spec as ValidateCreate does. So the spec of a rendered config cannot change,
// because its name would no longer match.
func (w *MachineConfig) ValidateUpdate(ctx context.Context, before, config *poolv1.MachineConfig) (admission.Warnings, error) {
	switch {
	case !isUnchanged(config, before.Spec, config.Spec):
		return w.ValidateCreate(ctx, config)
	case !maps.Equal(before.Labels, config.Labels):
		return w.warnNotSelected(ctx, config)
	}
	return nil, nil
}

// ValidateDelete refuses only the deletion of the rendered config that a paused pool hands out. Other rendered configs
// in use are rendered again. This one cannot be rendered again after its MachineConfigs have changed.
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
	if !p.Spec.IsPaused() || !p.DeletionTimestamp.IsZero() || handedOut != config.Name {
		return nil, nil
	}
	if deleted, err := isClusterDeleted(ctx, w.Reader, p); err != nil || deleted {
		return nil, err
	}
	return nil, apierrors.NewForbidden(poolv1.GroupVersion.WithResource("machineconfigs").GroupResource(), config.Name,
		fmt.Errorf("the paused MachineConfigPool %s hands it out, and cannot render it again after its MachineConfigs have changed: first run %s", p.Name, rollout.Command("resume", p)))
}
