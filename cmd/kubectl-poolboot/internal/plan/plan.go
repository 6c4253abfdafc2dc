// Package plan is the command kubectl poolboot plan: it prints what a running host must do to change from one rendered
// config to another.
package plan

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// noProgram is the value of --programs for a host without any of them.
const noProgram = "none"

// options are those of the command line.
type options struct {
	streams          genericiooptions.IOStreams
	files            input.Files
	from, to, policy string
	programs         []string
	output           cli.Output
}

// answer is what plan prints as JSON. Lists are never null; those of units are left out if they are empty.
type answer struct {
	Possible bool `json:"possible"`
	// Reasons are why the change is not possible on a running host, with what to do instead.
	Reasons []string `json:"reasons"`
	// Changes are the entries that change, with what the host does for each, and why.
	Changes []change `json:"changes"`
	// Stop are the units that stop before the change, and Start those that start after it.
	Stop    []string `json:"stop,omitempty"`
	Actions []action `json:"actions"`
	Start   []string `json:"start,omitempty"`
	Drain   bool     `json:"drain"`
	Reboot  bool     `json:"reboot"`
	// RebootBy is how the host reboots, if the rebootMethod of its pool is not Full.
	RebootBy string `json:"rebootBy,omitempty"`
	// OutdatedDisks are what the host does not get, because it keeps its disks.
	OutdatedDisks []string `json:"outdatedDisks,omitempty"`
}

// action is an action as plan prints it as JSON.
type action struct {
	Type update.ActionType `json:"type"`
	Unit string            `json:"unit,omitempty"`
}

// change is a change as plan prints it as JSON.
type change struct {
	Entry   string   `json:"entry"`
	Actions []action `json:"actions"`
	Reason  string   `json:"reason"`
}

func newActions(of []update.Action) []action {
	actions := []action{}
	for _, a := range of {
		actions = append(actions, action{a.Type, a.Unit})
	}
	return actions
}

// New returns the command plan.
func New(streams genericiooptions.IOStreams) *cobra.Command {
	o := &options{streams: streams, files: input.Files{Streams: streams, Settings: []schema.GroupVersionKind{input.OpenShiftPolicyKind}}}
	cmd := &cobra.Command{
		Use:   "plan --from FILE --to FILE [--policy FILE]",
		Short: "Print what a running host must do to change its rendered config",
		Long: `Print what a running host must do to change from one rendered config to another: nothing, reload or restart units, drain
or reboot, or why it can't. If the updates.diskPolicy of the pool is NewHostsOnly, the plan also has what the host does
not get because it keeps its disks.

A rendered config is a MachineConfig of Poolboot or OpenShift, as kubectl get pbmconf NAME -o yaml or oc get
machineconfig NAME -o yaml print it. The policy is the updates.disruptionPolicy of a pool or the nodeDisruptionPolicy of
OpenShift's MachineConfiguration. If the file contains several pools, that of the config --to counts, and it inherits
from worker. Without a policy, only the defaults count.

The plan assumes a host with every program that can change kernel arguments, the operating system and extensions, unless
--programs names those that it has. Nothing is written.`,
		Example: `  # Does a host of the pool infra reboot?
  kubectl poolboot plan --from rendered/old.yaml --to rendered/new.yaml --policy pools/infra.yaml

  # For a script
  kubectl poolboot plan --from rendered/old.yaml --to rendered/new.yaml --policy pools/infra.yaml -o json

  # On a host without rpm-ostree and bootc
  kubectl poolboot plan --from rendered/old.yaml --to rendered/new.yaml --policy pools/infra.yaml --programs grubby`,
		DisableFlagsInUseLine: true,
		Args:                  cobra.NoArgs,
		RunE:                  func(*cobra.Command, []string) error { return o.run() },
	}
	flags := cmd.Flags()
	flags.StringVar(&o.from, "from", "", "file with the rendered config that the host runs; - for standard input")
	flags.StringVar(&o.to, "to", "", "file with the rendered config that the host must run; - for standard input")
	flags.StringVar(&o.policy, "policy", "", "file with MachineConfigPools, or with OpenShift's MachineConfiguration; - for standard input")
	flags.StringSliceVar(&o.programs, "programs", nil, "programs of the host: "+strings.Join(update.Programs, ", ")+", or none (default all)")
	cli.AddCompletion(cmd, "programs", cobra.FixedCompletions(append(slices.Clone(update.Programs), noProgram), cobra.ShellCompDirectiveNoFileComp))
	for _, name := range []string{"from", "to", "policy"} {
		utilruntime.Must(cmd.MarkFlagFilename(name, "json", "yaml", "yml"))
	}
	utilruntime.Must(cmd.MarkFlagRequired("from"))
	utilruntime.Must(cmd.MarkFlagRequired("to"))
	o.output.AddTableFlag(cmd)
	return cmd
}

func (o *options) run() error {
	before, _, err := o.readConfig("--from", o.from)
	if err != nil {
		return err
	}
	after, name, err := o.readConfig("--to", o.to)
	if err != nil {
		return err
	}
	policy, method, err := o.readPolicy(name)
	if err != nil {
		return err
	}
	can := update.AllCapabilities
	if o.programs != nil {
		can = update.CapabilitiesOf(o.programs...)
	}
	for _, program := range o.programs {
		if program != noProgram && !slices.Contains(update.Programs, program) {
			return fmt.Errorf("--programs %s is not known: use %s or %s", program, strings.Join(update.Programs, ", "), noProgram)
		}
	}
	plan := update.New(before, after, policy, can)
	a := answer{Possible: plan.IsPossible(), Reasons: []string{}, Changes: []change{}, Stop: plan.Stop, Actions: newActions(plan.Actions), Start: plan.Start, Drain: plan.Drains(), Reboot: plan.Reboots(),
		RebootBy: plan.DescribeMethod(update.Rebooting{Method: method, Can: can})}
	for _, of := range plan.Changes {
		a.Changes = append(a.Changes, change{of.String(), newActions(of.Actions), of.Reason})
	}
	for _, obstacle := range plan.Obstacles {
		a.Reasons = append(a.Reasons, obstacle.String())
	}
	for _, item := range plan.Outdated {
		a.OutdatedDisks = append(a.OutdatedDisks, item.String())
	}
	return o.output.Print(o.streams.Out, a, func(out io.Writer) error { return a.print(out, plan) })
}

// print prints a table of the changes, and the answer.
func (a answer) print(out io.Writer, plan update.Plan) error {
	text := &strings.Builder{}
	if len(plan.Changes) > 0 {
		rows := make([][]string, len(plan.Changes))
		for i, change := range plan.Changes {
			rows[i] = []string{change.String(), update.Summary(change.Actions), change.Reason}
		}
		if err := (&cli.Table{Out: cli.StyledAs(out, text), Header: []string{"CHANGE", "ACTIONS", "REASON"}}).Print(rows...); err != nil {
			return err
		}
		text.WriteString("\n")
	}
	text.WriteString("Possible: " + yesNo(a.Possible) + "\n")
	for _, reason := range a.Reasons {
		text.WriteString(cli.Paragraph("  ", reason))
	}
	if a.Possible {
		if len(a.Stop) > 0 {
			text.WriteString(cli.Paragraph("Stop:     ", strings.Join(a.Stop, ", ")))
		}
		if len(a.Start) > 0 {
			text.WriteString(cli.Paragraph("Start:    ", strings.Join(a.Start, ", ")))
		}
		text.WriteString(cli.Paragraph("Actions:  ", update.Summary(plan.Actions)))
		text.WriteString("Drain:    " + yesNo(a.Drain) + "\n")
		reboot := yesNo(a.Reboot)
		if a.RebootBy != "" {
			reboot += ", " + a.RebootBy
		}
		text.WriteString(cli.Paragraph("Reboot:   ", reboot))
		if len(a.OutdatedDisks) > 0 {
			text.WriteString(cli.Paragraph("Disks:    ", "the host keeps "+update.DescribeOutdated(a.OutdatedDisks)))
		}
	}
	_, err := io.WriteString(out, text.String())
	return err
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// readConfig reads the rendered config in the file of a flag, and returns its name too.
func (o *options) readConfig(flag, file string) (update.Config, string, error) {
	objects, err := o.files.Read(file)
	if err != nil {
		return update.Config{}, "", fmt.Errorf("%s: %w", flag, err)
	}
	found := input.Of[*poolv1.MachineConfig](objects)
	if len(found) != 1 {
		return update.Config{}, "", fmt.Errorf("%s %s: it contains %d MachineConfigs: name a file with one, the rendered config", flag, file, len(found))
	}
	config, err := pool.ParseRendered(found[0].Spec)
	if err != nil {
		return update.Config{}, "", fmt.Errorf("%s %s: MachineConfig %q: %w", flag, file, found[0].Name, err)
	}
	return config, found[0].Name, nil
}

// readPolicy returns the policy for hosts with a rendered config, and how they reboot.
func (o *options) readPolicy(config string) (update.Policy, update.RebootMethod, error) {
	if o.policy == "" {
		return update.DefaultPolicy(), update.FullReboot, nil
	}
	refuse := func(why string, args ...any) (update.Policy, update.RebootMethod, error) {
		return update.Policy{}, update.FullReboot, fmt.Errorf("--policy %s: %w", o.policy, fmt.Errorf(why, args...))
	}
	objects, err := o.files.Read(o.policy)
	if err != nil {
		return update.Policy{}, update.FullReboot, fmt.Errorf("--policy: %w", err)
	}
	pools := slices.DeleteFunc(input.Of[*poolv1.MachineConfigPool](objects), func(p *poolv1.MachineConfigPool) bool { return input.IsOpenShift(p.TypeMeta) })
	switch configurations := input.Of[*input.MachineConfiguration](objects); {
	case len(configurations)+len(pools) == 0:
		return refuse("it contains no policy: name a file with a MachineConfigPool of Poolboot, or with OpenShift's MachineConfiguration")
	case len(configurations) == 1 && len(pools) > 0:
		return refuse("it contains a MachineConfiguration and %d MachineConfigPools: name a file with a MachineConfiguration, or with pools only", len(pools))
	case len(configurations) == 1:
		policy, remarks, errs := input.DisruptionPolicy(configurations[0])
		for _, remark := range remarks {
			fmt.Fprintln(o.streams.ErrOut, "note:", remark)
		}
		if err := objects.Refuse(input.OpenShiftPolicyKind.Kind, configurations[0].Name, errs); err != nil {
			return update.Policy{}, update.FullReboot, fmt.Errorf("--policy: %w", err)
		}
		result := pool.NewUpdatePolicy(policy)
		disks, _ := input.DiskPolicy(configurations[0])
		result.KeepsDisks = disks == poolv1.DiskNewHostsOnly
		return result, update.FullReboot, nil
	}
	p, err := choosePool(pools, config)
	if err != nil {
		return refuse("%w", err)
	}
	parent, err := findParent(pools, p)
	switch {
	case err != nil:
		return refuse("%w", err)
	case parent == nil && pool.IsCustom(p.Spec.PoolRole):
		fmt.Fprintf(o.streams.ErrOut, "note: --policy %s: it does not contain the pool worker, from which the pool %s inherits policies\n", o.policy, p.Name)
	}
	return pool.UpdatePolicyOf(p, parent), pool.RebootMethodOf(p), nil
}

// choosePool returns the pool that a config was rendered for, by the name of the config: it has the name of the pool
// or, in OpenShift, its role. Of a single pool, the name does not matter.
func choosePool(pools []*poolv1.MachineConfigPool, config string) (*poolv1.MachineConfigPool, error) {
	if len(pools) == 1 {
		return pools[0], nil
	}
	var names []string
	var found []*poolv1.MachineConfigPool
	for _, p := range pools {
		names = append(names, p.Name)
		if isRenderedFor(config, p.Name) || isRenderedFor(config, p.Spec.PoolRole) {
			found = append(found, p)
		}
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("it contains the pools %s, and %d of them can be that of the config %s: name a file with that pool, and with worker if it inherits from it",
			strings.Join(names, ", "), len(found), config)
	}
	return found[0], nil
}

// isRenderedFor reports whether a rendered config has the name of a pool.
func isRenderedFor(config, name string) bool {
	hash, ok := strings.CutPrefix(config, poolv1.RenderedNamePrefix+name+"-")
	return ok && !strings.Contains(hash, "-")
}

// findParent returns the pool from which a pool inherits, or nil if there is none in the file.
func findParent(pools []*poolv1.MachineConfigPool, p *poolv1.MachineConfigPool) (*poolv1.MachineConfigPool, error) {
	var ofCluster []poolv1.MachineConfigPool
	for _, other := range pools {
		if other.Spec.ClusterName == p.Spec.ClusterName && other.Namespace == p.Namespace {
			ofCluster = append(ofCluster, *other)
		}
	}
	parent, err := pool.ParentOf(p, ofCluster)
	if errors.As(err, new(*pool.NotFoundError)) {
		return nil, nil
	}
	return parent, err
}
