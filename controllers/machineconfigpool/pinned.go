package machineconfigpool

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
)

// checkPinned sets what the pool hands out instead of what it renders, or the problem if spec.configurationName names
// what cannot be handed out. What the pool renders exists.
func (r *Reconciler) checkPinned(ctx context.Context, s *scope) error {
	name := s.pool.Spec.ConfigurationName
	if name == "" || s.cluster == nil {
		return nil
	}
	if s.rendered == nil || s.rendered.Name != name {
		cause, err := r.whyNotHandedOut(ctx, s, name)
		if err != nil {
			return err
		}
		if cause != "" {
			s.pinProblem = fmt.Sprintf("spec.configurationName: MachineConfig %s %srun %s --to NAME with one that %s lists, or %s",
				name, cause, rollout.Command("undo", s.pool), rollout.Command("history", s.pool), rollout.Command("resume", s.pool))
			if s.problem == nil {
				s.problem = &problem{poolv1.PinnedConfigurationInvalidReason, s.pinProblem}
			}
			return nil
		}
	}
	s.pinned = name
	return nil
}

// setPinned sets the condition Pinned.
func (s *scope) setPinned() {
	name, handsOut := s.pool.Spec.ConfigurationName, s.pool.Status.Configuration.Name
	if name == "" {
		meta.RemoveStatusCondition(&s.pool.Status.Conditions, poolv1.PinnedCondition)
		return
	}
	set := func(isTrue bool, reason, format string, args ...any) {
		s.setCondition(poolv1.PinnedCondition, isTrue, reason, fmt.Sprintf(format, args...))
	}
	resume := rollout.Command("resume", s.pool)
	switch {
	case s.pinProblem != "":
		set(false, poolv1.PinnedConfigurationInvalidReason, "%s", s.pinProblem)
	case s.pinned == "": // it could not be read, which is retried
	case s.pool.Spec.IsPaused() && handsOut != name:
		set(false, poolv1.RolloutPausedReason, "the pool is paused, so %s (spec.configurationName) waits: run %s to hand it out", name, resume)
	case s.rendered == nil:
		set(true, poolv1.ConfigurationDiffersReason, "the pool hands out %s (spec.configurationName), and can't be rendered: see the condition %s", name, poolv1.RenderDegradedCondition)
	case pool.HasSameContent(s.rendered.Name, name):
		set(true, poolv1.ConfigurationSameReason, "the pool hands out %s (spec.configurationName), and renders the same: run %s to hand out its next changes too", name, resume)
	default:
		set(true, poolv1.ConfigurationDiffersReason, "the pool hands out %s (spec.configurationName), and renders %s: %s", name, s.rendered.Name, s.describeMisfits())
	}
}

// misfits are the objects because of which a pool renders something else than it is to hand out.
type misfits struct{ pinned, inputs, description string }

// describeMisfits names the objects because of which the pool renders something else. They are looked for again only if
// its input has changed.
func (s *scope) describeMisfits() string {
	known := &s.cache.misfits
	if known.pinned == s.pinned && known.inputs == s.cache.inputs && known.description != "" {
		return known.description
	}
	rendered := s.config(s.pinned)
	if rendered == nil { // the cache does not have it yet
		return rollout.DescribeMisfits(s.pool, nil, false)
	}
	found, isKnown := pool.FindMisfits(rendered, s.pool.Spec.PoolRole, s.pools, s.configs)
	*known = misfits{s.pinned, s.cache.inputs, rollout.DescribeMisfits(s.pool, found, isKnown)}
	return known.description
}

// pinnedMessage says that the hosts run an earlier rendered config. It returns "" if they do not.
func (s *scope) pinnedMessage() string {
	if meta.FindStatusCondition(s.pool.Status.Conditions, poolv1.PinnedCondition) == nil || s.pinned == "" {
		return ""
	}
	return "; spec.configurationName names it: see the condition " + poolv1.PinnedCondition
}

// isPinned reports whether a pool hands out what spec.configurationName names.
func isPinned(p *poolv1.MachineConfigPool) bool {
	return meta.IsStatusConditionPresentAndEqual(p.Status.Conditions, poolv1.PinnedCondition, metav1.ConditionTrue)
}
