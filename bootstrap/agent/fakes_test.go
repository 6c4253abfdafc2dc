package agent

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/coreos/ignition/v2/config/v3_5/types"
	. "github.com/onsi/gomega"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/hostfiles"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/unitstate"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

type fakeFiles struct {
	*hostfiles.Updater
	w *world
}

func (f *fakeFiles) Adopt(tree hosttree.Tree) error {
	return f.w.change("adopt", func() error { return f.Updater.Adopt(tree) })
}

func (f *fakeFiles) Apply(changes []hosttree.Change, force bool) error {
	return f.w.change("apply files", func() error { return f.Updater.Apply(changes, force) })
}

func (f *fakeFiles) Complete() error { return f.w.change("complete files", f.Updater.Complete) }

func (f *fakeFiles) Confirm() error { return f.w.change("confirm files", f.Updater.Confirm) }

func (f *fakeFiles) LeftOver() []hostfiles.LeftOver {
	return append(f.Updater.LeftOver(), f.w.left...)
}

func (f *fakeFiles) Retry() error {
	if len(f.Updater.LeftOver()) == 0 {
		return nil
	}
	return f.w.change("restore what is left over", f.Updater.Retry)
}

func (f *fakeFiles) RollBack() error {
	name := "recover files"
	if f.IsUnconfirmed() {
		name = "roll back files"
	}
	return f.w.change(name, f.Updater.RollBack)
}

type fakeExecutor struct {
	w    *world
	name string
}

func (f *fakeExecutor) Apply(_ context.Context, operation update.Operation) error {
	if f.w.obstructs != nil {
		if err := f.w.obstructs(operation); err != nil {
			return err
		}
	}
	name := f.name + " " + operation.Name
	if operation.Kind == update.ChangeKernelArguments {
		name += strings.Join(operation.After.KernelArguments, " ")
	}
	if f.name == "accounts" || f.name == "enablement" {
		Expect(f.w.prepared).To(Or(BeNil(), ContainElement(f.name+" "+operation.Name)), "each operation is prepared")
	}
	return f.w.change(name, func() error {
		f.w.apply(operation)
		return nil
	})
}

func (f *fakeExecutor) Refusal(context.Context, update.Operation) string {
	return f.w.refusals[f.name]
}

func (f *fakeExecutor) Differences(arguments []string) (missing, additional []string, _ error) {
	for _, argument := range arguments {
		if !slices.Contains(f.w.running, argument) {
			missing = append(missing, argument)
		}
	}
	for _, argument := range f.w.removed {
		if slices.Contains(f.w.running, argument) && !slices.Contains(arguments, argument) {
			additional = append(additional, argument)
		}
	}
	return missing, additional, f.w.fails["cmdline"]
}

func (f *fakeExecutor) Differing(_ context.Context, units map[string]update.Enablement) (differing, masked []string, _ error) {
	for _, unit := range slices.Sorted(maps.Keys(units)) {
		switch {
		case slices.Contains(f.w.masked, unit):
			masked = append(masked, unit)
		case units[unit] != update.Preset && f.w.enablement[unit] != units[unit]:
			differing = append(differing, unit)
		}
	}
	return differing, masked, f.w.fails["is-enabled"]
}

// Prepare fails if anything was changed before it for the first time.
func (f *fakeExecutor) Prepare(_ context.Context, operations []update.Operation) error {
	return f.w.change("prepare "+f.name, func() error {
		for _, operation := range operations {
			f.w.prepared = append(f.w.prepared, f.name+" "+operation.Name)
			if _, isKnown := f.w.originals[operation.Name]; !isKnown && operation.Kind == update.ChangeEnablement && operation.Before.Enablement == update.Preset {
				f.w.originals[operation.Name] = f.w.enablement[operation.Name]
			}
		}
		return nil
	})
}

func (f *fakeExecutor) Difference(_ context.Context, want update.OperatingSystem) (update.Kind, string, error) {
	if err := f.w.failsOnce["difference"]; err != nil {
		delete(f.w.failsOnce, "difference")
		return "", "", err
	}
	if want.Image != "" && f.w.runningOS != want.Image {
		return update.KindOSImage, "it runs " + f.w.runningOS, f.w.fails["difference"]
	}
	return "", "", f.w.fails["difference"]
}

type fakeUnits struct{ w *world }

// call fails if the time of an action is not limited.
func (f fakeUnits) call(ctx context.Context, name string) error {
	deadline, isLimited := ctx.Deadline()
	Expect(isLimited).To(BeTrue(), name)
	Expect(time.Until(deadline)).To(BeNumerically("<=", actionTimeout), name)
	return f.w.change(name, func() error {
		f.w.calls = append(f.w.calls, name)
		if during := f.w.during[name]; during != nil {
			if err := during(ctx); err != nil {
				return err
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if slow := f.w.slow[name]; slow > 0 {
			f.w.pass(slow)
			f.w.uptime, f.w.wallclock = f.w.uptime+time.Millisecond, f.w.wallclock.Add(time.Millisecond) // until the next call
		}
		return nil
	})
}

func (f fakeUnits) DaemonReload(ctx context.Context) error { return f.call(ctx, "daemon-reload") }
func (f fakeUnits) Reload(ctx context.Context, unit string) (reads bool, err error) {
	return true, f.call(ctx, "reload "+unit)
}
func (f fakeUnits) Restart(ctx context.Context, unit string) error {
	return f.call(ctx, "restart "+unit)
}
func (f fakeUnits) Stop(ctx context.Context, units ...string) error {
	return f.call(ctx, "stop "+strings.Join(units, " "))
}
func (f fakeUnits) Start(ctx context.Context, units ...string) error {
	return f.call(ctx, "start "+strings.Join(units, " "))
}
func (f fakeUnits) Exists(_ context.Context, unit string) (bool, error) {
	return unit != "crio.service", f.w.fails["exists"]
}

// Failing returns the units whose states are not those of units that run.
func (f fakeUnits) Failing(context.Context) ([]string, error) {
	return slices.Sorted(maps.Keys(f.w.units())), f.w.fails["list-units"]
}

func (f fakeUnits) States(ctx context.Context, units ...string) ([]unitstate.State, error) {
	states := make([]unitstate.State, len(units))
	for i, unit := range units {
		states[i], _ = f.State(ctx, unit)
	}
	return states, f.w.fails["show"]
}

func (f fakeUnits) State(_ context.Context, unit string) (unitstate.State, error) {
	s, differs := f.w.units()[unit]
	if !differs {
		s = unitstate.State{Active: "active", Sub: "running", Result: "success", Age: time.Hour}
	}
	s.Unit, s.Load = unit, cmp.Or(s.Load, "loaded")
	return s, f.w.fails["show"]
}

func (f fakeUnits) Overrides(_ context.Context, units []string, configured map[string]bool) (dropIns, files, masked []string, _ error) {
	Expect(configured).To(HaveKey(ignition.MachineConfigPath))
	Expect(units).NotTo(BeEmpty())
	return f.w.dropIns, f.w.overriding, f.w.overridingMasks, f.w.fails["show"]
}

type fakeStaticPods struct{ w *world }

func (f fakeStaticPods) Passing(context.Context) (manifests []string) {
	for manifest, why := range f.w.pods() {
		if why == "" {
			manifests = append(manifests, manifest)
		}
	}
	slices.Sort(manifests)
	return manifests
}

func (f fakeStaticPods) Volumes() []string { return f.w.volumes }

func (f fakeStaticPods) Failing(_ context.Context, manifests []string) string {
	var failing []string
	for _, manifest := range manifests {
		if why, exists := f.w.pods()[manifest]; why != "" || !exists {
			failing = append(failing, manifest+": "+cmp.Or(why, "it does not exist"))
		}
	}
	return strings.Join(failing, "; ")
}

// softReboot starts the host again with the same kernel.
func (w *world) softReboot() {
	w.started = w.uptime + 10*time.Second
	w.uptime += 30 * time.Second
	w.wallclock = w.wallclock.Add(30 * time.Second)
}

type fakeRebooter struct{ w *world }

func (f fakeRebooter) Reboot(_ context.Context, method update.RebootMethod) error {
	name := map[update.RebootMethod]string{update.FullReboot: "reboot", update.Kexec: "kexec", update.SoftReboot: "soft-reboot"}[method]
	return f.w.change(name, func() error {
		f.w.calls = append(f.w.calls, name)
		if f.w.shutsDownSlowly {
			return nil
		}
		switch method {
		case update.SoftReboot:
			f.w.softReboot()
		case update.Kexec:
			arguments := f.w.arguments
			if f.w.startsOtherKernel {
				f.w.arguments = f.w.running
			}
			f.w.boot()
			f.w.arguments = arguments
		default:
			f.w.boot()
		}
		panic(booted{}) // nothing after it runs
	})
}

func (f fakeRebooter) Started(context.Context) (time.Duration, error) {
	return f.w.started, f.w.fails["show"]
}

type fakeSource struct{ w *world }

func (f fakeSource) Assignment(context.Context) ([]byte, error) {
	if err := f.w.fails["download"]; err != nil {
		return nil, err
	}
	if f.w.isCutOff() {
		return nil, errors.New("no route to host")
	}
	return f.w.documents[f.w.offered], nil
}

func (f fakeSource) Rendered(_ context.Context, name string) ([]byte, error) {
	if during := f.w.onRendered; during != nil {
		f.w.onRendered = nil
		during()
	}
	if document, ok := f.w.rendered[name]; ok {
		return document, nil
	}
	return nil, fmt.Errorf("%s: %w", name, ErrRefused)
}

func (f fakeSource) Contents(_ context.Context, resource types.Resource) ([]byte, error) {
	f.w.fetched = append(f.w.fetched, *resource.Source)
	return f.w.contents[*resource.Source], f.w.fails["contents"]
}

func (f fakeSource) Limit(bytesPerSecond int64) { f.w.limit = bytesPerSecond }

type fakeImages struct{ w *world }

func (f fakeImages) Pull(ctx context.Context, image string) error {
	return f.w.change("pull "+image, func() error {
		if during := f.w.during["pull "+image]; during != nil {
			return during(ctx)
		}
		return nil
	})
}

func (f fakeImages) Directory() string { return "/etc" }

func (f fakeSource) Program(_ context.Context, sum string) ([]byte, error) {
	f.w.downloads, f.w.programLimit = f.w.downloads+1, f.w.limit
	return f.w.programs[sum], nil
}

type fakeCluster struct{ w *world }

// answer fails after the time of a request if the API server does not answer.
func (f fakeCluster) answer() error {
	if !f.w.isSilent() {
		return nil
	}
	f.w.pass(reportTimeout)
	return fmt.Errorf("no answer: %w", errTemporary)
}

func (f fakeCluster) Annotate(_ context.Context, annotations map[string]*string) error {
	if err := f.answer(); err != nil {
		return err
	}
	if err := f.w.fails["annotate"]; err != nil {
		return err
	}
	f.w.step("annotate")
	for name, value := range annotations {
		if value == nil {
			delete(f.w.node.Annotations, name)
		} else {
			f.w.node.Annotations[name] = *value
		}
	}
	if f.w.annotated != nil {
		f.w.annotated()
	}
	state := f.w.node.Annotations[agentv1.StateAnnotation]
	if undone := f.w.node.Annotations[agentv1.UndoingAnnotation]; undone != "" && undone == f.w.node.Annotations[agentv1.TargetAnnotation] {
		state += " (undo)"
	}
	if len(f.w.states) == 0 || f.w.states[len(f.w.states)-1] != state {
		f.w.states = append(f.w.states, state)
	}
	return nil
}

func (f fakeCluster) Accept(ctx context.Context, revision string, annotations map[string]*string) error {
	if told := f.w.node.Annotations[agentv1.DesiredAnnotation]; told != revision {
		return fmt.Errorf("422 Unprocessable Entity: testing value: %s", told)
	}
	return f.Annotate(ctx, annotations)
}

func (f fakeCluster) Renewed(context.Context) (time.Time, error) {
	if err := f.answer(); err != nil {
		return time.Time{}, err
	}
	return f.w.lease, f.w.fails["lease"]
}

type fakeClock struct{ w *world }

func (f fakeClock) Now() time.Time        { return f.w.wallclock }
func (f fakeClock) Uptime() time.Duration { return f.w.uptime }
func (f fakeClock) BootID() string        { return fmt.Sprint("boot-", f.w.boots) }

type fakeProgram struct {
	version, sum string
	err          error
	replaced     []byte
}

func (f *fakeProgram) Running() (version, sum, architecture string) { return f.version, f.sum, "amd64" }
func (f *fakeProgram) Replace(_ context.Context, contents []byte) error {
	if f.err == nil {
		f.replaced = contents
	}
	return f.err
}
