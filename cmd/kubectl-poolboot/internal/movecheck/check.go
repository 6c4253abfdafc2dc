// Package movecheck is the command kubectl poolboot move-check: it reports what would hang or be lost if clusterctl
// move moved a namespace, and the remedy for each.
package movecheck

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// options are those of the command line.
type options struct {
	streams    genericiooptions.IOStreams
	connection input.Connection
	output     cli.Output
	// to is the kubeconfig file of the other management cluster; empty when only this one is checked.
	to string
	// openTarget connects to the other management cluster.
	openTarget func(path string) (client.Reader, error)
}

// Effect is what a trap does to a move.
type Effect string

// Effects of traps, the worst first.
const (
	// Lost means that an object would not be moved, or a host would be wiped or installed again.
	Lost Effect = "Lost"
	// Hangs means that clusterctl would refuse to start, wait forever, or stop halfway.
	Hangs Effect = "Hangs"
	// Note is information. The move succeeds.
	Note Effect = "Note"
)

// trap is a reason why a move would hang or lose something.
type trap struct {
	Effect Effect `json:"effect"`
	// Object is the object that it is about, as Kind namespace/name.
	Object string `json:"object"`
	// Message is what would happen and why, Remedy what to do about it.
	Message string `json:"message"`
	Remedy  string `json:"cure"`
}

// report is what move-check prints.
type report struct {
	Namespace string `json:"namespace"`
	// Safe is true when nothing would hang or be lost.
	Safe bool `json:"safe"`
	// Moved is how many objects clusterctl would move.
	Moved int `json:"moved"`
	// Traps are never null.
	Traps []trap `json:"traps"`
}

// New returns the command move-check.
func New(streams genericiooptions.IOStreams, to input.Connection) *cobra.Command {
	return newCommand(&options{streams: streams, connection: to, openTarget: input.OpenFile})
}

func newCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "move-check [-n NAMESPACE] [--to-kubeconfig FILE]",
		Short: "Report what would hang or be lost in clusterctl move",
		Long: `Report what would hang or be lost if clusterctl move moved a namespace now, and the remedy for each: paused Clusters,
Machines without a Node, annotations that block the move, hosts that would be wiped or installed again, objects that
would not be moved, token rotations, boots and updates in progress. With --to-kubeconfig it also checks the other
management cluster.

Nothing is written. Run it again after each remedy, and immediately before the move.

Exit codes: 0 when the move is safe, 2 when something would hang or be lost, 1 for an error.`,
		Example: `  # Is it safe to move the namespace?
  kubectl poolboot move-check -n metal

  # Is the other management cluster ready for it?
  kubectl poolboot move-check -n metal --to-kubeconfig other.kubeconfig`,
		Args:                  cobra.NoArgs,
		ValidArgsFunction:     cobra.NoFileCompletions,
		DisableFlagsInUseLine: true,
		RunE:                  func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context()) },
	}
	cmd.Flags().StringVar(&o.to, "to-kubeconfig", "", "path to the kubeconfig file of the other management cluster")
	o.output.AddTableFlag(cmd)
	input.AddConnectionFlags(cmd, o.connection)
	return cmd
}

func (o *options) run(ctx context.Context) error {
	cluster, err := o.connection.Open()
	if err != nil {
		return err
	}
	found, err := gather(ctx, cluster, cluster.Namespace)
	if err != nil {
		return err
	}
	checked := found.check()
	if o.to != "" {
		there, err := o.openTarget(o.to)
		if err != nil {
			return fmt.Errorf("--to-kubeconfig %s: %w", o.to, err)
		}
		traps, err := found.checkTarget(ctx, cluster, there)
		if err != nil {
			return fmt.Errorf("--to-kubeconfig %s: %w", o.to, err)
		}
		checked.add(traps...)
	}
	if err := o.output.Print(o.streams.Out, checked, checked.print); err != nil {
		return err
	}
	if !checked.Safe {
		return cli.TasksRemain("clusterctl move of namespace "+cluster.Namespace, checked.count())
	}
	return nil
}

// add adds traps, the worst first.
func (c *report) add(traps ...trap) {
	c.Traps = append(c.Traps, traps...)
	order := []Effect{Lost, Hangs, Note}
	slices.SortStableFunc(c.Traps, func(a, b trap) int { return slices.Index(order, a.Effect) - slices.Index(order, b.Effect) })
	c.Safe = c.count() == 0
}

// count returns how many traps would hang the move or lose something.
func (c *report) count() int {
	return len(slices.DeleteFunc(slices.Clone(c.Traps), func(t trap) bool { return t.Effect == Note }))
}

// print prints the traps as text, and a verdict.
func (c *report) print(out io.Writer) error {
	text := &strings.Builder{}
	for _, t := range c.Traps {
		text.WriteString(cli.Paragraph(fmt.Sprintf("%-8s", t.Effect), t.Object))
		text.WriteString(cli.Paragraph("        ", t.Message))
		text.WriteString(cli.Paragraph("        To do: ", t.Remedy))
	}
	verdict := "safe to move"
	if !c.Safe {
		verdict = fmt.Sprintf("NOT safe to move: %d would hang or be lost", c.count())
	}
	text.WriteString(cli.Paragraph("", fmt.Sprintf("namespace %s: objects that would be moved: %d; %s", c.Namespace, c.Moved, verdict)))
	_, err := io.WriteString(out, text.String())
	return err
}
