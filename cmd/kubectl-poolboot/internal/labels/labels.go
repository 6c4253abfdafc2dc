// Package labels is the command kubectl poolboot labels: it prints the labels and taints that a pool's Nodes get.
package labels

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// options are those of the command line.
type options struct {
	streams genericiooptions.IOStreams
	files   input.Files
	role    string
	cluster string
	output  cli.Output
}

// answer is what labels prints.
type answer struct {
	Labels map[string]string `json:"labels"`
	Taints []corev1.Taint    `json:"taints"`
}

// New returns the command labels.
func New(streams genericiooptions.IOStreams) *cobra.Command {
	o := &options{streams: streams, files: input.Files{Streams: streams}}
	cmd := &cobra.Command{
		Use:   "labels -f FILE... --pool ROLE",
		Short: "Print the labels and taints of a pool's Nodes",
		Long: `Print the labels and taints that every Node of a pool is registered with, before a host boots.

The labels are those that the pool's node selector requires, its node.labels, the label with the pool's role, and kubernetes.io/os. The
taints are its node.taints, and the two taints that keep Pods away until the Node is in its pool and known to Cluster API. A Machine, its
PoolbootConfig and its host can add more; kubernetes.io/hostname is each Node's own name.

Exit codes: 0 with an answer, 2 when no Node can be registered in the pool, 1 for every other error.`,
		Example: `  # What will a Node of the pool infra get?
  kubectl poolboot labels -f pools.yaml --pool infra

  # For scripts
  kubectl poolboot labels -f pools.yaml --pool infra -o json

  # The pools of a cluster, as kubectl get -o yaml prints them
  kubectl poolboot labels -f - --pool infra < pools.yaml`,
		DisableFlagsInUseLine: true,
		RunE:                  func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), args) },
	}
	o.files.AddRequiredFlag(cmd, "filename", "f", "the MachineConfigPools")
	cli.AddPoolFlag(cmd, &o.role, o.files.Complete(0, input.PoolRoles, nil))
	input.AddClusterFlag(cmd, &o.cluster, o.files.Complete(0, input.PoolClusters, nil))
	o.output.AddFlag(cmd, "json; without it, lines of text", cli.FormatJSON)
	return cmd
}

func (o *options) run(ctx context.Context, args []string) error {
	if input.IsControlPlane(o.role) {
		return fmt.Errorf("--pool %s: control plane machines are in no pool: name another pool", o.role)
	}
	objects, err := o.files.Objects(args)
	if err != nil {
		return err
	}
	source := objects.Source()
	pools, err := source.Pools(ctx, "", o.cluster)
	if err != nil {
		return err
	}
	of, err := pool.OfRole(pools.Items, o.role)
	if err != nil {
		return source.Locate(source.ExplainMissing(err, o.role))
	}
	registered, err := registration.Register(registration.Input{
		NodeName: o.role, // any name: the answer does not have it
		Pool:     *of,
		Pools:    pools.Items,
		Config:   &bootstrapv1.PoolbootConfig{},
	})
	if outside := (*registration.OutsidePoolError)(nil); errors.As(err, &outside) {
		err = fmt.Errorf("MachineConfigPool %q: its labels don't put a Node in the pool: %s: "+
			"change its nodeSelector or node.labels, or the other pool's", of.Name, outside.Why)
	}
	if err != nil {
		return cli.ActionRequired(source.Locate(err))
	}
	delete(registered.Labels, corev1.LabelHostname) // it is different for each Node
	a := answer{Labels: registered.Labels, Taints: registered.Taints}
	if o.output.Format == cli.FormatJSON {
		return json.NewEncoder(o.streams.Out).Encode(a)
	}
	return a.print(o.streams.Out)
}

// print prints a line for every label and every taint.
func (a answer) print(out io.Writer) error {
	var lines strings.Builder
	for _, key := range slices.Sorted(maps.Keys(a.Labels)) {
		fmt.Fprintf(&lines, "label %s\n", cli.Printable(key+"="+a.Labels[key]))
	}
	for _, taint := range a.Taints {
		fmt.Fprintf(&lines, "taint %s\n", cli.Printable(taint.ToString()))
	}
	_, err := io.WriteString(out, lines.String())
	return err
}
