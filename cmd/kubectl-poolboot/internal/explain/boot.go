package explain

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/cli-runtime/pkg/printers"

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
	// Pool is the role of the pool, and Why the reason for it.
	Pool string `json:"pool"`
	Why  string `json:"why"`
	// Configuration is the rendered config that the host runs or boots with, PoolConfiguration the one that the pool
	// hands out now.
	Configuration     string `json:"configuration"`
	PoolConfiguration string `json:"poolConfiguration"`
	// Update is the condition Updated: its reason and its message. It is empty for a host that has not joined.
	Update string `json:"update"`
	// Stage is the stage of the boot since the time Since, Message what it waits for or what is wrong. They are empty
	// for a Node that Poolboot did not boot.
	Stage    record.Stage    `json:"stage"`
	Since    time.Time       `json:"since,omitzero"`
	Message  string          `json:"message"`
	Timeline []record.Moment `json:"timeline"`
	// Labels and Taints are what the Node has and what it should have.
	Labels []nodeProperty `json:"labels"`
	Taints []nodeProperty `json:"taints"`
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
		Long: fmt.Sprintf(`Explain why a %s is in its pool, the stage of its boot, where each label and taint that the Node has or should have comes from,
what is missing or differs, and what to do.

Objects are read from the management cluster, and the Node from the workload cluster with the Cluster's kubeconfig Secret. The answer
reports what could not be read. With -f all objects are read from files.

Exit codes: 0 when there is nothing to do, 2 when there is, 1 for an error.`, kind),
		Example: example,
	}
	cmd.Flags().StringVar(&o.cluster, "cluster", "", "the Cluster of the Node, when there are several")
	cmd.Flags().StringSliceVar(&o.syncedLabels, "additional-sync-machine-labels", nil, "the regular expressions of this flag of Cluster API and of the manager")
	cli.AddCompletion(cmd, "cluster", input.CompleteFromCluster(to, input.PoolClusters))
	return o.configure(cmd, kind, names, "the objects", "text", func(ctx context.Context, source *input.Source, name string) error {
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

// print prints the answer as text.
func (b *bootReport) print(out io.Writer) error {
	lines := printers.GetNewTabWriter(out)
	head := [][2]string{{"Machine", b.Machine}, {"Config", b.PoolbootConfig}, {"Cluster", b.Cluster}, {"Host", b.Host}, {"Node", b.Node}}
	if len(b.Addresses) > 0 {
		head = append(head, [2]string{"Token", "used from " + boots.JoinAddresses(b.Addresses, ", ")})
	}
	head = append(head, [2]string{"Pool", b.Pool}, [2]string{"Why", b.Why})
	if b.PoolbootConfig != "" {
		head = append(head, [2]string{"Runs", b.Configuration}, [2]string{"Handed out", b.PoolConfiguration})
	}
	if b.Update != "" {
		head = append(head, [2]string{"Update", b.Update})
	}
	if b.Stage != "" {
		head = append(head, [2]string{"Stage", fmt.Sprintf("%s for %s: %s", b.Stage, duration.HumanDuration(time.Since(b.Since)), b.Message)})
	}
	for _, line := range head {
		fmt.Fprintf(lines, "%s:\t%s\n", line[0], cli.Printable(cmp.Or(line[1], cli.None)))
	}
	for _, text := range b.Unseen {
		fmt.Fprintf(lines, "Not seen:\t%s\n", cli.Printable(text))
	}
	if len(b.Timeline) > 0 {
		fmt.Fprintln(lines, "\nSTEP\tTIME\tAFTER")
		for i, moment := range b.Timeline {
			after := ""
			if i > 0 {
				after = moment.Time.Sub(b.Timeline[i-1].Time).Round(time.Millisecond).String()
			}
			fmt.Fprintf(lines, "%s\t%s\t%s\n", moment.Step, moment.Time.UTC().Format(time.RFC3339), after)
		}
	}
	for _, list := range []struct {
		name string
		of   []nodeProperty
	}{{"LABEL", b.Labels}, {"TAINT", b.Taints}} {
		if len(list.of) == 0 {
			continue // not known yet, for example for a blocked host
		}
		fmt.Fprintf(lines, "\n%s\tON THE NODE\tFROM\n", list.name)
		for _, p := range list.of {
			fmt.Fprintf(lines, "%s\t%s\t%s\n", cli.Printable(p.Text), cli.Printable(p.state()), cli.Printable(strings.Join(p.From, " and ")))
		}
	}
	fmt.Fprintln(lines, "\nTo do:")
	if len(b.Todo) == 0 {
		fmt.Fprintln(lines, "  nothing")
	}
	for _, text := range b.Todo {
		fmt.Fprintf(lines, "  - %s\n", cli.Printable(text))
	}
	return lines.Flush()
}
