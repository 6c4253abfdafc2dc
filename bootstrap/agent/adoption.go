package agent

import (
	"context"
	"slices"
	"strings"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// planUpdate plans the update to another configuration, as the host is now.
func (a *Agent) planUpdate(ctx context.Context, before, after *target) (*hostUpdate, error) {
	if !isAdoption(before, after) {
		return newUpdate(before, after, a.Clock.BootID(), a.current.drift, a.Capabilities), nil
	}
	if keysFile, err := a.hasSingleKeysFile(after); err != nil {
		return nil, err
	} else if keysFile != a.journal.SingleKeysFile {
		if _, err := a.enter(a.journal.Phase, func(j *journal) { j.SingleKeysFile = keysFile }); err != nil {
			return nil, err
		}
	}
	drift, err := a.driftFrom(ctx, after)
	if err != nil {
		return nil, err
	}
	return newUpdate(before, after, a.Clock.BootID(), drift, a.Capabilities), nil
}

// driftFrom returns how a host that Poolboot did not boot differs from a configuration.
func (a *Agent) driftFrom(ctx context.Context, t *target) ([]update.Drift, error) {
	host, err := a.host(ctx)
	if err != nil {
		return nil, err
	}
	var drift []update.Drift
	for _, user := range t.config.Ignition.Passwd.Users {
		if _, exists := host.Users[user.Name]; !exists {
			drift = append(drift, update.Drift{Name: user.Name, Kind: update.DriftMissingUser})
			assumeUser(host, user)
		}
	}
	for _, group := range t.config.Ignition.Passwd.Groups {
		if _, exists := host.Groups[group.Name]; !exists {
			drift = append(drift, update.Drift{Name: group.Name, Kind: update.DriftMissingGroup})
			assumeGroup(host, group.Name)
		}
	}
	tree, err := treeOn(t, host)
	if err != nil {
		return nil, err
	}
	paths, err := a.Files.DifferencesFrom(tree)
	if err != nil {
		return nil, err
	}
	drift = append(drift, a.withDrift(ctx, newCurrent(t), paths)...)
	return drift, ctx.Err()
}

// hasNext reports whether everything is done about the update that the host gets next, until it gets it. Before
// somebody agrees to the first update of a host that Poolboot did not boot, that is a preview from after the last check
// of the host.
func (a *Agent) hasNext(revision string) bool {
	if !a.current.isAsFound {
		return a.store.isStaged(revision)
	}
	return strings.HasPrefix(a.report.preview, revision+" ") && a.previewedAt >= a.checkedAt
}

// preview describes what the first update of a host changes that Poolboot did not boot, as
// agentv1.PreviewAnnotation has it.
func (a *Agent) preview(ctx context.Context, u *hostUpdate) string {
	own := func(d update.Drift) bool {
		return ignition.IsOwnFile(d.Name) || d.Name == hosttree.PresetPath || slices.Contains(ignition.OwnUnits, hosttree.UnitOf(d.Name))
	}
	effect, text := string(u.plan.Effect()), listDrift(without(u.drift, own))
	if !u.plan.IsPossible() {
		effect, text = string(agentv1.Unreconcilable), u.obstacles()
	} else if why := a.refusal(ctx, u); why != "" {
		effect, text = string(agentv1.Unreconcilable), why
	}
	head := u.after.revision + " " + effect
	return strings.TrimSpace(head + "\n" + shorten(text, agentv1.MaxReason-len(head)-1))
}
