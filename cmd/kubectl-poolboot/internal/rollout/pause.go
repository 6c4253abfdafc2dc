package rollout

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/outlook"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

func newPause(streams genericiooptions.IOStreams, to input.Connection) *cobra.Command {
	var configuration string
	cmd := configureLive(&cobra.Command{
		Use:   "pause POOL [--configuration NAME]",
		Short: "Hold back new configs of a pool",
		Long: `Hold back new configs of a pool, by spec.paused. The pool continues to render. A host that has begun an update completes
it, and new Machines boot with what the pool hands out now (annotation poolboot.io/paused-configuration).

With --configuration, the paused pool hands out this rendered config instead. A host in an update that still runs this
one is called back: its drain ends, and its Node is uncordoned. Hosts that run another one keep it.`,
		Example: `  # Begin no further updates
  kubectl poolboot rollout pause infra -n metal

  # Call back the hosts that are drained: hand out again what they run, see kubectl poolboot rollout status
  kubectl poolboot rollout pause infra -n metal --configuration infra@6db67f47`,
	}, to, func(ctx context.Context, cluster *input.Cluster, p *poolv1.MachineConfigPool) error {
		configuration, err := resolveRendered(ctx, cluster, p, configuration)
		if err != nil {
			return fmt.Errorf("--configuration: %w", err)
		}
		if p.Spec.IsPaused() && (configuration == "" || configuration == p.Annotations[poolv1.PausedConfigurationAnnotation]) {
			return cli.Say(streams.Out, "%s is already paused", describe(p))
		}
		if err := setPaused(ctx, cluster, p, true, configuration); err != nil {
			return err
		}
		if configuration != "" {
			return cli.Say(streams.Out, "%s is paused and hands out %s: hosts in an update that still run it are called back", describe(p), configuration)
		}
		return cli.Say(streams.Out, "%s is paused: hosts that have begun an update complete it, and no other host begins one", describe(p))
	})
	cmd.Flags().StringVar(&configuration, "configuration", "", "rendered config that the paused pool hands out, by its whole or short name (default what it hands out now)")
	completeRendered(cmd, to, "configuration")
	return cmd
}

// completeRendered completes a flag to the rendered configs of a pool.
func completeRendered(cmd *cobra.Command, to input.Connection, flag string) {
	completeInPool(cmd, to, flag, func(ctx context.Context, from client.Reader, p *poolv1.MachineConfigPool) (names []string, err error) {
		configs, err := listRendered(ctx, from, p)
		for _, c := range configs {
			names = append(names, c.Name)
		}
		return names, err
	})
}

func newResume(streams genericiooptions.IOStreams, to input.Connection) *cobra.Command {
	return configureLive(&cobra.Command{
		Use:   "resume POOL",
		Short: "Hand out what a paused or pinned pool renders",
		Long: `Hand out the configs that a paused pool holds back, by spec.paused. The annotation poolboot.io/paused-configuration is
removed, because it counts only while the pool is paused.

After rollout undo, hand out what the pool renders again, by removing spec.configurationName. Of a pool that is also
paused, this ends the pause only: what undo named is handed out, and the next resume ends that.`,
		Example: `  # Continue the updates
  kubectl poolboot rollout resume infra -n metal`,
	}, to, func(ctx context.Context, cluster *input.Cluster, p *poolv1.MachineConfigPool) error {
		pinned := p.Spec.ConfigurationName
		switch {
		case p.Spec.IsPaused():
			if err := setPaused(ctx, cluster, p, false, ""); err != nil {
				return err
			}
			if pinned != "" {
				return cli.Say(streams.Out, "%s is no longer paused, and hands out %s (spec.configurationName): run the command again to hand out what it renders", describe(p), pinned)
			}
		case pinned != "":
			if err := pin(ctx, cluster, p, ""); err != nil {
				return err
			}
		default:
			return cli.Say(streams.Out, "%s is not paused", describe(p))
		}
		return cli.Say(streams.Out, "%s is resumed: see kubectl poolboot rollout status %s -n %s", describe(p), p.Name, p.Namespace)
	})
}

// resolveRendered returns the whole name of a rendered config of a pool, or "" for "".
func resolveRendered(ctx context.Context, from client.Reader, p *poolv1.MachineConfigPool, name string) (string, error) {
	if name == "" {
		return "", nil
	}
	configs, err := listRendered(ctx, from, p)
	for _, c := range configs {
		if c.Name == name || cli.ShortenNames(c.Name) == name {
			return c.Name, nil
		}
	}
	if err == nil {
		err = notRendered(p, name)
	}
	return "", err
}

// notRendered returns the error about a rendered config that a pool does not have.
func notRendered(p *poolv1.MachineConfigPool, name string) error {
	what, next := "has no rendered config "+name, "lists"
	if slices.ContainsFunc(p.Status.History, func(h poolv1.HandedOutConfiguration) bool { return h.Name == name || cli.ShortenNames(h.Name) == name }) {
		what, next = "handed out "+name+", which was deleted", "lists without deleted"
	}
	return fmt.Errorf("%s %s: choose one that %s %s", describe(p), what, rollout.Command("history", p), next)
}

// setPaused sets spec.paused, and what the paused pool hands out unless that is "". With the pause, that
// record goes too.
func setPaused(ctx context.Context, cluster *input.Cluster, p *poolv1.MachineConfigPool, paused bool, configuration string) error {
	before := p.DeepCopy()
	p.Spec.Paused = ptr.To(paused)
	switch {
	case !paused:
		delete(p.Annotations, poolv1.PausedConfigurationAnnotation)
	case configuration != "":
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, poolv1.PausedConfigurationAnnotation, configuration)
	}
	if err := cluster.Patch(ctx, p, client.MergeFrom(before), client.FieldOwner("kubectl-poolboot")); err != nil {
		return fmt.Errorf("patch spec.paused of %s: %w", describe(p), err)
	}
	return nil
}

func newRetry(streams genericiooptions.IOStreams, to input.Connection) *cobra.Command {
	var hosts []string
	cmd := configureLive(&cobra.Command{
		Use:   "retry POOL [--host NAME]...",
		Short: "Apply the configuration again on hosts whose update failed",
		Long: `Apply the configuration again on hosts whose update failed or that were changed by hand, by the annotation
` + bootstrapv1.ForceUpdateAnnotation + ` of their PoolbootConfigs, if that can correct them. The other hosts that need you to act are
named with what to do. With --host, only on these hosts, in whatever state they are.

Each is an update like any other: it takes a place of spec.maxUnavailable, and drains and reboots as the disruption
policy says for the entries that change or differ on the host. Nothing drains or reboots if none does.

Exit codes: 0 if a host is to apply its configuration again, or nothing needs you to act. 2 if no host is, and a host or
the pool needs you to act. 1 for an error.`,
		Example: `  # All hosts of a pool that it can correct
  kubectl poolboot rollout retry infra -n metal

  # One host, by the name of its Node, host or PoolbootConfig
  kubectl poolboot rollout retry infra -n metal --host rack1-u12`,
	}, to, func(ctx context.Context, cluster *input.Cluster, p *poolv1.MachineConfigPool) error {
		configs, err := listHosts(ctx, cluster, p)
		if err != nil {
			return err
		}
		selected, others, err := selectRetried(p, configs, hosts)
		if err != nil {
			return err
		}
		for _, h := range others {
			if err := cli.Say(streams.Out, "host %s is left out, because applying its configuration again does not correct it: %s: %s", h.name, h.State, h.brief()); err != nil {
				return err
			}
		}
		if len(selected) == 0 {
			return retriedNone(streams.Out, newSummary(p, newHostStatuses(p, configs)))
		}
		hold, does := holdOf(p), "applies"
		if hold != "" {
			does = "is to apply"
		}
		value := time.Now().UTC().Format(time.RFC3339Nano)
		for _, config := range selected {
			if err := force(ctx, cluster, config, value); err != nil {
				return err
			}
			if err := cli.Say(streams.Out, "host %s %s its configuration again", record.HostName(config), does); err != nil {
				return err
			}
		}
		if hold != "" {
			if err := cli.Say(streams.Out, "None begins yet: %s", hold); err != nil {
				return err
			}
		}
		return cli.Say(streams.Out, "Each host waits for its turn, and is drained and rebooted if the disruption policy says so for an entry that changes or differs.")
	})
	cmd.Flags().StringSliceVar(&hosts, "host", nil, "name of a Node, host or PoolbootConfig; may be repeated")
	completeInPool(cmd, to, "host", nodesOfHosts)
	return cmd
}

// selectRetried returns the PoolbootConfigs of hosts of a pool with these names, or without names of all that are
// corrected when they apply their configuration again, and the others that need a user to act.
func selectRetried(p *poolv1.MachineConfigPool, configs []bootstrapv1.PoolbootConfig, names []string) (selected []*bootstrapv1.PoolbootConfig, others []HostStatus, err error) {
	unknown := slices.Clone(names)
	for i := range configs {
		h := newHostStatus(p, &configs[i])
		isNamed := func(name string) bool { return slices.Contains([]string{h.Node, h.Host, h.PoolbootConfig}, name) }
		switch isWrong := len(names) == 0 && h.IsWrong; {
		case isWrong && outlook.IsRetryable(h.State), slices.ContainsFunc(names, isNamed):
			selected = append(selected, &configs[i])
		case isWrong:
			others = append(others, h)
		}
		unknown = slices.DeleteFunc(unknown, isNamed)
	}
	if len(unknown) > 0 {
		err := fmt.Errorf("--host: %s has no running host %s: see kubectl poolboot rollout status %s -n %s", describe(p), strings.Join(unknown, ", "), p.Name, p.Namespace)
		return nil, nil, &cli.UnknownName{Name: unknown[0], Err: err}
	}
	return selected, others, nil
}

// retriedNone says that no host is to apply its configuration again. If the pool or a host needs a user to act, it
// returns an error with the cause, which is above for hosts.
func retriedNone(out io.Writer, s summary) error {
	none := describe(s.pool) + ": no host is to apply its configuration again"
	if err := s.failureOf(func(HostStatus) bool { return false }); err != nil {
		return cli.ActionRequired(fmt.Errorf("%s. %w", none, err))
	}
	if s.failure() != nil {
		return cli.ActionRequired(fmt.Errorf("%s, and hosts need you to act: see the output", none))
	}
	return cli.Say(out, "%s", none)
}

// force changes the annotation because of which a host applies its configuration again.
func force(ctx context.Context, cluster *input.Cluster, config *bootstrapv1.PoolbootConfig, value string) error {
	before := config.DeepCopy()
	metav1.SetMetaDataAnnotation(&config.ObjectMeta, bootstrapv1.ForceUpdateAnnotation, value)
	if err := cluster.Patch(ctx, config, client.MergeFrom(before), client.FieldOwner("kubectl-poolboot")); err != nil {
		return fmt.Errorf("patch the annotation %s of PoolbootConfig %s: %w", bootstrapv1.ForceUpdateAnnotation, klog.KObj(config), err)
	}
	return nil
}
