package rollout

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

// EarlierPool is a pool that must be ready before hosts of another one begin updates.
type EarlierPool struct {
	// Role is that of the pool, which need not exist.
	Role string
	// Soak is how long it must be ready.
	Soak time.Duration
	// field is where the worker pool names it.
	field string
	// laterIsPinned is true if spec.configurationName of the other pool names an earlier rendered config: this one need
	// not prove that, so it can be pinned, too.
	laterIsPinned bool
}

// EarlierPools returns the pools that must be ready before hosts of a pool begin updates, one of these pools of a
// Cluster: those of all steps before its own, or of all steps if it is in none.
func EarlierPools(p *poolv1.MachineConfigPool, pools []poolv1.MachineConfigPool) (earlier []EarlierPool) {
	worker, err := pool.OfRole(pools, poolv1.RoleWorker)
	if err != nil { // the conditions of all pools that inherit from it say so
		return nil
	}
	for i, step := range worker.Spec.Updates.Cluster.Order {
		if slices.Contains(step.Pools, p.Spec.PoolRole) {
			break
		}
		soak, isPinned := time.Duration(ptr.Deref(step.SoakSeconds, 0))*time.Second, p.Spec.ConfigurationName != ""
		if isPinned {
			soak = 0
		}
		for _, role := range step.Pools {
			earlier = append(earlier, EarlierPool{
				Role: role, Soak: soak,
				field: fmt.Sprintf("spec.updates.cluster.order[%d] of MachineConfigPool %s", i, worker.Name), laterIsPinned: isPinned,
			})
		}
	}
	return earlier
}

// ClosedUntilReady returns why a pool that must be ready before others is not, or nil. configs are the MachineConfigs
// of the namespace. What the status says counts only if it is about the pool and the MachineConfigs as they are: it can
// be older than the change that the later pool is about to hand on. A pool that is ready but for hosts that it skips
// counts as ready since it is not Updating.
func (e EarlierPool) ClosedUntilReady(pools []poolv1.MachineConfigPool, configs []poolv1.MachineConfig, now time.Time) *ClosedGate {
	p, err := pool.OfRole(pools, e.Role)
	if err != nil {
		return e.closed("%s, or take it out of the order", err)
	}
	inputs, err := pool.InputsID(e.Role, pools, configs)
	ready, since := meta.FindStatusCondition(p.Status.Conditions, poolv1.ReadyCondition), meta.FindStatusCondition(p.Status.Conditions, poolv1.UpdatingCondition)
	switch {
	case err != nil, ready == nil, p.Status.InputsHash != inputs, p.Status.ObservedGeneration != p.Generation:
		return e.closed("MachineConfigPool %s has not rendered its present MachineConfigs: see its condition %s", p.Name, poolv1.RenderDegradedCondition)
	case p.Status.Configuration.Name == p.Status.RenderedConfiguration:
	case p.Spec.ConfigurationName != "" && !p.Spec.IsPaused():
		if !e.laterIsPinned {
			return e.closed("MachineConfigPool %s does not hand out what it renders: %s", p.Name, DescribePin(p))
		}
	default:
		return e.closed("MachineConfigPool %s holds back what it renders: run %s", p.Name, Command("resume", p))
	}
	switch {
	case ready.Status != metav1.ConditionTrue && ready.Reason == poolv1.HostsSkippedReason && since != nil: // since then, it is done but for these
		ready = since
	case ready.Status != metav1.ConditionTrue:
		return e.closed("MachineConfigPool %s is not ready (%s): see %s", p.Name, ready.Reason, Command("status", p))
	}
	if until := ready.LastTransitionTime.Add(e.Soak); until.After(now) {
		return e.closed("MachineConfigPool %s must stay ready until %s (soakSeconds): wait, or set fewer seconds", p.Name, until.UTC().Format(time.RFC3339))
	}
	return nil
}

// ClosedUntilUpdated returns that a host of the pool must be updated first, although the status of the pool does not
// say so yet.
func (e EarlierPool) ClosedUntilUpdated(host string) *ClosedGate {
	return e.closed("its host %s is to be updated, which its status does not say yet", host)
}

func (e EarlierPool) closed(format string, args ...any) *ClosedGate {
	return &ClosedGate{poolv1.EarlierPoolsPendingReason, fmt.Sprintf("the pool %s comes first (%s), and ", e.Role, e.field) + fmt.Sprintf(format, args...)}
}
