package kernelarguments

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/agent/rpmostree"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// tool is a program that changes the kernel arguments of a host.
type tool interface {
	// read returns the arguments with which the host boots next, or those of the running kernel if the program can't
	// tell.
	read(ctx context.Context) ([]string, error)
	// refusal returns why the program can't make a change, and what to do, "" if it can.
	refusal(c change) string
	// change changes them. It does nothing if they are already changed.
	change(ctx context.Context, c change) error
}

// verify returns an error if a program did not do what it should: the arguments of the configurations must be as they
// should, and all others must still be there.
func verify(ctx context.Context, t tool, program string, c change) error {
	got, err := t.read(ctx)
	if err != nil {
		return err
	}
	want, own := c.target(), c.removed()
	if !areEquivalent(intersection(got, own), intersection(want, own)) || len(without(want, got)) > 0 {
		return fmt.Errorf("after %s, the host would boot with %q instead of %q: correct them with %s, or replace the Machine",
			program, strings.Join(got, " "), strings.Join(want, " "), program)
	}
	return nil
}

// rpmOSTree changes the arguments of the deployment that boots next, in a new deployment.
type rpmOSTree struct{ client rpmostree.Client }

func (t rpmOSTree) read(ctx context.Context) ([]string, error) {
	output, err := t.client.Run(ctx, "kargs")
	return slices.DeleteFunc(ignition.SplitArguments([]string{string(output)}), isDeployment), err
}

// isDeployment reports whether an argument names the deployment: every change of the arguments is another deployment.
func isDeployment(argument string) bool { return nameOf(argument) == "ostree" }

func (t rpmOSTree) refusal(change) string { return "" }

func (t rpmOSTree) change(ctx context.Context, c change) error {
	if slices.Equal(c.current, c.target()) {
		return nil
	}
	arguments := []string{"kargs"}
	for _, argument := range c.current {
		// An argument without value that is not there would remove one of the same name with a value.
		if slices.Contains(c.removed(), argument) {
			arguments = append(arguments, "--delete="+argument)
		}
	}
	for _, argument := range c.appended() {
		arguments = append(arguments, "--append="+argument)
	}
	if _, err := t.client.Run(ctx, arguments...); err != nil {
		return err
	}
	return verify(ctx, t, "rpm-ostree kargs", c)
}

// bootcSource is the name under which bootc remembers the arguments of Poolboot.
const bootcSource = "poolboot"

// bootc sets the arguments of one source. It keeps all others.
type bootc struct {
	runner  rpmostree.Runner
	running func() ([]string, error)
}

// isUsable reports whether the version of bootc can change kernel arguments.
func (t bootc) isUsable(ctx context.Context) bool {
	_, err := t.runner.Run(ctx, "bootc", "loader-entries", "set-options-for-source", "--help")
	return err == nil
}

func (t bootc) read(context.Context) ([]string, error) { return t.running() }

func (t bootc) refusal(c change) string {
	if fixed := without(c.record.Installed, c.after); len(fixed) > 0 {
		return fmt.Sprintf("bootc can't remove %q, which Ignition wrote when the host was installed: restore it in the MachineConfig, use an image with rpm-ostree, or replace the Machine",
			strings.Join(fixed, " "))
	}
	return ""
}

func (t bootc) change(ctx context.Context, c change) error {
	own := without(c.after, slices.Concat(c.record.Kept, c.record.Installed))
	_, err := t.runner.Run(ctx, "bootc", "loader-entries", "set-options-for-source", "--source", bootcSource, "--options="+strings.Join(own, " "))
	return err
}

// grubby changes the arguments of all installed kernels.
type grubby struct{ runner rpmostree.Runner }

// read returns the arguments of the default kernel, from the line args="…".
func (t grubby) read(ctx context.Context) ([]string, error) {
	output, err := t.runner.Run(ctx, "grubby", "--info=DEFAULT")
	if err != nil {
		return nil, err
	}
	hasKernel := false
	for line := range strings.Lines(string(output)) {
		line = strings.TrimSpace(line)
		if value, found := strings.CutPrefix(line, "args="); found {
			return ignition.SplitArguments([]string{strings.TrimSuffix(strings.TrimPrefix(value, `"`), `"`)}), nil
		}
		hasKernel = hasKernel || strings.HasPrefix(line, "kernel=")
	}
	if !hasKernel {
		return nil, errors.New("grubby --info=DEFAULT shows no kernel: set the default kernel with grubby --set-default")
	}
	return nil, nil
}

// edit returns what grubby removes, by name, and what is passed to it, because it replaces all arguments of a name.
func (t grubby) edit(c change) (gone, passed []string) {
	target := c.target()
	for _, name := range namesOf(c.removed()) {
		ofName := slices.DeleteFunc(slices.Clone(target), func(argument string) bool { return nameOf(argument) != name })
		passed = append(passed, ofName...)
		if len(ofName) == 0 {
			gone = append(gone, name)
		}
	}
	// Arguments of other names are appended in the order of the configuration.
	slices.SortStableFunc(passed, func(a, b string) int { return slices.Index(target, a) - slices.Index(target, b) })
	return gone, passed
}

func (t grubby) refusal(c change) string {
	_, passed := t.edit(c)
	for _, argument := range passed {
		if strings.ContainsAny(argument, " \t\n\"'`$\\") {
			return fmt.Sprintf("grubby can't pass %q, which has a space, a quote, a dollar sign or a backslash: change it in the MachineConfig", argument)
		}
	}
	return ""
}

func (t grubby) change(ctx context.Context, c change) error {
	if slices.Equal(c.current, c.target()) {
		return nil
	}
	gone, passed := t.edit(c)
	arguments := []string{"--update-kernel=ALL"}
	if len(gone) > 0 {
		arguments = append(arguments, "--remove-args="+strings.Join(gone, " "))
	}
	if len(passed) > 0 {
		arguments = append(arguments, "--args="+strings.Join(passed, " "))
	}
	if _, err := t.runner.Run(ctx, "grubby", arguments...); err != nil {
		return err
	}
	return verify(ctx, t, "grubby", c)
}

func namesOf(arguments []string) []string {
	var names []string
	for _, argument := range arguments {
		names = append(names, nameOf(argument))
	}
	return unique(names)
}

// helper is the program that Ignition runs at the first boot.
type helper struct {
	runner  rpmostree.Runner
	running func() ([]string, error)
}

func (t helper) read(context.Context) ([]string, error) { return t.running() }

func (t helper) refusal(change) string { return "" }

func (t helper) change(ctx context.Context, c change) error {
	if !c.reorders() {
		return t.run(ctx, c.after, without(c.removed(), c.after))
	}
	// No contract says what happens to an argument that should exist and should not exist.
	if err := t.run(ctx, nil, c.removed()); err != nil {
		return err
	}
	return t.run(ctx, c.after, nil)
}

func (t helper) run(ctx context.Context, exist, notExist []string) error {
	var arguments []string
	for _, argument := range exist {
		arguments = append(arguments, "--should-exist", argument)
	}
	for _, argument := range notExist {
		arguments = append(arguments, "--should-not-exist", argument)
	}
	if len(arguments) == 0 {
		return nil
	}
	_, err := t.runner.Run(ctx, "ignition-kargs-helper", arguments...)
	return err
}
