package rollout

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

func newApprove(streams genericiooptions.IOStreams, to input.Connection) *cobra.Command {
	var configuration string
	cmd := configureLive(&cobra.Command{
		Use:   "approve POOL [--configuration NAME]",
		Short: "Approve the updates of a pool to a config",
		Long: `Approve the updates of a pool with spec.updates.approval Manual to what it renders, by the annotation
poolboot.io/approved-configuration. When the pool renders another config, its hosts wait for another approval.

With --configuration, approve only this config. It is refused if it is superseded, so nobody approves what they have not
seen.`,
		Example: `  # What is to be approved?
  kubectl poolboot rollout history infra -n metal

  # Approve it
  kubectl poolboot rollout approve infra -n metal --configuration infra@6db67f47`,
	}, to, func(ctx context.Context, cluster *input.Cluster, p *poolv1.MachineConfigPool) error {
		name, err := resolveApproved(p, configuration)
		switch {
		case err != nil:
			return err
		case p.Spec.Updates.Approval != poolv1.ApprovalManual:
			return cli.Say(streams.Out, "%s needs no approval: its spec.updates.approval is not %s", describe(p), poolv1.ApprovalManual)
		case p.Annotations[poolv1.ApprovedConfigurationAnnotation] == name:
			return cli.Say(streams.Out, "%s is already approved for %s", name, describe(p))
		}
		before := p.DeepCopy()
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, poolv1.ApprovedConfigurationAnnotation, name)
		err = cluster.Patch(ctx, p, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldOwner("kubectl-poolboot"))
		if apierrors.IsConflict(err) {
			return fmt.Errorf("%s was changed meanwhile: see %s, and run the command again", describe(p), rollout.Command("status", p))
		}
		if err != nil {
			return fmt.Errorf("patch the annotation %s of %s: %w", poolv1.ApprovedConfigurationAnnotation, describe(p), err)
		}
		if hold := holdOf(p); hold != "" {
			return cli.Say(streams.Out, "%s is approved for %s, and no host begins its update yet: %s", name, describe(p), hold)
		}
		return cli.Say(streams.Out, "%s is approved for %s: its hosts begin their updates to it", name, describe(p))
	})
	cmd.Flags().StringVar(&configuration, "configuration", "", "rendered config to approve, by its whole or short name (default what the pool renders)")
	completeRendered(cmd, to, "configuration")
	return cmd
}

// resolveApproved returns the whole name of a rendered config that hosts of a pool can be updated to: by default what
// spec.configurationName names or else what the pool renders, or what a paused pool hands out meanwhile.
func resolveApproved(p *poolv1.MachineConfigPool, name string) (string, error) {
	handsOut := p.Status.Configuration.Name
	target := rollout.TargetOf(p)
	switch {
	case target == "":
		return "", fmt.Errorf("%s has rendered nothing that could be approved: see its condition %s", describe(p), poolv1.RenderDegradedCondition)
	case name == "", name == target, name == cli.ShortenNames(target):
		return target, nil
	case handsOut != "" && (name == handsOut || name == cli.ShortenNames(handsOut)):
		return handsOut, nil
	}
	does := "renders now"
	if p.Spec.ConfigurationName != "" {
		does = "is to hand out"
	}
	return "", fmt.Errorf("--configuration: %s is not what %s %s, which is %s: check that one, and approve it", name, describe(p), does, target)
}
