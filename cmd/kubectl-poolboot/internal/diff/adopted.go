package diff

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// runNode prints what the pool of an adopted host would change on it, as its agent reports it on its Node. Without the
// right to read that, it prints the condition, which has the same.
func (o *options) runNode(ctx context.Context) error {
	cluster, err := o.connection.Open()
	if err != nil {
		return err
	}
	config, err := o.adoptedConfig(ctx, cluster)
	if err != nil {
		return err
	}
	message := conditions.GetMessage(config, bootstrapv1.UpdatedCondition)
	node := &corev1.Node{}
	workload, err := cluster.Workload(ctx, record.ClusterKey(config))
	if err == nil {
		err = workload.Get(ctx, client.ObjectKey{Name: o.node}, node)
	}
	report := rollout.ReportOf(node)
	isReported := report.Previewed != "" && report.Previewed == node.Annotations[agentv1.NextAnnotation]
	switch {
	case err != nil && strings.Contains(message, rollout.PreviewNothing), isReported && report.Preview == "":
		return nil
	case isReported:
		fmt.Fprintf(o.streams.Out, "Node %s (PoolbootConfig %s), as it was found -> pool %s\n  effect: %s\n", o.node, record.Key(config), config.Status.PoolRole, report.PreviewEffect)
		for line := range strings.SplitSeq(report.Preview, "; ") {
			fmt.Fprint(o.streams.Out, cli.Paragraph("  ~ ", line))
		}
		return errDifferent
	case err != nil && (strings.Contains(message, rollout.PreviewChanges) || strings.Contains(message, rollout.PreviewImpossible)):
		fmt.Fprintf(o.streams.ErrOut, "note: this is the condition %s of PoolbootConfig %s, because the Node can't be read: %s\n", bootstrapv1.UpdatedCondition, record.Key(config), err)
		if err := cli.Say(o.streams.Out, "%s", message); err != nil {
			return err
		}
		return errDifferent
	}
	if message == "" {
		message = "the condition " + bootstrapv1.UpdatedCondition + " does not exist yet"
	}
	return fmt.Errorf("the PoolbootConfig %s has no preview of its pool: %s", record.Key(config), message)
}

// adoptedConfig returns the PoolbootConfig that adopts the Node of the command line.
func (o *options) adoptedConfig(ctx context.Context, cluster *input.Cluster) (*bootstrapv1.PoolbootConfig, error) {
	configs := &bootstrapv1.PoolbootConfigList{}
	if err := cluster.List(ctx, configs, client.InNamespace(cluster.Namespace)); err != nil {
		return nil, fmt.Errorf("list PoolbootConfigs of namespace %s: %w", cluster.Namespace, err)
	}
	i := slices.IndexFunc(configs.Items, func(c bootstrapv1.PoolbootConfig) bool {
		isOfCluster := o.cluster == "" || o.cluster == record.ClusterName(&c) || o.cluster == record.ClusterKey(&c).String()
		return record.IsAdopted(&c) && c.Spec.Host.NodeName == o.node && isOfCluster
	})
	if i < 0 {
		return nil, &cli.UnknownName{Name: o.node, Err: fmt.Errorf("no PoolbootConfig in namespace %s adopts the Node %s: correct the name, or set --namespace or --cluster", cluster.Namespace, o.node)}
	}
	return &configs.Items[i], nil
}
