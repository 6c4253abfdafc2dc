package rollout

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

func newRestart(streams genericiooptions.IOStreams, to input.Connection) *cobra.Command {
	var reboot, kubelet bool
	cmd := configureLive(&cobra.Command{
		Use:   "restart POOL [--reboot | --kubelet]",
		Short: "Restart the hosts of a pool, or only their kubelets",
		Long: `Restart the hosts of a pool without a change, by spec.updates.restart of the pool. Each is an update like any other: it
waits for a place of spec.maxUnavailable, the maintenance window, gates and the end of a pause, its Node is drained, and
the next host follows when it is Ready again.

With --kubelet, the kubelets restart one after the other, without a drain.

Where files in Git are applied to the cluster, set spec.updates.restart there instead.`,
		Example: `  # Reboot all hosts, one after the other
  kubectl poolboot rollout restart infra -n metal

  # Restart the kubelets
  kubectl poolboot rollout restart infra -n metal --kubelet`,
	}, to, func(ctx context.Context, cluster *input.Cluster, p *poolv1.MachineConfigPool) error {
		kind, does := poolv1.RestartReboot, "reboot"
		if kubelet {
			kind, does = poolv1.RestartKubelet, "restart their kubelets"
		}
		before := p.DeepCopy()
		p.Spec.Updates.Restart = poolv1.RestartRequest{ID: time.Now().UTC().Format(time.RFC3339Nano), Kind: kind}
		if err := cluster.Patch(ctx, p, client.MergeFrom(before), client.FieldOwner("kubectl-poolboot")); err != nil {
			return fmt.Errorf("patch spec.updates.restart of %s: %w", describe(p), err)
		}
		if hold := holdOf(p); hold != "" {
			return cli.Say(streams.Out, "the hosts of %s are to %s, in their turn. None begins yet: %s", describe(p), does, hold)
		}
		return cli.Say(streams.Out, "the hosts of %s %s, in their turn: see kubectl poolboot rollout status %s -n %s", describe(p), does, p.Name, p.Namespace)
	})
	cmd.Flags().BoolVar(&reboot, "reboot", false, "drain and reboot the hosts (default)")
	cmd.Flags().BoolVar(&kubelet, "kubelet", false, "restart the kubelets, without a drain")
	cmd.MarkFlagsMutuallyExclusive("reboot", "kubelet")
	return cmd
}
