// Package which is the command kubectl poolboot which: it prints the pool of a Node, or of each of several.
package which

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// options are those of the command line.
type options struct {
	streams genericiooptions.IOStreams
	pools   input.Files
	labels  []string
	node    string
	nodes   string
	cluster string
	output  cli.Output
}

// membership is the pool of a Node, as which prints it in JSON.
type membership struct {
	// Pool is the pool's role; null when the Node is in none.
	Pool *string `json:"pool"`
	// ControlPlane is true for a control plane Node, which is in no pool.
	ControlPlane bool `json:"controlPlane,omitempty"`
}

func newMembership(decision pool.Decision) membership {
	m := membership{ControlPlane: decision.ControlPlane}
	if decision.Role != "" {
		m.Pool = &decision.Role
	}
	return m
}

// New returns the command which.
func New(streams genericiooptions.IOStreams) *cobra.Command {
	o := &options{streams: streams, pools: input.Files{Streams: streams}}
	cmd := &cobra.Command{
		Use:   "which -f FILE... [--labels KEY=VALUE,... | --node FILE | --nodes FILE]",
		Short: "Print the pool of a Node",
		Long: `Print the pool of a Node with these labels, or of each of several Nodes, as the controllers decide it.

A matching custom pool wins over "worker". Control plane Nodes, Windows Nodes and Nodes that no pool selects are in no
pool: which then prints only a note on standard error or, with -o json, {"pool":null}.

Exit codes: 0 with an answer, 2 when several custom pools match, 1 for every other error.`,
		Example: `  # Which pool is a Node with two roles in?
  kubectl poolboot which --pools pools.yaml --labels node-role.kubernetes.io/worker=,node-role.kubernetes.io/infra=

  # For scripts
  kubectl poolboot which --pools pools.yaml --labels node-role.kubernetes.io/infra= -o json

  # A Node as kubectl get -o yaml prints it, from a file or from standard input
  kubectl poolboot which --pools pools.yaml --node node.yaml
  kubectl poolboot which --pools pools.yaml --node - < node.yaml

  # Every Node of a cluster, as kubectl get nodes -o yaml prints them
  kubectl poolboot which -f pools.yaml -f node.yaml
  kubectl poolboot which --pools pools.yaml --nodes - < node.yaml`,
		DisableFlagsInUseLine: true,
		RunE:                  func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) },
	}
	o.pools.AddFlag(cmd, "filename", "f", "the MachineConfigPools and, without --labels, --node and --nodes, the Nodes")
	cmd.Flags().StringSliceVar(&o.pools.Names, "pools", nil, "the same as --filename")
	cmd.MarkFlagsOneRequired("filename", "pools")
	cmd.MarkFlagsMutuallyExclusive("filename", "pools")
	cmd.Flags().StringArrayVarP(&o.labels, "labels", "l", nil, "the Node's labels, as KEY=VALUE,...; may be repeated")
	cmd.Flags().StringVar(&o.node, "node", "", "file with the Node, or with a list that contains only this Node; - for standard input")
	cmd.Flags().StringVar(&o.nodes, "nodes", "", "file with any number of Nodes, for a table of all; - for standard input")
	cmd.MarkFlagsMutuallyExclusive("labels", "node", "nodes")
	utilruntime.Must(cmd.MarkFlagFilename("pools", "json", "yaml", "yml"))
	utilruntime.Must(cmd.MarkFlagFilename("node", "json", "yaml", "yml"))
	utilruntime.Must(cmd.MarkFlagFilename("nodes", "json", "yaml", "yml"))
	input.AddClusterFlag(cmd, &o.cluster, o.pools.Complete(0, input.PoolClusters, nil))
	o.output.AddFlag(cmd, "json; without it, text", cli.FormatJSON)
	return cmd
}

func (o *options) run(ctx context.Context, args []string) error {
	objects, err := o.pools.Objects(args)
	if err != nil {
		return err
	}
	source := objects.Source()
	pools, err := source.Pools(ctx, "", o.cluster)
	if err != nil {
		return err
	}
	for _, p := range pools.Items {
		if input.SelectsNothing(&p) && !input.IsControlPlane(p.Name) {
			o.note(source.LocateText(fmt.Sprintf("MachineConfigPool %q: spec.nodeSelector: without requirements it selects no Node, as in OpenShift", p.Name)))
		}
	}
	switch {
	case o.node != "" || o.labels != nil:
		return o.printNode(source, pools.Items)
	case o.nodes != "":
		if objects, err = o.pools.Read(o.nodes); err != nil {
			return err
		}
	case len(input.Of[*corev1.Node](objects)) == 0:
		return errors.New("the files contain no Node: set --labels, --node or --nodes, or add a file with Nodes")
	}
	return o.printNodes(objects.Source(), input.Of[*corev1.Node](objects), pools.Items)
}

// printNode answers for one Node.
func (o *options) printNode(source *input.Source, pools []poolv1.MachineConfigPool) error {
	nodeLabels, err := o.nodeLabels()
	if err != nil {
		return err
	}
	decision, err := pool.Decide(nodeLabels, pools)
	if conflict := (*pool.ConflictError)(nil); errors.As(err, &conflict) {
		from := "--labels"
		if o.node != "" {
			from = "--node " + o.node
		}
		err = fmt.Errorf("%s: %w", from, err)
	}
	if err != nil {
		return source.Locate(err)
	}
	if len(pools) == 0 {
		o.note("the files contain no MachineConfigPool")
	}
	if len(decision.Unsupported) > 0 {
		o.note("Poolboot ignores the custom pools that also match a control plane Node: " + strings.Join(decision.Unsupported, " and "))
	}
	return o.print(decision)
}

// nodeLabels returns the labels in --labels, or those of the Node in --node.
func (o *options) nodeLabels() (map[string]string, error) {
	if o.node == "" {
		given, err := labels.ConvertSelectorToLabelsMap(strings.Join(o.labels, ","))
		if err != nil {
			why := strings.TrimPrefix(err.Error(), "<nil>: ") // the field, which flags don't have
			err = fmt.Errorf("--labels: labels must be KEY=VALUE,... with keys and values that Kubernetes allows: %s", why)
		}
		return given, err
	}
	found, err := o.pools.Read(o.node)
	if err != nil {
		return nil, err
	}
	nodes := input.Of[*corev1.Node](found)
	if len(nodes) != 1 {
		return nil, fmt.Errorf("--node %s: the file contains %d Nodes, and must contain one: use --nodes for several", o.node, len(nodes))
	}
	return nodes[0].Labels, nil
}

func (o *options) print(decision pool.Decision) error {
	if o.output.Format == cli.FormatJSON {
		return json.NewEncoder(o.streams.Out).Encode(newMembership(decision))
	}
	switch {
	case decision.ControlPlane:
		o.note("a control plane Node is in no pool")
	case decision.Role == "":
		o.note("the Node is unmanaged: no pool selects its labels")
	default:
		_, err := fmt.Fprintln(o.streams.Out, cli.Printable(decision.Role))
		return err
	}
	return nil
}

// note prints a note on standard error.
func (o *options) note(text string) {
	fmt.Fprintln(o.streams.ErrOut, "note:", text)
}
