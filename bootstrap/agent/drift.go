package agent

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	"k8s.io/utils/ptr"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/durable"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// current is what is kept in memory of the current configuration.
type current struct {
	revision string
	// isAsFound is set if Poolboot did not boot the host, and has changed nothing.
	isAsFound bool
	units     []string
	// paths are those of the configuration.
	paths     map[string]bool
	arguments []string
	// outdated are the disks that the host has otherwise, and what depends on them, for people.
	outdated string
	os       update.OperatingSystem
	// isOSKnown is set once osDrift is known. The running operating system is another one only after a reboot.
	isOSKnown bool
	osDrift   []update.Drift
	// enablement is that of the units of the configuration that it does not mask, update.Preset if it says nothing.
	enablement map[string]update.Enablement
	// extended are the units for which it has only drop-ins, and that have to exist.
	extended map[string]bool
	repairs  bool
	offer    *assignment.Agent
	drift    []update.Drift
}

// argumentsOf returns the single kernel arguments of a configuration.
func argumentsOf(config update.Config) []string {
	return ignition.SplitArguments(config.KernelArguments)
}

// loadCurrent reads what is needed of the current configuration. If its documents are lost, it downloads them again.
func (a *Agent) loadCurrent(ctx context.Context) error {
	if a.current != nil && a.current.revision == a.journal.Current {
		return nil
	}
	t, err := a.load(a.journal.Current)
	if errors.Is(err, errDocument) {
		limited, cancel := context.WithTimeout(ctx, downloadTimeout)
		defer cancel()
		t, err = a.fetch(limited, a.journal.Current)
	}
	if errors.Is(err, assignment.ErrOtherRevision) || errors.Is(err, ErrRefused) {
		return fmt.Errorf("documents of the current configuration are lost: %w: %s", err, durable.StartOver)
	}
	if err != nil {
		return err
	}
	a.current, a.isDue = newCurrent(t), true
	a.lookAtUnits(ctx) // the end of an update is reported with the units that fail since
	return nil
}

// newCurrent returns what is kept in memory of a configuration.
func newCurrent(t *target) *current {
	c := &current{revision: t.revision, isAsFound: t.Config.IsAsFound(), arguments: argumentsOf(t.config), os: t.config.OS, repairs: t.RepairsDrift, offer: t.Agent, enablement: map[string]update.Enablement{}, extended: map[string]bool{}, paths: map[string]bool{}}
	for name := range hosttree.New(t.config.Ignition) {
		c.paths[name] = true
	}
	for _, unit := range t.config.Ignition.Systemd.Units {
		c.units = append(c.units, unit.Name)
		if !ptr.Deref(unit.Mask, false) {
			c.enablement[unit.Name] = enablementOf(unit)
			isPattern := strings.Contains(unit.Name, "@.") || strings.Contains(unit.Name, "-.") // of templates and of prefixes
			c.extended[unit.Name] = len(unit.Dropins) > 0 && ptr.Deref(unit.Contents, "") == "" && unit.Enabled == nil && !isPattern
		}
	}
	texts := make([]string, len(t.outdated))
	for i, item := range t.outdated {
		texts[i] = item.String()
	}
	c.outdated = shorten(strings.Join(texts, "\n"), agentv1.MaxReason)
	return c
}

// checkIfDue finds what differs from the current configuration. What can't be checked, which is logged, does not keep
// the rest from being checked: it is checked again in an hour.
func (a *Agent) checkIfDue(ctx context.Context) error {
	uptime := a.Clock.Uptime()
	if !a.isDue && uptime-a.checkedAt < checkInterval {
		return nil
	}
	if err := a.retryIfLeft(ctx); err != nil {
		return err
	}
	a.seen = a.Files.Look(a.current.units...)
	drift, err := a.Files.Differences(a.current.units...)
	if err != nil {
		a.Log.Error("whether files differ is not known", "error", err)
	}
	drift = a.withDrift(ctx, a.current, drift)
	for _, entry := range a.journal.LeftOver {
		drift = append(drift, update.Drift{Name: entry.String(), Kind: update.DriftNotRestored})
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if !slices.Equal(drift, a.current.drift) {
		a.Log.Warn("what differs from the configuration changed", "differences", shorten(listDrift(drift), agentv1.MaxReason))
	}
	a.current.drift, a.report.drift = drift, shorten(listDrift(drift), agentv1.MaxReason)
	a.isDue, a.checkedAt, a.offered = false, uptime, nil
	return nil
}

// withDrift adds what differs from a configuration besides paths.
func (a *Agent) withDrift(ctx context.Context, c *current, paths []update.Drift) []update.Drift {
	return slices.Concat(paths, a.unitDrift(ctx, c, paths), a.argumentDrift(c), a.osDrift(ctx, c))
}

// argumentDrift returns the kernel arguments by which the running kernel differs.
func (a *Agent) argumentDrift(c *current) (drift []update.Drift) {
	missing, additional, err := a.Executors.KernelArguments.Differences(c.arguments)
	if err != nil {
		a.Log.Error("the kernel arguments of the host are not known", "error", err)
	}
	for _, argument := range missing {
		drift = append(drift, update.Drift{Name: argument, Kind: update.DriftMissingArgument})
	}
	for _, argument := range additional {
		drift = append(drift, update.Drift{Name: argument, Kind: update.DriftAdditionalArgument})
	}
	return drift
}

// unitDrift returns the units that differ in how they are enabled or masked, by the paths of their files, and what
// overrides units. What is among the known differences already is left out. Without an answer of systemctl, which is
// logged, there are none: the host is checked again in an hour.
func (a *Agent) unitDrift(ctx context.Context, c *current, known []update.Drift) (drift []update.Drift) {
	if len(c.enablement) == 0 {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, actionTimeout)
	defer cancel()
	differing, masked, err := a.Executors.Enablement.Differing(limited, c.enablement)
	if err != nil {
		a.Log.Error("whether units are enabled is not known", "error", err)
	}
	dropIns, files, masks, err := a.Executors.Units.Overrides(limited, slices.Sorted(maps.Keys(c.enablement)), c.paths)
	if err != nil {
		a.Log.Error("what overrides units is not known", "error", err)
	}
	add := func(kind update.DriftKind, name string) {
		isKnown := func(d update.Drift) bool { return d.Name == name }
		if !slices.ContainsFunc(known, isKnown) && !slices.ContainsFunc(drift, isKnown) {
			drift = append(drift, update.Drift{Name: name, Kind: kind})
		}
	}
	for _, unit := range slices.Concat(masked, masks) {
		add(update.DriftMasked, path.Join(hosttree.UnitDirectory, unit))
	}
	for _, unit := range differing {
		add(update.DriftEnablement, path.Join(hosttree.UnitDirectory, unit))
	}
	for _, name := range files {
		add(update.DriftOverridden, name)
	}
	for _, name := range dropIns {
		add(update.DriftAdditionalDropIn, name)
	}
	slices.SortFunc(drift, func(a, b update.Drift) int { return strings.Compare(a.Name, b.Name) })
	return drift
}

// osDrift returns the entries that the running operating system does not have: a host boots for the first time with
// the one that it was installed with. What the host has no program for is not there. Without an answer of the program,
// which is logged, there are none, and the next check asks again.
func (a *Agent) osDrift(ctx context.Context, c *current) []update.Drift {
	if c.isOSKnown {
		return c.osDrift
	}
	want, missing := c.os, func(entry update.Kind) {
		c.osDrift = append(c.osDrift, update.Drift{Name: string(entry), Kind: update.DriftOS})
	}
	c.osDrift = nil
	if want.Image != "" && !a.Capabilities.OSImage {
		missing(update.KindOSImage)
		want.Image = ""
	}
	if !a.Capabilities.Packages {
		if len(want.Extensions) > 0 {
			missing(update.KindExtensions)
		}
		if !want.HasDefaultKernel() {
			missing(update.KindKernelType)
		}
		want.Extensions, want.KernelType = nil, ""
	}
	if want.Image != "" || len(want.Extensions) > 0 || !want.HasDefaultKernel() {
		limited, cancel := context.WithTimeout(ctx, actionTimeout)
		defer cancel()
		entry, how, err := a.Executors.OS.Difference(limited, want)
		if err != nil {
			a.Log.Error("whether the host runs its operating system is not known", "error", err)
			return c.osDrift
		}
		if entry != "" {
			a.Log.Warn("the host runs another operating system", "entry", entry, "difference", how)
			missing(entry)
		}
	}
	c.isOSKnown = true
	return c.osDrift
}

// enablementOf returns how a configuration enables a unit.
func enablementOf(unit types.Unit) update.Enablement {
	switch {
	case unit.Enabled == nil:
		return update.Preset
	case *unit.Enabled:
		return update.Enabled
	}
	return update.Disabled
}

// untilCheck returns the time until the next full check, or the next question to the config server.
func (a *Agent) untilCheck() time.Duration {
	uptime := a.Clock.Uptime()
	return max(min(checkInterval-(uptime-a.checkedAt), a.askAt-uptime), time.Second)
}

// askIfDue finds out whether the config server still accepts the certificate of the kubelet: otherwise, that would be
// found only with the next update, or when the Node was deleted. Other errors do not matter now.
func (a *Agent) askIfDue(ctx context.Context) {
	if a.Clock.Uptime() < a.askAt {
		return
	}
	limited, cancel := context.WithTimeout(ctx, acceptTimeout)
	defer cancel()
	_, err := a.Source.Assignment(limited)
	if err != nil {
		err = fmt.Errorf("download the assignment: %w", err)
	}
	switch {
	case errors.Is(err, ErrNotAccepted):
		a.Log.Error("the config server does not accept the host", "error", err)
		a.report.notAccepted = problemOf(err)
	case err == nil:
		a.report.notAccepted = ""
	}
	a.askAt = a.Clock.Uptime() + checkInterval
	if a.report.notAccepted != "" {
		a.askAt = a.Clock.Uptime() + acceptInterval
	}
}

// listDrift lists differences for people.
func listDrift(drift []update.Drift) string {
	texts := make([]string, len(drift))
	for i, d := range drift {
		texts[i] = d.String()
	}
	return strings.Join(texts, "\n")
}
