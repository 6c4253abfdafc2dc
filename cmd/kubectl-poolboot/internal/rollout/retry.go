package rollout

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

func newRetry(streams genericiooptions.IOStreams, to input.Connection) *cobra.Command {
	var hosts []string
	cmd := configureLive(&cobra.Command{
		Use:   "retry POOL [--host NAME]...",
		Short: "Apply the configuration again on hosts whose update failed",
		Long: `Apply the configuration again on hosts whose update failed or that were changed by hand, by the annotation
` + bootstrapv1.ForceUpdateAnnotation + ` of their PoolbootConfigs. With --host, only on these hosts, in whatever state they are.

Each is an update like any other: it takes a place of spec.maxUnavailable, and drains and reboots as the disruption
policy says.`,
		Example: `  # All hosts of a pool that need it
  kubectl poolboot rollout retry infra -n metal

  # One host, by the name of its Node, host or PoolbootConfig
  kubectl poolboot rollout retry infra -n metal --host rack1-u12`,
	}, to, func(ctx context.Context, cluster *input.Cluster, p *poolv1.MachineConfigPool) error {
		configs, _, err := listHosts(ctx, cluster, p)
		if err != nil {
			return err
		}
		selected, err := selectRetried(p, configs, hosts)
		if err != nil {
			return err
		}
		if len(selected) == 0 {
			return cli.Say(streams.Out, "%s: no host needs it", describe(p))
		}
		value := time.Now().UTC().Format(time.RFC3339Nano)
		for _, config := range selected {
			if err := force(ctx, cluster, config, value); err != nil {
				return err
			}
			if err := cli.Say(streams.Out, "PoolbootConfig %s: Node %s applies its configuration again", klog.KObj(config), config.Status.NodeRef.Name); err != nil {
				return err
			}
		}
		return nil
	})
	cmd.Flags().StringSliceVar(&hosts, "host", nil, "the name of a Node, host or PoolbootConfig; can be repeated")
	return cmd
}

// selectRetried returns the PoolbootConfigs of hosts of a pool with these names, or of all that need to apply their
// configuration again if there are no names.
func selectRetried(p *poolv1.MachineConfigPool, configs []bootstrapv1.PoolbootConfig, names []string) ([]*bootstrapv1.PoolbootConfig, error) {
	var selected []*bootstrapv1.PoolbootConfig
	unknown := slices.Clone(names)
	for i := range configs {
		h := newHostStatus(p, &configs[i])
		isNamed := func(name string) bool { return slices.Contains([]string{h.Node, h.Host, h.PoolbootConfig}, name) }
		if len(names) == 0 && h.isWrong && h.State == bootstrapv1.UpdateDegradedReason || slices.ContainsFunc(names, isNamed) {
			selected = append(selected, &configs[i])
		}
		unknown = slices.DeleteFunc(unknown, isNamed)
	}
	if len(unknown) > 0 {
		return nil, fmt.Errorf("--host: %s has no running host %s: see kubectl poolboot rollout status %s -n %s", describe(p), strings.Join(unknown, ", "), p.Name, p.Namespace)
	}
	return selected, nil
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
