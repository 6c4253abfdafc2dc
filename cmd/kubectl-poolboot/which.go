package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

// which says in which pool a Node is.
type which struct {
	reader
	pools   []string
	labels  []string
	node    string
	nodes   string
	cluster string
	output  string
}

// membership is what which prints as JSON.
type membership struct {
	// Pool is the pool's role; null when the Node is in none.
	Pool *string `json:"pool"`
	// ControlPlane is true when the Node is of the control plane, and so in no pool.
	ControlPlane bool `json:"controlPlane,omitempty"`
}

func newWhich(streams genericiooptions.IOStreams) *cobra.Command {
	w := &which{reader: reader{streams: streams}}
	cmd := &cobra.Command{
		Use:   "which --pools FILE... (--labels KEY=VALUE,... | --node FILE | --nodes FILE)",
		Short: "Say in which pool a Node is",
		Long: `Say in which pool a Node with these labels is, or each of several Nodes, as the controllers do.

One matching custom pool wins over "worker". A control plane is in no pool, and neither is a Windows Node or one that no
pool selects: then nothing is printed but a note on standard error, or {"pool":null} as JSON.

Exit codes: 0 with an answer, 2 when several custom pools match, 1 for every other error.`,
		Example: `  # In which pool would a Node with two roles be?
  kubectl poolboot which --pools pools.yaml --labels node-role.kubernetes.io/worker=,node-role.kubernetes.io/infra=

  # For scripts
  kubectl poolboot which --pools pools.yaml --labels node-role.kubernetes.io/infra= -o json

  # A Node as kubectl get -o yaml prints it, from a file or from standard input
  kubectl poolboot which --pools pools.yaml --node node.yaml
  kubectl poolboot which --pools pools.yaml --node - < node.yaml

  # Every Node of a cluster, as kubectl get nodes -o yaml prints them
  kubectl poolboot which --pools pools.yaml --nodes - < node.yaml`,
		DisableFlagsInUseLine: true,
		RunE:                  func(_ *cobra.Command, args []string) error { return w.run(args) },
	}
	w.offerFiles(cmd, &w.pools, "pools", "", "where the MachineConfigPools are")
	cmd.Flags().StringArrayVarP(&w.labels, "labels", "l", nil, "the Node's labels, as KEY=VALUE,...; may be repeated")
	cmd.Flags().StringVar(&w.node, "node", "", "file with the Node, or a list with it alone; - for standard input")
	cmd.Flags().StringVar(&w.nodes, "nodes", "", "file with any number of Nodes, for a table of them all; - for standard input")
	cmd.MarkFlagsOneRequired("labels", "node", "nodes")
	cmd.MarkFlagsMutuallyExclusive("labels", "node", "nodes")
	must(cmd.MarkFlagFilename("node", "json", "yaml", "yml"))
	must(cmd.MarkFlagFilename("nodes", "json", "yaml", "yml"))
	offerCluster(cmd, &w.cluster)
	completeFlag(cmd, "cluster", w.fromFiles(&w.pools, 0, clustersIn, nil))
	offerOutputs(cmd, &w.output, "json; without it, the pool's role", "json")
	return cmd
}

func (w *which) run(args []string) error {
	if w.output != "" && w.output != "json" {
		return fmt.Errorf("--output %s is not known: use json, or leave it out", w.output)
	}
	found, err := w.read(append(w.pools, args...)...)
	if err != nil {
		return err
	}
	if err := found.ofCluster(w.cluster); err != nil {
		return err
	}
	if w.nodes != "" {
		return w.everyNode(found.pools)
	}
	nodeLabels, err := w.nodeLabels()
	if err != nil {
		return err
	}
	decision, err := pool.Decide(nodeLabels, found.pools)
	if err != nil {
		return err
	}
	if len(found.pools) == 0 {
		w.note("the files hold no MachineConfigPool")
	}
	if len(decision.Unsupported) > 0 {
		w.note("a control plane can't be in the pools that its labels ask for: " + strings.Join(decision.Unsupported, " and "))
	}
	return w.print(decision)
}

// nodeLabels are those of --labels, or of the Node in --node.
func (w *which) nodeLabels() (map[string]string, error) {
	if w.node == "" {
		given, err := labels.ConvertSelectorToLabelsMap(strings.Join(w.labels, ","), field.WithPath(field.NewPath("--labels")))
		if err != nil {
			err = fmt.Errorf("labels must be KEY=VALUE,... with keys and values that Kubernetes allows: %w", err)
		}
		return given, err
	}
	found, err := w.read(w.node)
	if err != nil {
		return nil, err
	}
	if len(found.nodes) != 1 {
		return nil, fmt.Errorf("%s holds %d Nodes, and must hold one: use --nodes for several", w.node, len(found.nodes))
	}
	return found.nodes[0].Labels, nil
}

func (w *which) print(decision pool.Decision) error {
	if w.output == "json" {
		answer := membership{ControlPlane: decision.ControlPlane}
		if decision.Role != "" {
			answer.Pool = &decision.Role
		}
		return json.NewEncoder(w.streams.Out).Encode(answer)
	}
	switch {
	case decision.ControlPlane:
		w.note("a control plane, which is in no pool")
	case decision.Role == "":
		w.note("unmanaged: in no pool")
	default:
		_, err := fmt.Fprintln(w.streams.Out, decision.Role)
		return err
	}
	return nil
}

// note says on standard error what is worth knowing beside the answer.
func (w *which) note(text string) {
	fmt.Fprintln(w.streams.ErrOut, "note:", text)
}
