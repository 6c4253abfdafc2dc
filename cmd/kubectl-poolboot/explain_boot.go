package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/yaml"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/timeline"
)

// explainBoot says in which pool a Machine or a Node is and why, and where what its Node carries comes from.
type explainBoot struct {
	reader
	files, rest   []string
	name, cluster string
	synced        []string
	output        string
	connection
}

// bootExplained is what explain machine and explain node print. What is not there is empty; lists are never null.
type bootExplained struct {
	Machine        string `json:"machine"`
	PoolbootConfig string `json:"poolbootConfig"`
	Cluster        string `json:"cluster"`
	Host           string `json:"host"`
	Node           string `json:"node"`
	// NodeSeen is false when the Node could not be looked at; Unseen says why, of the Node and of everything else.
	NodeSeen bool     `json:"nodeSeen"`
	Unseen   []string `json:"unseen"`
	// Addresses are those from which the host's token was used, the first one first; of a host that enrolled, the
	// address that it enrolled from.
	Addresses []addressShown `json:"addresses"`
	// Pool is the role of the pool, and Why says how it came about.
	Pool string `json:"pool"`
	Why  string `json:"why"`
	// Configuration is the rendered config that the host runs or boots with, PoolConfiguration the one that the pool
	// hands out now.
	Configuration     string `json:"configuration"`
	PoolConfiguration string `json:"poolConfiguration"`
	// Stage is where the boot is, Since since when, Message what is waited for or wrong. A Node that Poolboot did not
	// boot has none.
	Stage    timeline.Stage    `json:"stage"`
	Since    time.Time         `json:"since,omitzero"`
	Message  string            `json:"message"`
	Timeline []timeline.Moment `json:"timeline"`
	// Labels and Taints are what the Node has and what it should have.
	Labels []onNode `json:"labels"`
	Taints []onNode `json:"taints"`
	// Todo is what a person has to do.
	Todo []string `json:"todo"`
}

func newExplainMachine(streams genericiooptions.IOStreams, to connection) *cobra.Command {
	e := &explainBoot{reader: reader{streams: streams}, connection: to}
	return e.command("machine NAME [-f FILE...]", "Machine", machineNames, e.ofMachine, `  # Why is this Machine where it is, and what is missing?
  kubectl poolboot explain machine infra-x7k2m -n metal

  # The same out of files, as kubectl get -o yaml prints the objects
  kubectl poolboot explain machine infra-x7k2m -f objects.yaml`)
}

func newExplainNode(streams genericiooptions.IOStreams, to connection) *cobra.Command {
	e := &explainBoot{reader: reader{streams: streams}, connection: to}
	return e.command("node NAME [-f FILE...]", "Node", nodeNames, e.ofNode, `  # Which pool is this Node in, and where does each label come from?
  kubectl poolboot explain node infra-x7k2m -n metal --cluster edge

  # The same out of files, as kubectl get -o yaml prints the objects
  kubectl poolboot explain node infra-x7k2m -f objects.yaml`)
}

func (e *explainBoot) command(use, kind string, live names, find func(context.Context) (*bootSubject, error), example string) *cobra.Command {
	cmd := &cobra.Command{
		Use:   use,
		Short: fmt.Sprintf("Say which pool a %s is in and why, where its labels come from, and what to do", kind),
		Long: fmt.Sprintf(`Say in which pool a %s is and why, how far its boot is, every label and taint that the Node has or should have and where it
comes from, what is missing or other than it should be, and what to do.

Objects are read from the management cluster, and the Node from its own by the Cluster's kubeconfig Secret; without the right to read
that, the answer says so. With -f they are read from files, all of them.

Exit codes: 0 when there is nothing to do, 2 when there is, 1 for an error.`, kind),
		Example: example,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return fmt.Errorf("the name of a %s is missing", kind)
			}
			return nil
		},
		ValidArgsFunction:     onlyFirst(fromCluster(e.connection, live), cobra.ShellCompDirectiveDefault),
		DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			e.name, e.rest = args[0], args[1:]
			return e.run(cmd.Context(), find)
		},
	}
	e.offerOptionalFiles(cmd, &e.files, "filename", "f", "where the objects are")
	cmd.Flags().StringVar(&e.cluster, "cluster", "", "the Cluster that is meant, when there are several")
	cmd.Flags().StringSliceVar(&e.synced, "additional-sync-machine-labels", nil, "the regular expressions that Cluster API and the manager were given by this flag")
	offerOutputs(cmd, &e.output, "json or yaml; without it, text", "json", "yaml")
	offerConnection(cmd, e.connection)
	completeFlag(cmd, "cluster", fromCluster(e.connection, liveClusters))
	return cmd
}

func (e *explainBoot) run(ctx context.Context, find func(context.Context) (*bootSubject, error)) error {
	if e.output != "" && e.output != "json" && e.output != "yaml" {
		return fmt.Errorf("--output %s is not known: use json or yaml, or leave it out", e.output)
	}
	synced, err := registration.CompileSyncedLabels(e.synced)
	if err != nil {
		return err
	}
	subject, err := find(ctx)
	if err != nil {
		return err
	}
	answer := subject.explain(synced)
	if err := answer.print(e.streams.Out, e.output); err != nil {
		return err
	}
	if len(answer.Todo) > 0 {
		return &todoError{of: e.name, things: len(answer.Todo)}
	}
	return nil
}

// todoError says that a person has something to do; what, is in the answer.
type todoError struct {
	of     string
	things int
}

func (e *todoError) Error() string {
	return fmt.Sprintf("%s: %d to do, as the answer says", e.of, e.things)
}

func (b *bootExplained) print(out io.Writer, output string) error {
	switch output {
	case "json":
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		encoder.SetEscapeHTML(false)
		return encoder.Encode(b)
	case "yaml":
		document, err := yaml.Marshal(b)
		if err == nil {
			_, err = out.Write(document)
		}
		return err
	}
	lines := tabwriter.NewWriter(out, 6, 4, 3, ' ', 0)
	head := [][2]string{{"Machine", b.Machine}, {"Config", b.PoolbootConfig}, {"Cluster", b.Cluster}, {"Host", b.Host}, {"Node", b.Node}}
	if len(b.Addresses) > 0 {
		head = append(head, [2]string{"Token", "used from " + joinAddresses(b.Addresses, ", ")})
	}
	head = append(head, [2]string{"Pool", b.Pool}, [2]string{"Why", b.Why})
	if b.PoolbootConfig != "" {
		head = append(head, [2]string{"Runs", b.Configuration}, [2]string{"Handed out", b.PoolConfiguration})
	}
	if b.Stage != "" {
		head = append(head, [2]string{"Stage", fmt.Sprintf("%s for %s: %s", b.Stage, duration.HumanDuration(time.Since(b.Since)), b.Message)})
	}
	for _, line := range head {
		fmt.Fprintf(lines, "%s:\t%s\n", line[0], printable(orNone(line[1])))
	}
	for _, text := range b.Unseen {
		fmt.Fprintf(lines, "Not seen:\t%s\n", printable(text))
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
		of   []onNode
	}{{"LABEL", b.Labels}, {"TAINT", b.Taints}} {
		if len(list.of) == 0 {
			continue // not known yet, as of a host that is blocked: the stage says why
		}
		fmt.Fprintf(lines, "\n%s\tON THE NODE\tFROM\n", list.name)
		for _, p := range list.of {
			fmt.Fprintf(lines, "%s\t%s\t%s\n", printable(p.Text), printable(p.state()), printable(strings.Join(p.From, " and ")))
		}
	}
	fmt.Fprintln(lines, "\nTo do:")
	if len(b.Todo) == 0 {
		fmt.Fprintln(lines, "  nothing")
	}
	for _, text := range b.Todo {
		fmt.Fprintf(lines, "  - %s\n", printable(text))
	}
	return lines.Flush()
}
