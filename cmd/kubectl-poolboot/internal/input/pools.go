package input

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// AddClusterFlag defines --cluster.
func AddClusterFlag(cmd *cobra.Command, cluster *string) {
	cmd.Flags().StringVar(cluster, "cluster", "", "the Cluster whose pools are used, as NAME or NAMESPACE/NAME, when there are pools of several")
}

// ClusterName is the Cluster that pools name. The namespace is empty when none of them has one.
type ClusterName struct{ Namespace, Name string }

func (c ClusterName) String() string {
	if c.Namespace == "" {
		return c.Name
	}
	return c.Namespace + "/" + c.Name
}

// Pools are the MachineConfigPools of one Cluster.
type Pools struct {
	Items []poolv1.MachineConfigPool
	// Cluster is empty when no pool names one.
	Cluster ClusterName
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
	known := clustersOf(list.Items)
	chosen := known
	if cluster != "" {
		chosen = slices.DeleteFunc(slices.Clone(known), func(c ClusterName) bool { return cluster != c.Name && cluster != c.String() })
	}
	switch {
	case len(chosen) > 1:
		return nil, fmt.Errorf("%s pools of the clusters %s: choose one with --cluster", s.holder, join(chosen))
	case len(chosen) == 0 && cluster != "" && len(known) > 0:
		return nil, fmt.Errorf("%s no pool of the cluster %q, but of %s: correct --cluster", s.holder, cluster, join(known))
	case len(chosen) == 0 && cluster != "":
		return nil, fmt.Errorf("%s no pool that names a cluster: leave out --cluster %s", s.holder, cluster)
	case len(chosen) == 0:
		return &Pools{Items: list.Items}, nil
	}
	pools := &Pools{Cluster: chosen[0], Items: slices.DeleteFunc(list.Items, func(p poolv1.MachineConfigPool) bool {
		return isElsewhere(chosen[0], p.Namespace) || p.Spec.ClusterName != "" && p.Spec.ClusterName != chosen[0].Name
	})}
	return pools, nil
}

// MachineConfigs returns the MachineConfigs that the pools of a Cluster may select: those of its namespace.
func (s *Source) MachineConfigs(ctx context.Context, cluster ClusterName) ([]poolv1.MachineConfig, error) {
	var list poolv1.MachineConfigList
	if err := s.List(ctx, &list, client.InNamespace(s.Namespace)); err != nil {
		return nil, fmt.Errorf("list MachineConfigs of namespace %s: %w", s.Namespace, err)
	}
	return slices.DeleteFunc(list.Items, func(c poolv1.MachineConfig) bool { return isElsewhere(cluster, c.Namespace) }), nil
}

// isElsewhere reports whether a namespace is not that of a Cluster.
func isElsewhere(cluster ClusterName, namespace string) bool {
	return namespace != "" && cluster.Namespace != "" && namespace != cluster.Namespace
}

// clustersOf returns the Clusters that pools name, in order. One without a namespace is the one with, if there is one.
func clustersOf(pools []poolv1.MachineConfigPool) []ClusterName {
	named, bare := map[ClusterName]bool{}, map[string]bool{}
	for _, p := range pools {
		switch c := (ClusterName{Namespace: p.Namespace, Name: p.Spec.ClusterName}); {
		case c.Name == "":
		case c.Namespace == "":
			bare[c.Name] = true
		default:
			named[c] = true
		}
	}
	for c := range named {
		delete(bare, c.Name)
	}
	for name := range bare {
		named[ClusterName{Name: name}] = true
	}
	return slices.SortedFunc(maps.Keys(named), func(a, b ClusterName) int { return cmp.Compare(a.String(), b.String()) })
}

func join(clusters []ClusterName) string {
	names := make([]string, len(clusters))
	for i, c := range clusters {
		names[i] = c.String()
	}
	return strings.Join(names, " and ")
}
