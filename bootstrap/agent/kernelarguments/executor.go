// Package kernelarguments changes the arguments with which the kernel of a host boots next. The running kernel keeps
// its arguments until the host reboots.
//
// As in OpenShift, a change removes all arguments of the old configuration and appends those of the new one. Other than
// there, what the host had before Poolboot changed anything stays: it is recorded before the first change. If the image
// has a file /usr/lib/kernel/cmdline, as for kernel-install, its arguments stay, too. Without that file, nobody knows
// which arguments of the first configuration the image also had, and these are removed with the configuration.
//
// # Programs
//
// The first one that the host has of rpm-ostree, bootc, grubby and ignition-kargs-helper changes the arguments.
//
//   - rpm-ostree changes them in one transaction.
//   - bootc knows the arguments of each source. It can't remove those that Ignition wrote when the host was installed,
//     and such a change is refused. It needs the command loader-entries set-options-for-source, which older versions
//     don't have: see IsUsable.
//   - grubby splits at every space, and replaces all arguments with the same name. So an argument with a space is
//     refused, and the others of the same name are passed along.
//   - ignition-kargs-helper has the contract of Ignition, which has no way to read the arguments, and none to change
//     their order. To change the order, it runs twice: after a power loss in between, some arguments are missing until
//     the change is repeated. A program that reboots the host is started again after the reboot.
//
// The tests run the helper of hack/image. The other programs are not available in Debian: their tests use output that
// was published.
package kernelarguments

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/durable"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/rpmostree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

const (
	// RecordPath is where the arguments are recorded that the host had before Poolboot changed any.
	RecordPath = "/var/lib/poolboot/kernel-arguments.json"

	commandLinePath = "/proc/cmdline"
	imagePath       = "/usr/lib/kernel/cmdline"
)

// Executor changes the kernel arguments of a host. It is not safe for concurrent use.
type Executor struct {
	// Runner runs the programs of the host.
	Runner rpmostree.Runner
	// Programs are those that the host has, of update.Programs.
	Programs []string
	// Root is the root directory of the host, / if it is empty.
	Root string
}

// IsUsable reports whether the host can change its kernel arguments. Unlike update.CapabilitiesOf, it knows versions of
// bootc that can't.
func (e *Executor) IsUsable(ctx context.Context) bool {
	chosen, err := e.tool()
	if err != nil {
		return false
	}
	versioned, isVersioned := chosen.(bootc)
	return !isVersioned || versioned.isUsable(ctx)
}

// Apply executes an operation of the kind update.ChangeKernelArguments. It can be repeated, also after a crash. The
// host needs a reboot afterwards. If it fails, the arguments are unchanged, except that those that
// ignition-kargs-helper moves can be missing: repeat it, or undo it.
func (e *Executor) Apply(ctx context.Context, operation update.Operation) error {
	if err := e.change(ctx, operation); err != nil {
		return fmt.Errorf("change the kernel arguments: %w", err)
	}
	return nil
}

// Refusal returns why an operation of the kind update.ChangeKernelArguments is not possible with the program of this
// host, "" if it is or nobody knows. It changes nothing.
func (e *Executor) Refusal(ctx context.Context, operation update.Operation) string {
	chosen, c, err := e.plan(ctx, operation)
	if err != nil {
		return ""
	}
	return refusalOf(chosen, c)
}

func (e *Executor) change(ctx context.Context, operation update.Operation) error {
	chosen, c, err := e.plan(ctx, operation)
	if err != nil {
		return err
	}
	c.record.Removed = c.nowRemoved()
	if err := durable.WriteRecord(e.Root, RecordPath, c.record); err != nil {
		return err
	}
	if why := refusalOf(chosen, c); why != "" {
		return errors.New(why)
	}
	return chosen.change(ctx, c)
}

// refusalOf returns why a program can't make a change, "" if it can or there is nothing to do.
func refusalOf(chosen tool, c change) string {
	if slices.Equal(c.current, c.target()) {
		return ""
	}
	return chosen.refusal(c)
}

// plan returns the change of an operation and the program for it.
func (e *Executor) plan(ctx context.Context, operation update.Operation) (chosen tool, c change, err error) {
	if chosen, err = e.tool(); err != nil {
		return nil, c, err
	}
	if c.current, err = chosen.read(ctx); err != nil {
		return nil, c, err
	}
	c.before, c.after = unique(ignition.SplitArguments(operation.Before.KernelArguments)), unique(ignition.SplitArguments(operation.After.KernelArguments))
	c.record, err = e.record(c.current, c.before)
	return chosen, c, err
}

// record is what the host had before Poolboot changed anything, and what Poolboot has removed since.
type record struct {
	// Kept are the arguments that do not come from a configuration. They are never removed.
	Kept []string `json:"kept"`
	// Installed are the arguments that Ignition wrote when the host was installed.
	Installed []string `json:"installed"`
	// Removed are the arguments of earlier configurations that the current one does not have.
	Removed []string `json:"removed,omitempty"`
}

// record returns the record of this host. If it is not written yet, it is what has to be written.
func (e *Executor) record(current, before []string) (known record, err error) {
	if isRecorded, err := durable.ReadRecord(e.Root, RecordPath, &known); err != nil || isRecorded {
		return known, err
	}
	image, err := os.ReadFile(e.path(imagePath))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return record{}, err
	}
	known.Kept = append(without(current, before), ignition.SplitArguments([]string{string(image)})...)
	known.Installed = without(before, known.Kept)
	return known, nil
}

// Differences returns which arguments of a configuration the running kernel lacks, and which it still has although they
// were removed with an earlier configuration. After a change and until the host reboots, these are the new ones and the
// old ones.
func (e *Executor) Differences(arguments []string) (missing, additional []string, err error) {
	running, err := e.running()
	if err != nil {
		return nil, nil, err
	}
	known, err := e.record(running, nil)
	if err != nil {
		return nil, nil, err
	}
	removed := without(known.Removed, ignition.SplitArguments(arguments))
	return Missing(running, arguments), without(removed, Missing(running, removed)), nil
}

// running returns the arguments of the running kernel.
func (e *Executor) running() ([]string, error) {
	line, err := os.ReadFile(e.path(commandLinePath))
	if err != nil {
		return nil, err
	}
	return ignition.SplitArguments([]string{string(line)}), nil
}

func (e *Executor) path(name string) string { return filepath.Join("/", e.Root, name) }

// tool returns the program that changes the arguments of this host.
func (e *Executor) tool() (tool, error) {
	for _, candidate := range []struct {
		program string
		tool    tool
	}{
		{"rpm-ostree", rpmOSTree{rpmostree.Client{Runner: e.Runner}}},
		{"bootc", bootc{e.Runner, e.running}},
		{"grubby", grubby{e.Runner}},
		{"ignition-kargs-helper", helper{e.Runner, e.running}},
	} {
		if slices.Contains(e.Programs, candidate.program) {
			return candidate.tool, nil
		}
	}
	return nil, errors.New("the host has no program for it: use an image with rpm-ostree, grubby or ignition-kargs-helper, or replace the Machine")
}
