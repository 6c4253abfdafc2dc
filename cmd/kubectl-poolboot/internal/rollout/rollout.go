// Package rollout has the commands kubectl poolboot rollout: they print which hosts of a pool are updated next and how
// far a rollout is, pause, resume and approve it, try failed updates again, restart hosts, make exceptions for single
// ones, list the rendered configs of a pool, and return to an earlier one.
package rollout

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// New returns the command rollout. Each of its commands has a connection of its own.
func New(streams genericiooptions.IOStreams, connect func() input.Connection) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rollout",
		Short: "Show and control how running hosts follow their pool",
		Long: `Show how far the hosts of a pool are, which are next and what the pool handed out; pause, resume and approve the
updates, try failed ones again, return to an earlier config, restart hosts, and make exceptions for single ones.`,
		Example: `  # How far are all pools?
  kubectl poolboot rollout status -A

  # Which hosts of a pool are next, and why are others not?
  kubectl poolboot rollout plan infra -n metal`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newStatus(streams, connect()), newPlan(streams, connect()), newPause(streams, connect()), newResume(streams, connect()), newApprove(streams, connect()),
		newRetry(streams, connect()), newRestart(streams, connect()), newExcept(streams, connect()), newHistory(streams, connect()), newUndo(streams, connect()))
	return cmd
}

// configureLive makes a command one for a pool in the management cluster.
func configureLive(cmd *cobra.Command, to input.Connection, run func(ctx context.Context, cluster *input.Cluster, p *poolv1.MachineConfigPool) error) *cobra.Command {
	cmd.DisableFlagsInUseLine = true
	cmd.ValidArgsFunction = input.CompleteFirst(input.CompleteFromCluster(to, input.PoolNames), cobra.ShellCompDirectiveNoFileComp)
	cmd.Args = onePool
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cluster, p, err := openPool(cmd.Context(), to, args[0])
		if err != nil {
			return err
		}
		return run(cmd.Context(), cluster, p)
	}
	input.AddConnectionFlags(cmd, to)
	return cmd
}

// completeInPool completes a flag to names of a pool that the command line names.
func completeInPool(cmd *cobra.Command, to input.Connection, flag string, list func(context.Context, client.Reader, *poolv1.MachineConfigPool) ([]string, error)) {
	cli.AddCompletion(cmd, flag, func(cmd *cobra.Command, args []string, typed string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return input.CompleteFromCluster(to, func(ctx context.Context, from client.Reader, namespace string) ([]string, error) {
			p := &poolv1.MachineConfigPool{}
			if err := from.Get(ctx, client.ObjectKey{Namespace: namespace, Name: strings.Join(args, "")}, p); err != nil {
				return nil, err
			}
			return list(ctx, from, p)
		})(cmd, args, typed)
	})
}

// onePool accepts the name of one pool.
var onePool = cli.OneName("MachineConfigPool", "kubectl poolboot rollout status lists them")

// openPool reads the pool with a name, which can have the kind before it.
func openPool(ctx context.Context, to input.Connection, name string) (*input.Cluster, *poolv1.MachineConfigPool, error) {
	cluster, err := to.Open()
	if err != nil {
		return nil, nil, err
	}
	if kind, own, hasKind := strings.Cut(name, "/"); hasKind {
		if short, _, _ := strings.Cut(kind, "."); !slices.Contains([]string{"pbpool", "machineconfigpool", "machineconfigpools"}, strings.ToLower(short)) {
			return nil, nil, fmt.Errorf("%s is no MachineConfigPool: leave out %q", name, kind+"/")
		}
		name = own
	}
	p := &poolv1.MachineConfigPool{}
	err = cluster.Get(ctx, client.ObjectKey{Namespace: cluster.Namespace, Name: name}, p)
	if apierrors.IsNotFound(err) {
		return nil, nil, &cli.UnknownName{Name: name, Err: fmt.Errorf("namespace %s contains no MachineConfigPool %q: correct the name, or set --namespace", cluster.Namespace, name)}
	}
	if err != nil {
		return nil, nil, fmt.Errorf("get MachineConfigPool %s/%s: %w", cluster.Namespace, name, err)
	}
	return cluster, p, nil
}

// configsOf selects the PoolbootConfigs of the Cluster of a pool.
func configsOf(p *poolv1.MachineConfigPool) []client.ListOption {
	return []client.ListOption{client.InNamespace(p.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: p.Spec.ClusterName}}
}

// poolsOfCluster lists the pools of the Cluster of a pool.
func poolsOfCluster(ctx context.Context, from client.Reader, p *poolv1.MachineConfigPool) ([]poolv1.MachineConfigPool, error) {
	pools := &poolv1.MachineConfigPoolList{}
	if err := from.List(ctx, pools, client.InNamespace(p.Namespace)); err != nil {
		return nil, fmt.Errorf("list MachineConfigPools: %w", err)
	}
	return slices.DeleteFunc(pools.Items, func(other poolv1.MachineConfigPool) bool { return other.Spec.ClusterName != p.Spec.ClusterName }), nil
}

// listConfigs lists the PoolbootConfigs of the Cluster of a pool.
func listConfigs(ctx context.Context, from client.Reader, p *poolv1.MachineConfigPool) (*bootstrapv1.PoolbootConfigList, error) {
	configs := &bootstrapv1.PoolbootConfigList{}
	if err := from.List(ctx, configs, configsOf(p)...); err != nil {
		return nil, fmt.Errorf("list PoolbootConfigs: %w", err)
	}
	return configs, nil
}

// listHosts lists the PoolbootConfigs of the hosts that follow a pool.
func listHosts(ctx context.Context, from client.Reader, p *poolv1.MachineConfigPool) ([]bootstrapv1.PoolbootConfig, error) {
	configs, err := listConfigs(ctx, from, p)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(configs.Items, func(c bootstrapv1.PoolbootConfig) bool { return !isIn(p, &c) }), nil
}

// isIn reports whether a host follows a pool.
func isIn(p *poolv1.MachineConfigPool, config *bootstrapv1.PoolbootConfig) bool {
	return rollout.IsInPool(p.Spec.PoolRole, config)
}

// describe returns the kind, namespace and name of a pool.
func describe(p *poolv1.MachineConfigPool) string {
	return "MachineConfigPool " + klog.KObj(p).String()
}
