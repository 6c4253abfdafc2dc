package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	"k8s.io/utils/ptr"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/hostfiles"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

// difference is something that differs from the configuration: a path with a hostfiles.Kind, or a kernel argument.
type difference struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
}

// Kinds of differences besides those of hostfiles.
const (
	// missingArgument is a kernel argument that the running kernel does not have.
	missingArgument = "MissingKernelArgument"
	// otherEnablement is a unit that is enabled and should be disabled, or the other way around.
	otherEnablement = "Enablement"
	// isMasked is a unit that is masked, and not by the configuration.
	isMasked = "Masked"
)

// wantsDirectories are those in which most units are enabled. They are watched also before they exist.
var wantsDirectories = []string{"multi-user.target.wants", "graphical.target.wants", "sockets.target.wants", "timers.target.wants", "network-online.target.wants"}

func (d difference) String() string { return d.Name + ": " + d.Kind }

// current is what is kept in memory of the current configuration.
type current struct {
	revision string
	// config is the name of the rendered config.
	config    string
	units     []string
	arguments []string
	// enablement is that of the units of the configuration that it does not mask, update.Preset if it says nothing.
	enablement map[string]update.Enablement
	repairs    bool
	offer      *assignment.Agent
	drift      []difference
}

// argumentsOf returns the single kernel arguments of a configuration.
func argumentsOf(config update.Config) []string {
	return ignition.SplitArguments(config.KernelArguments)
}

// loadCurrent reads what is needed of the current configuration. If its documents are lost, it downloads them again if
// the host should have that configuration.
func (a *Agent) loadCurrent(ctx context.Context, node Node) error {
	if a.current != nil && a.current.revision == a.journal.Current {
		return nil
	}
	t, err := a.load(a.journal.Current)
	if errors.Is(err, errDocument) {
		if node.Annotations[agentv1.DesiredAnnotation] != a.journal.Current {
			return fmt.Errorf("%w: %s", err, startOver)
		}
		t, err = a.fetch(ctx, a.journal.Current)
	}
	if err != nil {
		return err
	}
	c := &current{revision: t.revision, config: t.Config.Name, arguments: argumentsOf(t.config), repairs: t.RepairsDrift, offer: t.Agent, enablement: map[string]update.Enablement{}}
	for _, unit := range t.config.Ignition.Systemd.Units {
		c.units = append(c.units, unit.Name)
		if !ptr.Deref(unit.Mask, false) {
			c.enablement[unit.Name] = enablementOf(unit)
		}
	}
	if a.Watch != nil {
		paths, err := a.watchedPaths(ctx, t, c.units)
		if err != nil {
			return err
		}
		a.Watch(paths)
	}
	a.current, a.isDue = c, true
	return nil
}

// watchedPaths returns the paths of a configuration on this host. A path that ends in a slash is a directory in which
// everything matters.
func (a *Agent) watchedPaths(ctx context.Context, t *target, units []string) ([]string, error) {
	host, err := a.host(ctx)
	if err != nil {
		return nil, err
	}
	names := hosttree.Tree{}
	for name, entry := range hosttree.New(t.config.Ignition) {
		names[name] = hosttree.Entry{Type: entry.Type} // without contents
	}
	if names, err = names.On(host); err != nil {
		return nil, err
	}
	paths := names.Paths()
	enabledIn := slices.Clone(wantsDirectories)
	if entries, err := fs.ReadDir(a.root.FS(), strings.TrimPrefix(hosttree.UnitDirectory, "/")); err == nil {
		for _, entry := range entries {
			if name := entry.Name(); entry.IsDir() && (strings.HasSuffix(name, ".wants") || strings.HasSuffix(name, ".requires")) && !slices.Contains(enabledIn, name) {
				enabledIn = append(enabledIn, name)
			}
		}
	}
	for _, unit := range units {
		paths = append(paths, path.Join(hosttree.UnitDirectory, unit), path.Join(hosttree.UnitDirectory, unit+".d")+"/")
		for _, directory := range enabledIn {
			paths = append(paths, path.Join(hosttree.UnitDirectory, directory, unit))
		}
	}
	return paths, nil
}

// checkIfDue finds what differs from the current configuration.
func (a *Agent) checkIfDue(ctx context.Context) error {
	uptime := a.Clock.Uptime()
	if !a.isDue && uptime-a.checkedAt < checkInterval {
		return nil
	}
	found, err := a.Files.Differences(a.current.units...)
	if err != nil {
		return fmt.Errorf("check the files of the host: %w", err)
	}
	var drift []difference
	for _, d := range found {
		drift = append(drift, difference{d.Path, string(d.Kind)})
	}
	drift = append(drift, a.unitDrift(ctx, drift)...)
	if len(a.current.arguments) > 0 {
		missing, err := a.Executors.KernelArguments.Missing(a.current.arguments)
		if err != nil {
			return fmt.Errorf("check the kernel arguments: %w", err)
		}
		for _, argument := range missing {
			drift = append(drift, difference{argument, missingArgument})
		}
	}
	if !slices.Equal(drift, a.current.drift) {
		a.Log.Warn("what differs from the configuration changed", "differences", shorten(listDrift(drift), agentv1.MaxReason))
	}
	a.current.drift, a.report.drift = drift, shorten(listDrift(drift), agentv1.MaxReason)
	a.isDue, a.checkedAt, a.offered = false, uptime, nil
	return nil
}

// unitDrift returns the units that differ in how they are enabled or masked, by the paths of their files. Those whose
// files differ are among the other differences already. Without an answer of systemctl, which is logged, there are
// none: the host is checked again in an hour.
func (a *Agent) unitDrift(ctx context.Context, known []difference) (drift []difference) {
	if len(a.current.enablement) == 0 {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, actionTimeout)
	defer cancel()
	differing, masked, err := a.Executors.Enablement.Differing(limited, a.current.enablement)
	if err != nil {
		a.Log.Error("whether units are enabled is not known", "error", err)
		return nil
	}
	for kind, units := range map[string][]string{otherEnablement: differing, isMasked: masked} {
		for _, unit := range units {
			name := path.Join(hosttree.UnitDirectory, unit)
			if !slices.ContainsFunc(known, func(d difference) bool { return d.Name == name }) {
				drift = append(drift, difference{name, kind})
			}
		}
	}
	slices.SortFunc(drift, func(a, b difference) int { return strings.Compare(a.Name, b.Name) })
	return drift
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

// untilCheck returns the time until the next full check.
func (a *Agent) untilCheck() time.Duration {
	return max(checkInterval-(a.Clock.Uptime()-a.checkedAt), time.Second)
}

// listDrift lists differences for people.
func listDrift(drift []difference) string {
	texts := make([]string, len(drift))
	for i, d := range drift {
		texts[i] = d.String()
	}
	return strings.Join(texts, "\n")
}

const (
	repairByHand = "Correct it on the host, set spec.driftPolicy of the pool to Repair if the correction needs neither a drain nor a reboot, or force the host to apply its configuration again. " + ofOS
	repairForced = "Correct it on the host, or force the host to apply its configuration again. " + ofOS
	ofOS         = "Leave entries out of the configuration that the operating system changes itself."
)

// repair corrects what differs, if the pool says so and it needs neither a drain nor a reboot. Otherwise it reports it.
func (a *Agent) repair(ctx context.Context, node Node) (time.Duration, error) {
	report := func(why string) {
		a.report.set(a.journal.Current, agentv1.Degraded, fmt.Sprintf("the host differs from %s in %d entries. %s", a.current.config, len(a.current.drift), why))
	}
	switch wait := a.repairWait(); {
	case !slices.ContainsFunc(a.current.drift, isRepairable):
		report("What is additional is not Poolboot's: remove it on the host.")
		return a.untilCheck(), nil
	case !a.current.repairs:
		report(repairByHand)
		return a.untilCheck(), nil
	case wait > 0:
		report("It was repaired before, and differs again: find the program that changes it. If that is the operating system, leave the entry out of the configuration.")
		return min(wait, a.untilCheck()), nil
	}
	t, err := a.load(a.journal.Current)
	if err != nil {
		return now, err
	}
	u := newUpdate(t, t, a.current.drift, a.Capabilities)
	switch {
	case !u.plan.IsPossible():
		report("It can't be repaired: " + u.obstacles())
		return a.untilCheck(), nil
	case u.plan.Drains():
		report("A repair needs a drain: " + u.reason() + ". " + repairForced)
		return a.untilCheck(), nil
	}
	var check *hostfiles.CheckError
	switch err := a.check(ctx, u); {
	case errors.As(err, &check):
		report("It can't be repaired: " + check.Error())
		return a.untilCheck(), nil
	case err != nil:
		return now, err
	}
	a.repairedAt, a.repairs = a.Clock.Uptime(), a.repairs+1
	return a.start(ctx, node, u)
}

// repairWait returns the time until the next repair can begin. Each repair soon after another one doubles it, up to the
// time between two full checks: a program that changes an entry again and again has the host repaired once an hour.
func (a *Agent) repairWait() time.Duration {
	if a.repairs == 0 {
		return 0
	}
	interval := min(checkInterval, repairInterval<<min(a.repairs-1, 10))
	passed := a.Clock.Uptime() - a.repairedAt
	if passed >= interval+checkInterval { // the last one lasted
		a.repairs = 0
	}
	return interval - passed
}

// isRepairable reports whether a difference is one of something that Poolboot wrote.
func isRepairable(d difference) bool {
	return d.Kind != string(hostfiles.AdditionalDropIn) && d.Kind != isMasked
}
