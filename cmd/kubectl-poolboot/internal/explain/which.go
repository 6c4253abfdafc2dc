package explain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// whichOptions are those of the command line of which.
type whichOptions struct {
	*options
	labels      []string
	node, nodes string
}

// nodeMembership is the pool of a Node.
type nodeMembership struct {
	// Node is empty for labels of the command line.
	Node string `json:"node,omitempty"`
	membership
}

// nodeKind is the kind of a Node at the beginning of errors.
const nodeKind = "Node"

// NewWhich returns the command which: it prints the pool of a Node, or of each of several.
func NewWhich(streams genericiooptions.IOStreams) *cobra.Command {
	o := &whichOptions{options: newOptions(streams, nil)}
	cmd := &cobra.Command{
		Use:   "which -f FILE... [--labels KEY=VALUE,... | --node FILE | --nodes FILE]",
		Short: "Print the pool of a Node",
		Long: `Print the pool of a Node with these labels, or of each of several Nodes, as the controllers decide it.

A matching custom pool wins over "worker". Control plane Nodes are only in the pool with the role control-plane, if
there is one. Windows Nodes and Nodes that no pool selects are in no pool: for one Node, which then prints only a note
on standard error or, with -o json, an empty pool.

Exit codes: 0 with an answer, 2 when several custom pools match, 1 for every other error.`,
		Example: `  # Which pool is a Node with two roles in?
  kubectl poolboot which -f pools.yaml --labels node-role.kubernetes.io/worker=,node-role.kubernetes.io/infra=

  # For scripts
  kubectl poolboot which -f pools.yaml --labels node-role.kubernetes.io/infra= -o json

  # A Node as kubectl get -o yaml prints it, from a file or from standard input
  kubectl poolboot which -f pools.yaml --node node.yaml
  kubectl poolboot which -f pools.yaml --node - < node.yaml

  # Every Node of a cluster, as kubectl get nodes -o yaml prints them
  kubectl poolboot which -f pools.yaml -f node.yaml
  kubectl poolboot which -f pools.yaml --nodes - < node.yaml`,
		DisableFlagsInUseLine: true,
		RunE:                  func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) },
	}
	o.files.AddFlag(cmd, "filename", "f", "the MachineConfigPools and, without --labels, --node and --nodes, the Nodes")
	cmd.Flags().StringSliceVar(&o.files.Names, "pools", nil, "files with the MachineConfigPools, as --filename")
	cmd.MarkFlagsOneRequired("filename", "pools")
	cmd.MarkFlagsMutuallyExclusive("filename", "pools")
	cmd.Flags().StringArrayVarP(&o.labels, "labels", "l", nil, "labels of the Node, as KEY=VALUE,...; may be repeated")
	cmd.Flags().StringVar(&o.node, "node", "", "file with the Node, or with a list that contains only this Node; - for standard input")
	cmd.Flags().StringVar(&o.nodes, "nodes", "", "files with Nodes: a file with any number, for a table of all; - for standard input")
	cmd.MarkFlagsMutuallyExclusive("labels", "node", "nodes")
	for _, name := range []string{"pools", "node", "nodes"} {
		utilruntime.Must(cmd.MarkFlagFilename(name, "json", "yaml", "yml"))
	}
	cli.AddCompletion(cmd, "labels", cobra.NoFileCompletions)
	input.AddClusterFlag(cmd, &o.cluster, o.files.Complete(0, input.PoolClusters, nil))
	o.output.AddTableFlag(cmd)
	return cmd
}

func (o *whichOptions) run(ctx context.Context, args []string) error {
	objects, err := o.files.Objects(args)
	if err != nil {
		return err
	}
	source := objects.Source()
	pools, err := source.Pools(ctx, "", o.cluster)
	if err != nil {
		return err
	}
	for _, p := range pools.Items {
		if input.SelectsNothing(&p) {
			o.note(source.LocateText(fmt.Sprintf("MachineConfigPool %q: spec.nodeSelector: without requirements it selects no Node, as in OpenShift", p.Name)))
		}
	}
	if o.labels != nil {
		given, err := labels.ConvertSelectorToLabelsMap(strings.Join(o.labels, ","))
		if err != nil {
			why := strings.TrimPrefix(err.Error(), "<nil>: ") // the field, which flags don't have
			return fmt.Errorf("--labels: labels must be KEY=VALUE,... with keys and values that Kubernetes allows: %s", why)
		}
		node := &corev1.Node{}
		node.Labels = given
		decided, err := (&subject{node: node, pools: pools.Items}).decidePool()
		if err != nil {
			return source.Locate(fmt.Errorf("--labels: %w", err))
		}
		return o.printOne(nodeMembership{membership: decided}, pools)
	}
	return o.runNodes(objects, pools)
}

// runNodes prints the pools of Nodes in files, in their order. Its error, after the answer, is the first conflict.
func (o *whichOptions) runNodes(objects *input.Objects, pools *input.Pools) (err error) {
	if file := o.node + o.nodes; file != "" {
		if objects, err = o.files.Read(file); err != nil {
			return err
		}
	}
	nodes, source := input.Of[*corev1.Node](objects), objects.Source()
	switch {
	case o.node != "" && len(nodes) != 1:
		return fmt.Errorf("--node %s: the file contains %d Nodes, and must contain one: use --nodes for several", o.node, len(nodes))
	case o.node+o.nodes == "" && len(nodes) == 0:
		return errors.New("the files contain no Node: set --labels, --node or --nodes, or add a file with Nodes")
	}
	answers := make([]nodeMembership, len(nodes))
	var conflicts error
	for i, node := range nodes {
		decided, err := (&subject{node: node, pools: pools.Items}).decidePool()
		if conflict := (*pool.ConflictError)(nil); err != nil {
			if err = source.Locate(fmt.Errorf("%s %q: %w", nodeKind, node.Name, err)); o.node != "" || !errors.As(err, &conflict) {
				return err
			}
			conflicts = errors.Join(conflicts, err)
		}
		answers[i] = nodeMembership{node.Name, decided}
	}
	if o.node != "" {
		return o.printOne(answers[0], pools)
	}
	err = o.output.Print(o.streams.Out, answers, func(out io.Writer) error {
		table := cli.Table{Out: out, Header: []string{"NODE", "POOL", "WHY"}}
		rows := make([][]string, len(answers))
		for i, a := range answers {
			rows[i] = []string{a.Node, a.Pool, a.Why}
		}
		return table.Print(rows...)
	})
	return errors.Join(err, conflicts)
}

// printOne prints the pool of one Node.
func (o *whichOptions) printOne(answer nodeMembership, of *input.Pools) error {
	if len(of.Items) == 0 {
		o.note("the files contain no MachineConfigPool")
	}
	return o.output.Print(o.streams.Out, answer, func(out io.Writer) error {
		if answer.Pool == "" {
			o.note("the Node is in no pool: " + answer.Why)
			return nil
		}
		_, err := fmt.Fprintln(out, cli.Printable(answer.Pool))
		return err
	})
}

// note prints a note on standard error.
func (o *whichOptions) note(text string) {
	fmt.Fprintln(o.streams.ErrOut, "note:", text)
}
