package agent

import (
	"context"
	"slices"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/hosttree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// runCheck runs the check of what puts the Node in its pool. A check that does not run is something that it finds.
func (a *Agent) runCheck(ctx context.Context) []string {
	limited, cancel := context.WithTimeout(ctx, actionTimeout)
	defer cancel()
	found, err := a.Executors.Check(limited)
	if err != nil {
		found = append(found, "the check of the host does not run: "+err.Error())
	}
	return found
}

// findChanged returns what the check finds and did not find before the update in progress.
func (a *Agent) findChanged(ctx context.Context) []string {
	return without(a.runCheck(ctx), func(found string) bool { return slices.Contains(a.journal.Found, found) })
}

// restoreOwn writes again what the update that was undone changed of the machine's own part of the configuration, for
// example by a line of tmpfiles.d. Such files are not part of the update.
func (a *Agent) restoreOwn(ctx context.Context) error {
	if err := a.Files.RollBack(); err != nil { // of a try that was interrupted
		return err
	}
	if len(a.findChanged(ctx)) == 0 {
		return nil
	}
	t, err := a.load(a.journal.Current)
	if err != nil {
		return err
	}
	machine, err := ignition.Parse(t.Machine)
	if err != nil {
		return err
	}
	own := hosttree.New(machine)
	delete(own, assignment.ProgramPath)
	host, err := a.host(ctx)
	if err != nil {
		return err
	}
	if own, err = own.On(host); err != nil {
		return err
	}
	changes, err := a.Files.ChangesTo(own)
	if err != nil {
		return err
	}
	if changes = without(changes, func(change hosttree.Change) bool { return change.To == nil }); len(changes) == 0 {
		return nil
	}
	if err := a.Files.Apply(changes, true); err != nil {
		return err
	}
	if err := a.Files.Confirm(); err != nil {
		return err
	}
	return a.do(ctx, "restart "+ignition.KubeletUnit, func(ctx context.Context) error {
		if err := a.Executors.Units.DaemonReload(ctx); err != nil {
			return err
		}
		return a.Executors.Units.Restart(ctx, ignition.KubeletUnit)
	})
}
