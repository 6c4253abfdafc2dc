// Package plan is the command kubectl poolboot plan: it prints what a running host must do to change from one rendered
// config to another.
package plan

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"

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
	// Stop are the units that stop before the change, and Start those that start after it.
	Stop    []string `json:"stop,omitempty"`
	Actions []action `json:"actions"`
	Start   []string `json:"start,omitempty"`
	Drain   bool     `json:"drain"`
	Reboot  bool     `json:"reboot"`
}

// action is an action as plan prints it as JSON.
type action struct {
	Type update.ActionType `json:"type"`
	Unit string            `json:"unit,omitempty"`
}

// New returns the command plan.
func New(streams genericiooptions.IOStreams) *cobra.Command {
	o := &options{streams: streams, files: input.Files{Streams: streams, Settings: []schema.GroupVersionKind{input.OpenShiftPolicyKind}}}
	cmd := &cobra.Command{
		Use:   "plan --from FILE --to FILE [--policy FILE]",
		Short: "Print what a running host must do to change its rendered config",
		Long: `Print what a running host must do to change from one rendered config to another: nothing, reload or restart units, drain
or reboot, or why it can't.

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
	flags.StringSliceVar(&o.programs, "programs", nil, "the programs of the host: "+strings.Join(update.Programs, ", ")+", or none (default all)")
	cli.AddCompletion(cmd, "programs", cobra.FixedCompletions(append(slices.Clone(update.Programs), noProgram), cobra.ShellCompDirectiveNoFileComp))
	for _, name := range []string{"from", "to", "policy"} {
		utilruntime.Must(cmd.MarkFlagFilename(name, "json", "yaml", "yml"))
	}
	utilruntime.Must(cmd.MarkFlagRequired("from"))
	utilruntime.Must(cmd.MarkFlagRequired("to"))
	o.output.AddFlag(cmd, "json or yaml; without it, a table", cli.FormatJSON, cli.FormatYAML)
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
	policy, err := o.readPolicy(name)
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
	a := answer{Possible: plan.IsPossible(), Reasons: []string{}, Stop: plan.Stop, Actions: []action{}, Start: plan.Start, Drain: plan.Drains(), Reboot: plan.Reboots()}
	for _, of := range plan.Actions {
		a.Actions = append(a.Actions, action{of.Type, of.Unit})
	}
	for _, obstacle := range plan.Obstacles {
		a.Reasons = append(a.Reasons, obstacle.String())
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
		if err := (&cli.Table{Out: text, Header: []string{"CHANGE", "ACTIONS", "REASON"}}).Print(rows...); err != nil {
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
		text.WriteString("Drain:    " + yesNo(a.Drain) + "\nReboot:   " + yesNo(a.Reboot) + "\n")
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
