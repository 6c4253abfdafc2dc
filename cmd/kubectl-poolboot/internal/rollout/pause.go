package rollout

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
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
		Example: `  kubectl poolboot rollout pause infra -n metal

  # Call back the hosts that are drained: hand out again what they run, see kubectl poolboot rollout status
  kubectl poolboot rollout pause infra -n metal --configuration rendered-infra-6db67f47c0`,
	}, to, func(ctx context.Context, cluster *input.Cluster, p *poolv1.MachineConfigPool) error {
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
	cmd.Flags().StringVar(&configuration, "configuration", "", "the rendered config that the paused pool hands out; by default, what it hands out now")
	return cmd
}

func newResume(streams genericiooptions.IOStreams, to input.Connection) *cobra.Command {
	return configureLive(&cobra.Command{
		Use:   "resume POOL",
		Short: "Hand out the configs that a paused pool holds back",
		Long: `Hand out the configs that a paused pool holds back, by spec.paused. The annotation poolboot.io/paused-configuration is
removed, because it counts only while the pool is paused.`,
		Example: `  kubectl poolboot rollout resume infra -n metal`,
	}, to, func(ctx context.Context, cluster *input.Cluster, p *poolv1.MachineConfigPool) error {
		if !p.Spec.IsPaused() {
			return cli.Say(streams.Out, "%s is not paused", describe(p))
		}
		if err := setPaused(ctx, cluster, p, false, ""); err != nil {
			return err
		}
		return cli.Say(streams.Out, "%s is resumed: see kubectl poolboot rollout status %s -n %s", describe(p), p.Name, p.Namespace)
	})
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
