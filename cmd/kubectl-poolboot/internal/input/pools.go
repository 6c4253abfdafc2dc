package input

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/cli"
)

// AddClusterFlag defines --cluster and its completion.
func AddClusterFlag(cmd *cobra.Command, cluster *string, complete cobra.CompletionFunc) {
	cmd.Flags().StringVar(cluster, "cluster", "",
		"the Cluster whose pools are used, as NAME or NAMESPACE/NAME, when there are pools of several")
	cli.AddCompletion(cmd, "cluster", complete)
}

// Pools are the MachineConfigPools of one Cluster.
type Pools struct {
	Items []poolv1.MachineConfigPool
	// Cluster is empty when no pool names one. Its namespace is empty when no pool that names it has one.
	Cluster klog.ObjectRef
}

// Pools returns the MachineConfigPools of one Cluster. The value of --cluster may be empty when there are pools of one
// Cluster only.
//
// Files may leave the namespace to kubectl apply, and OpenShift's kinds have neither namespace nor Cluster: such
// objects count for every Cluster.
func (s *Source) Pools(ctx context.Context, namespace, cluster string) (*Pools, error) {
	var list poolv1.MachineConfigPoolList
	if err := s.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("list MachineConfigPools of namespace %s: %w", namespace, err)
	}
	all := listClusters(list.Items)
	chosen := all
	if cluster != "" {
		chosen = slices.DeleteFunc(slices.Clone(all), func(c klog.ObjectRef) bool { return cluster != c.Name && cluster != c.String() })
	}
	switch {
	case len(chosen) > 1:
		return nil, fmt.Errorf("%s pools of the clusters %s: choose one with --cluster", s.subject, joinNames(chosen))
	case len(chosen) == 0 && cluster != "" && len(all) > 0:
		return nil, fmt.Errorf("%s no pool of the cluster %q, but of %s: correct --cluster", s.subject, cluster, joinNames(all))
	case len(chosen) == 0 && cluster != "":
		return nil, fmt.Errorf("%s no pool that names a cluster: leave out --cluster %s", s.subject, cluster)
	case len(chosen) == 0:
		return &Pools{Items: list.Items}, nil
	}
	return &Pools{Cluster: chosen[0], Items: slices.DeleteFunc(list.Items, func(p poolv1.MachineConfigPool) bool {
		return isOtherNamespace(chosen[0], p.Namespace) || p.Spec.ClusterName != "" && p.Spec.ClusterName != chosen[0].Name
	})}, nil
}

// MachineConfigs returns the MachineConfigs that the pools of a Cluster may select: those of its namespace.
func (s *Source) MachineConfigs(ctx context.Context, cluster klog.ObjectRef) ([]poolv1.MachineConfig, error) {
	var list poolv1.MachineConfigList
	if err := s.List(ctx, &list, client.InNamespace(s.Namespace)); err != nil {
		return nil, fmt.Errorf("list MachineConfigs of namespace %s: %w", s.Namespace, err)
	}
	return slices.DeleteFunc(list.Items, func(c poolv1.MachineConfig) bool { return isOtherNamespace(cluster, c.Namespace) }), nil
}

// isOtherNamespace reports whether a namespace is not that of a Cluster.
func isOtherNamespace(cluster klog.ObjectRef, namespace string) bool {
	return namespace != "" && cluster.Namespace != "" && namespace != cluster.Namespace
}

// listClusters returns the Clusters that pools name, in order. One without a namespace is the one with, if there is
// one.
func listClusters(pools []poolv1.MachineConfigPool) []klog.ObjectRef {
	clusters := sets.New[klog.ObjectRef]()
	for _, p := range pools {
		if p.Spec.ClusterName != "" {
			clusters.Insert(klog.KRef(p.Namespace, p.Spec.ClusterName))
		}
	}
	for c := range clusters {
		if c.Namespace != "" {
			clusters.Delete(klog.KRef("", c.Name))
		}
	}
	return slices.SortedFunc(maps.Keys(clusters), func(a, b klog.ObjectRef) int { return cmp.Compare(a.String(), b.String()) })
}

func joinNames(clusters []klog.ObjectRef) string {
	names := make([]string, len(clusters))
	for i, c := range clusters {
		names[i] = c.String()
	}
	return strings.Join(names, " and ")
}
