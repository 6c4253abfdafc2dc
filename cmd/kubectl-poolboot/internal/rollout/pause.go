package rollout

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

func newPause(streams genericiooptions.IOStreams, to input.Connection) *cobra.Command {
	return configureLive(&cobra.Command{
		Use:   "pause POOL",
		Short: "Hold back new configs of a pool",
		Long: `Hold back new configs of a pool, by spec.paused. The pool continues to render. A host that has begun an update completes it, and new
Machines boot with what the pool hands out now (spec.pausedConfiguration).`,
		Example: `  kubectl poolboot rollout pause infra -n metal`,
	}, to, func(ctx context.Context, cluster *input.Cluster, p *poolv1.MachineConfigPool) error {
		if p.Spec.IsPaused() {
			_, err := fmt.Fprintf(streams.Out, "%s is already paused\n", describe(p))
			return err
		}
		if err := setPaused(ctx, cluster, p, true); err != nil {
			return err
		}
		_, err := fmt.Fprintf(streams.Out, "%s is paused: hosts that have begun an update complete it, and no other host begins one\n", describe(p))
		return err
	})
}

func newResume(streams genericiooptions.IOStreams, to input.Connection) *cobra.Command {
	return configureLive(&cobra.Command{
		Use:   "resume POOL",
		Short: "Hand out the configs that a paused pool holds back",
		Long: `Hand out the configs that a paused pool holds back, by spec.paused. spec.pausedConfiguration is removed, because it counts only while
the pool is paused.`,
		Example: `  kubectl poolboot rollout resume infra -n metal`,
	}, to, func(ctx context.Context, cluster *input.Cluster, p *poolv1.MachineConfigPool) error {
		if !p.Spec.IsPaused() {
			_, err := fmt.Fprintf(streams.Out, "%s is not paused\n", describe(p))
			return err
		}
		if err := setPaused(ctx, cluster, p, false); err != nil {
			return err
		}
		_, err := fmt.Fprintf(streams.Out, "%s is resumed: see kubectl poolboot rollout status %s -n %s\n", describe(p), p.Name, p.Namespace)
		return err
	})
}

// setPaused sets spec.paused. With the pause, pausedConfiguration goes too.
func setPaused(ctx context.Context, cluster *input.Cluster, p *poolv1.MachineConfigPool, paused bool) error {
	before := p.DeepCopy()
	p.Spec.Paused = ptr.To(paused)
	if !paused {
		p.Spec.PausedConfiguration = poolv1.RenderedConfigReference{}
	}
	if err := cluster.Patch(ctx, p, client.MergeFrom(before), client.FieldOwner("kubectl-poolboot")); err != nil {
		return fmt.Errorf("patch spec.paused of %s: %w", describe(p), err)
	}
	return nil
}
