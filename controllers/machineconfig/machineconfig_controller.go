// Package machineconfig reports in the status of a MachineConfig which pools render it, and whether they can. It can be
// invalid although a webhook validates it, if it was stored without the webhook or by an earlier version, and it can
// contradict another MachineConfig of a pool.
package machineconfig

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/excerpt"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/validation"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/status"
)

// maxMessage is the maximum size of the message of the condition in bytes.
const maxMessage = 4096

// maxPools is how many pools the status names.
const maxPools = 100

// +kubebuilder:rbac:groups=poolboot.io,resources=machineconfigs;machineconfigpools,verbs=get;list;watch
// +kubebuilder:rbac:groups=poolboot.io,resources=machineconfigs/status,verbs=patch

// Reconciler reconciles MachineConfigs, except rendered configs: these are valid by construction.
type Reconciler struct {
	// Client reads from the manager's cache.
	Client client.Client
	// WatchFilterValue is the value of the label cluster.x-k8s.io/watch-filter that MachineConfigs must have; empty
	// means all.
	WatchFilterValue string
}

// SetupWithManager adds the controller to a manager.
func (r *Reconciler) SetupWithManager(_ context.Context, mgr ctrl.Manager, options controller.Options) error {
	if r.Client == nil {
		return errors.New("machineconfig controller: Client must be set")
	}
	return ctrl.NewControllerManagedBy(mgr).
		Named("machineconfig").
		For(&poolv1.MachineConfig{}, builder.WithPredicates(
			predicate.Or(predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}))).
		Watches(&poolv1.MachineConfigPool{}, handler.EnqueueRequestsFromMapFunc(r.configsOfNamespace), builder.WithPredicates(predicate.Funcs{UpdateFunc: poolChanged})).
		WithOptions(options).
		Complete(r)
}

// poolChanged matches updates of a pool that can change what it selects, or why it cannot be rendered. All
// MachineConfigs are validated again then.
func poolChanged(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*poolv1.MachineConfigPool)
	after, okAfter := e.ObjectNew.(*poolv1.MachineConfigPool)
	return ok && okAfter && (whyNotRendered(before) != whyNotRendered(after) ||
		!equality.Semantic.DeepEqual(before.Spec.MachineConfigSelector, after.Spec.MachineConfigSelector))
}

// whyNotRendered returns why the MachineConfigs of a pool cannot be rendered, or "".
func whyNotRendered(p *poolv1.MachineConfigPool) string {
	c := meta.FindStatusCondition(p.Status.Conditions, poolv1.RenderDegradedCondition)
	if c == nil || c.Status != metav1.ConditionTrue || c.Reason != poolv1.RenderFailedReason {
		return ""
	}
	return c.Message
}

// configsOfNamespace returns requests for all MachineConfigs that a changed pool can select.
func (r *Reconciler) configsOfNamespace(ctx context.Context, p client.Object) (requests []ctrl.Request) {
	configs := &poolv1.MachineConfigList{}
	if err := r.Client.List(ctx, configs, client.InNamespace(p.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "The MachineConfigs of a changed pool are not reconciled")
	}
	for i := range configs.Items {
		if !pool.IsRendered(&configs.Items[i]) {
			requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&configs.Items[i])})
		}
	}
	return requests
}

// Reconcile validates one MachineConfig and writes its status if that changes.
func (r *Reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	config := &poolv1.MachineConfig{}
	if err := r.Client.Get(ctx, request.NamespacedName, config); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !config.DeletionTimestamp.IsZero() || pool.IsRenderedName(config.Name) || (r.WatchFilterValue != "" && !labels.HasWatchLabel(config, r.WatchFilterValue)) {
		return ctrl.Result{}, nil
	}
	pools := &poolv1.MachineConfigPoolList{}
	if err := r.Client.List(ctx, pools, client.InNamespace(config.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return ctrl.Result{}, fmt.Errorf("MachineConfigPools of namespace %s: %w", config.Namespace, err)
	}
	before := config.DeepCopy()
	config.Status.ObservedGeneration, config.Status.Pools = config.Generation, nil
	for _, p := range pool.RenderedBy(pools.Items, config.Labels) {
		config.Status.Pools = append(config.Status.Pools, p.Name)
	}
	slices.Sort(config.Status.Pools)
	config.Status.Pools = config.Status.Pools[:min(maxPools, len(config.Status.Pools))]
	meta.SetStatusCondition(&config.Status.Conditions, ready(config, pools.Items))
	if err := status.Patch(ctx, r.Client, before, config); err != nil {
		return status.RetryConflict(ctx, ctrl.Result{}, client.IgnoreNotFound(err))
	}
	return ctrl.Result{}, nil
}

// ready returns the condition Ready of a MachineConfig.
func ready(config *poolv1.MachineConfig, pools []poolv1.MachineConfigPool) metav1.Condition {
	c := metav1.Condition{Type: poolv1.ReadyCondition, Status: metav1.ConditionTrue, Reason: poolv1.MachineConfigValidReason,
		Message: cmp.Or(pool.NotSelected(config, pools), "it is valid"), ObservedGeneration: config.Generation}
	why := ""
	if _, errs := validation.MachineConfig(config, pools...); len(errs) > 0 {
		why = "pools that select it cannot be rendered: " + errs.ToAggregate().Error()
	}
	for _, p := range pool.RenderedBy(pools, config.Labels) {
		if of := whyNotRendered(&p); why == "" && strings.Contains(of, fmt.Sprintf("MachineConfig %q", config.Name)) {
			why = fmt.Sprintf("MachineConfigPool %s cannot be rendered: %s", p.Name, of)
		}
	}
	if why != "" {
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, poolv1.MachineConfigInvalidReason, why
	}
	c.Message = excerpt.Of(c.Message, maxMessage)
	return c
}
