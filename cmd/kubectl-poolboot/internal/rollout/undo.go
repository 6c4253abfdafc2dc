package rollout

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

func newUndo(streams genericiooptions.IOStreams, to input.Connection) *cobra.Command {
	var configuration string
	cmd := configureLive(&cobra.Command{
		Use:   "undo POOL [--to NAME]",
		Short: "Return the hosts of a pool to an earlier config",
		Long: `Return the hosts of a pool to an earlier rendered config, by spec.configurationName: the pool hands it out instead of
what it renders, new Machines boot with it, and running hosts are updated to it, under all limits, gates and windows of
the pool. It is the one that the pool handed out before the present one, or with --to any one that rollout history lists
without deleted.

The MachineConfigs stay as they are. Those because of which the pool renders something else are named: change or revert
them, and then run rollout resume, which ends the undo. Node labels and taints, disruption policies and all other
settings of the pool stay, too. Other pools are not changed: those that hand out the same MachineConfigs are named.

Exit codes: 0 if the pool hands out an earlier config, also from before. 2 if there is no earlier one. 1 for an error.`,
		Example: `  # Return to the config before the present one
  kubectl poolboot rollout undo infra -n metal

  # Return to a certain one, by its whole or short name
  kubectl poolboot rollout undo infra -n metal --to infra@6db67f47`,
	}, to, func(ctx context.Context, cluster *input.Cluster, p *poolv1.MachineConfigPool) error {
		name, err := resolveRendered(ctx, cluster, p, configuration)
		switch {
		case err != nil:
			return fmt.Errorf("--to: %w", err)
		case name == "" && p.Spec.ConfigurationName != "", name != "" && name == p.Spec.ConfigurationName:
			return sayUndone(ctx, streams, cluster, p, "is already to hand out")
		case name == "":
			if name, err = findEarlier(ctx, cluster, p); err != nil {
				return err
			}
		}
		if err := pin(ctx, cluster, p, name); err != nil {
			return err
		}
		return sayUndone(ctx, streams, cluster, p, "hands out")
	})
	cmd.Flags().StringVar(&configuration, "to", "", "rendered config to return to, by its whole or short name (default the one before the present one)")
	completeRendered(cmd, to, "to")
	return cmd
}

// findEarlier returns the rendered config that a pool handed out last before the present one, and that differs and
// still exists.
func findEarlier(ctx context.Context, from client.Reader, p *poolv1.MachineConfigPool) (string, error) {
	configs, err := listRendered(ctx, from, p)
	if err != nil {
		return "", err
	}
	present, history := p.Status.Configuration.Name, p.Status.History
	for i := len(history) - 1; i >= 0; i-- {
		name := history[i].Name
		if !pool.HasSameContent(name, present) && slices.ContainsFunc(configs, func(c poolv1.MachineConfig) bool { return c.Name == name }) {
			return name, nil
		}
	}
	return "", cli.ActionRequired(fmt.Errorf("%s handed out nothing before %s that still exists: see %s, and choose one with --to, or revert the MachineConfigs",
		describe(p), present, rollout.Command("history", p)))
}

// pin sets what a pool hands out instead of what it renders, or with "" ends that. It fails if the pool was changed
// since it was read.
func pin(ctx context.Context, cluster *input.Cluster, p *poolv1.MachineConfigPool, name string) error {
	before := p.DeepCopy()
	p.Spec.ConfigurationName = name
	err := cluster.Patch(ctx, p, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner("kubectl-poolboot"))
	if apierrors.IsConflict(err) {
		return fmt.Errorf("%s was changed meanwhile: see %s, and run the command again", describe(p), rollout.Command("status", p))
	}
	if err != nil {
		return fmt.Errorf("patch spec.configurationName of %s: %w", describe(p), err)
	}
	return nil
}

// sayUndone says what a pool hands out instead of what it renders, which objects no longer fit, and what does not
// change.
func sayUndone(ctx context.Context, streams genericiooptions.IOStreams, cluster *input.Cluster, p *poolv1.MachineConfigPool, does string) error {
	rendered := &poolv1.MachineConfig{}
	err := cluster.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: p.Spec.ConfigurationName}, rendered)
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("spec.configurationName of %s names MachineConfig %s, which does not exist: choose one with --to that %s lists without deleted, or run %s",
			describe(p), p.Spec.ConfigurationName, rollout.Command("history", p), rollout.Command("resume", p))
	}
	if err != nil {
		return fmt.Errorf("get MachineConfig %s/%s: %w", p.Namespace, p.Spec.ConfigurationName, err)
	}
	configs := &poolv1.MachineConfigList{}
	if err := cluster.List(ctx, configs, client.InNamespace(p.Namespace)); err != nil {
		return fmt.Errorf("list MachineConfigs: %w", err)
	}
	pools, err := poolsOfCluster(ctx, cluster, p)
	if err != nil {
		return err
	}
	lines := []string{fmt.Sprintf("%s %s %s: new Machines boot with it, and running hosts are updated to it", describe(p), does, rendered.Name)}
	handedOut := p.DeepCopy() // as it is soon
	if handedOut.Spec.Paused == nil || !*handedOut.Spec.Paused {
		handedOut.Status.Configuration.Name = rendered.Name
	}
	if hold := rollout.HoldOf(handedOut, time.Now()).Why; hold != "" {
		lines = append(lines, "None begins yet: "+hold)
	}
	misfits, isKnown := pool.FindMisfits(rendered, p.Spec.PoolRole, pools, configs.Items)
	if p.Status.RenderedConfiguration != "" && pool.HasSameContent(p.Status.RenderedConfiguration, rendered.Name) {
		lines = append(lines, "It is also what the pool renders: run "+rollout.Command("resume", p)+" to hand out its next changes, too")
	} else {
		lines = append(lines, "The pool renders something else: "+rollout.DescribeMisfits(p, misfits, isKnown))
	}
	if others := findWithMisfit(p, pools, configs.Items, misfits); len(others) > 0 {
		lines = append(lines, fmt.Sprintf("Other pools hand out what no longer fits, and this does not change them: %s", strings.Join(others, ", ")))
	}
	for _, line := range lines {
		err = errors.Join(err, cli.Say(streams.Out, "%s", line))
	}
	return err
}

// findWithMisfit returns the names of the other pools of a Cluster that hand out an object as it is now because of
// which a pool renders something else than before.
func findWithMisfit(p *poolv1.MachineConfigPool, pools []poolv1.MachineConfigPool, configs []poolv1.MachineConfig, misfits []pool.Misfit) (names []string) {
	for i := range pools {
		other := &pools[i]
		parent, err := pool.ParentOf(other, pools)
		isChild := err == nil && parent != nil && parent.Name == p.Name
		j := slices.IndexFunc(configs, func(c poolv1.MachineConfig) bool { return c.Name == other.Status.Configuration.Name })
		if other.Name != p.Name && j >= 0 && pool.HasMisfit(&configs[j], misfits, isChild) {
			names = append(names, other.Name)
		}
	}
	slices.Sort(names)
	return names
}
