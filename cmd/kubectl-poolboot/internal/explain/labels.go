package explain

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// NewLabels returns the command labels: it prints the labels and taints that a pool's Nodes get.
func NewLabels(streams genericiooptions.IOStreams) *cobra.Command {
	o := newOptions(streams, nil)
	cmd := &cobra.Command{
		Use:   "labels -f FILE... --pool ROLE",
		Short: "Print the labels and taints of a pool's Nodes",
		Long: `Print the labels and taints that every Node of a pool is registered with, before a host boots, and the fields that
declare them.

A Machine, its PoolbootConfig and its host can add more; kubernetes.io/hostname is each Node's own name. For one
Machine, use "kubectl poolboot explain machine". A Node of the control plane is adopted, and gets these labels and
taints beside its own.

Exit codes: 0 with an answer, 2 when no Node can be registered in the pool, 1 for every other error.`,
		Example: `  # What will a Node of the pool infra get?
  kubectl poolboot labels -f pools.yaml --pool infra

  # For scripts
  kubectl poolboot labels -f pools.yaml --pool infra -o json

  # The pools of a cluster, as kubectl get -o yaml prints them
  kubectl poolboot labels -f - --pool infra < pools.yaml`,
		DisableFlagsInUseLine: true,
		RunE:                  func(cmd *cobra.Command, args []string) error { return o.printLabels(cmd.Context(), args) },
	}
	o.files.AddRequiredFlag(cmd, "filename", "f", "the MachineConfigPools")
	cli.AddPoolFlag(cmd, &o.role, o.files.Complete(0, input.PoolRoles, nil))
	input.AddClusterFlag(cmd, &o.cluster, o.files.Complete(0, input.PoolClusters, nil))
	o.output.AddTableFlag(cmd)
	return cmd
}

func (o *options) printLabels(ctx context.Context, args []string) error {
	objects, err := o.files.Objects(args)
	if err != nil {
		return err
	}
	source := objects.Source()
	pools, err := source.Pools(ctx, "", o.cluster)
	if err != nil {
		return err
	}
	if o.role == poolv1.RoleWorker {
		source.AddWorker(pools)
	}
	of, err := pool.OfRole(pools.Items, o.role)
	if err != nil {
		return source.Locate(source.ExplainMissing(err, o.role))
	}
	s := &subject{config: &bootstrapv1.PoolbootConfig{}, pools: pools.Items}
	registered, err := s.register(o.role, nil)
	if outside := (*registration.OutsidePoolError)(nil); errors.As(err, &outside) {
		err = fmt.Errorf("MachineConfigPool %q: its labels don't put a Node in the pool: %s: "+
			"change its nodeSelector or node.labels, or the other pool's", of.Name, outside.Why)
	}
	if err != nil {
		return cli.ActionRequired(source.Locate(err))
	}
	b := bootReport{nodeProperties: noProperties()}
	b.compare(s, registered)
	if pool.IsOfControlPlane(*of) { // its Nodes are adopted, and only get what the pool declares
		isOther := func(p nodeProperty) bool { return slices.Equal(p.From, []string{registration.PoolbootSource}) }
		b.Labels, b.Taints = slices.DeleteFunc(b.Labels, isOther), slices.DeleteFunc(b.Taints, isOther)
	}
	return o.output.Print(o.streams.Out, b.nodeProperties, b.printProperties)
}
