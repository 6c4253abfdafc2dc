package explain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/boots"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// bootReport is what explain machine and explain node print. What does not exist is empty; lists are never null.
type bootReport struct {
	Machine        string `json:"machine"`
	PoolbootConfig string `json:"poolbootConfig"`
	Cluster        string `json:"cluster"`
	Host           string `json:"host"`
	Node           string `json:"node"`
	// NodeSeen is false when the Node could not be read; Unseen is why, for the Node and for other objects.
	NodeSeen bool     `json:"nodeSeen"`
	Unseen   []string `json:"unseen"`
	// Addresses are those from which the host's token was used, the first one first; of a host that enrolled, the
	// address that it enrolled from.
	Addresses []boots.Address `json:"addresses"`
	membership
	// Configuration is the rendered config that the host runs or boots with, PoolConfiguration the one that the pool
	// hands out now.
	Configuration     string `json:"configuration"`
	PoolConfiguration string `json:"poolConfiguration"`
	// Pinned says that the pool hands out what its spec.configurationName names, and what no longer fits, or is "".
	Pinned string `json:"pinned,omitempty"`
	// runsNothing says that the host has not booted and where to look, or "".
	runsNothing string
	// Update is the condition Updated: its reason and its message. It is empty for a host that has not joined.
	Update string `json:"update"`
	// Reboot is whether the host must reboot to run what its pool hands out, and because of what.
	Reboot string `json:"reboot"`
	// Stage is the stage of the boot since the time Since, Message what it waits for or what is wrong. For a Node that
	// Poolboot did not boot, Stage is empty, and Message says so.
	Stage    record.Stage    `json:"stage"`
	Since    time.Time       `json:"since,omitzero"`
	Message  string          `json:"message"`
	Timeline []record.Moment `json:"timeline"`
	nodeProperties
	// Todo is what a person has to do.
	Todo []string `json:"todo"`
}

func newMachine(streams genericiooptions.IOStreams, to input.Connection) *cobra.Command {
	return newBoot(streams, to, "machine NAME [-f FILE...]", "Machine", input.Machines, (*gatherer).machine, `  # Why is this Machine in its pool, and what is missing?
  kubectl poolboot explain machine infra-x7k2m -n metal

  # The same from files, as kubectl get -o yaml prints the objects
  kubectl poolboot explain machine infra-x7k2m -f objects.yaml`)
}

func newNode(streams genericiooptions.IOStreams, to input.Connection) *cobra.Command {
	return newBoot(streams, to, "node NAME [-f FILE...]", "Node", input.Nodes, (*gatherer).node, `  # Which pool is this Node in, and where does each label come from?
  kubectl poolboot explain node infra-x7k2m -n metal --cluster edge

  # The same from files, as kubectl get -o yaml prints the objects
  kubectl poolboot explain node infra-x7k2m -f objects.yaml`)
}

// newBoot returns the command for a kind. It explains the subject that gather finds.
func newBoot(streams genericiooptions.IOStreams, to input.Connection, use, kind string, names input.Names,
	gather func(*gatherer, context.Context) (*subject, error), example string) *cobra.Command {
	o := newOptions(streams, to)
	cmd := &cobra.Command{
		Use:   use,
		Short: fmt.Sprintf("Explain the pool of a %s, its boot, its labels and taints, and what to do", kind),
		Long: fmt.Sprintf(`Explain why a %s is in its pool, the stage of its boot, where each label and taint that the Node has or should have
comes from, what is missing or differs, and what to do.

Objects are read from the management cluster, and the Node from the workload cluster with the Cluster's kubeconfig
Secret. The answer reports what could not be read. With -f all objects are read from files.

Exit codes: 0 when there is nothing to do, 2 when there is, 1 for an error.`, kind),
		Example: example,
	}
	cmd.Flags().StringVar(&o.cluster, "cluster", "", "Cluster of the Node, when there are several")
	cmd.Flags().StringSliceVar(&o.syncedLabels, "additional-sync-machine-labels", nil, "regular expressions, as in this flag of Cluster API and of the manager")
	cli.AddCompletion(cmd, "additional-sync-machine-labels", cobra.NoFileCompletions)
	cli.AddCompletion(cmd, "cluster", input.CompleteFromCluster(to, input.PoolClusters))
	return o.configure(cmd, kind, names, "the objects", func(ctx context.Context, source *input.Source, name string) error {
		return o.explainBoot(ctx, &gatherer{source: source, name: name, cluster: o.cluster}, gather)
	})
}

func (o *options) explainBoot(ctx context.Context, g *gatherer, gather func(*gatherer, context.Context) (*subject, error)) error {
	synced, err := registration.CompileSyncedLabels(o.syncedLabels)
	if err != nil {
		return fmt.Errorf("--additional-sync-machine-labels: %w", err)
	}
	s, err := gather(g, ctx)
	if err != nil {
		return err
	}
	answer := s.explain(synced)
	if err := o.output.Print(o.streams.Out, answer, answer.print); err != nil {
		return err
	}
	if len(answer.Todo) > 0 {
		return cli.TasksRemain(g.name, len(answer.Todo))
	}
	return nil
}

// nodeProperties are the labels and taints that a Node has and that it should have. Lists are never null.
type nodeProperties struct {
	Labels []nodeProperty `json:"labels"`
	Taints []nodeProperty `json:"taints"`
}

func noProperties() nodeProperties { return nodeProperties{[]nodeProperty{}, []nodeProperty{}} }

// print prints the answer as text.
func (b *bootReport) print(out io.Writer) error {
	head := [][]string{{"Machine:", b.Machine}, {"Config:", cmp.Or(b.PoolbootConfig, b.Message)}, {"Cluster:", b.Cluster}, {"Host:", b.Host}, {"Node:", b.Node}}
	if len(b.Addresses) > 0 {
		head = append(head, []string{"Token:", "used from " + boots.JoinAddresses(b.Addresses, ", ")})
	}
	head = append(head, []string{"Pool:", b.Pool}, []string{"Why:", b.Why})
	if b.PoolbootConfig != "" {
		head = append(head, []string{"Runs:", cmp.Or(b.runsNothing, b.Configuration)}, []string{"Handed out:", b.PoolConfiguration})
	}
	if b.Pinned != "" {
		head = append(head, []string{"Pinned:", b.Pinned})
	}
	if b.Update != "" {
		head = append(head, []string{"Update:", b.Update})
	}
	if b.Reboot != "" {
		head = append(head, []string{"Reboot:", b.Reboot})
	}
	if b.Stage != "" {
		head = append(head, []string{"Stage:", fmt.Sprintf("%s for %s: %s", b.Stage, duration.HumanDuration(time.Since(b.Since)), b.Message)})
	}
	for _, text := range b.Unseen {
		head = append(head, []string{"Not seen:", text})
	}
	text := &strings.Builder{}
	tables := cli.StyledAs(out, text)
	err := (&cli.Table{Out: tables}).Print(head...)
	if len(b.Timeline) > 0 {
		text.WriteString("\n")
		steps := make([][]string, len(b.Timeline))
		for i, moment := range b.Timeline {
			after := ""
			if i > 0 {
				after = moment.Time.Sub(b.Timeline[i-1].Time).Round(time.Millisecond).String()
			}
			steps[i] = []string{string(moment.Step), moment.Time.UTC().Format(time.RFC3339), after}
		}
		err = errors.Join(err, (&cli.Table{Out: tables, Header: []string{"STEP", "TIME", "AFTER"}}).Print(steps...))
	}
	if len(b.Labels)+len(b.Taints) > 0 { // not known yet, for example for a blocked host
		text.WriteString("\n")
		err = errors.Join(err, b.printProperties(tables))
	}
	text.WriteString("\nTo do:\n")
	if len(b.Todo) == 0 {
		text.WriteString("  nothing\n")
	}
	for _, task := range b.Todo {
		text.WriteString(cli.Paragraph("  - ", task))
	}
	_, printErr := io.WriteString(out, text.String())
	return errors.Join(err, printErr)
}

// printProperties prints tables of labels and taints, with their states if the Node was read.
func (b *bootReport) printProperties(out io.Writer) error {
	for i, list := range [][]nodeProperty{b.Labels, b.Taints} {
		table := cli.Table{Out: out, Header: []string{[]string{"LABEL", "TAINT"}[i], "FROM"}}
		if b.NodeSeen {
			table.Header = slices.Insert(table.Header, 1, "ON THE NODE")
		}
		rows := make([][]string, len(list))
		for j, p := range list {
			rows[j] = []string{p.Text, strings.Join(p.From, " and ")}
			if b.NodeSeen {
				rows[j] = slices.Insert(rows[j], 1, p.state())
			}
		}
		if i > 0 {
			fmt.Fprintln(out)
		}
		if err := table.Print(rows...); err != nil {
			return err
		}
	}
	return nil
}
