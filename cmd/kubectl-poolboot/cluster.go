package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

// offerCluster defines --cluster.
func offerCluster(cmd *cobra.Command, wanted *string) {
	cmd.Flags().StringVar(wanted, "cluster", "", "the cluster whose pools are meant, as NAME or NAMESPACE/NAME, when the files hold pools of several")
}

// ofCluster leaves the pools of one cluster and the MachineConfigs that they may select: those of its namespace. wanted
// may be empty when there is only one cluster.
//
// Files may leave the namespace to kubectl apply, and OpenShift's kinds have neither namespace nor cluster: what an
// object does not say fits every cluster.
func (o *objects) ofCluster(wanted string) error {
	hold := cmp.Or(o.where, "the files hold")
	clusters := o.clusters()
	chosen := clusters
	if wanted != "" {
		chosen = slices.DeleteFunc(slices.Clone(clusters), func(c cluster) bool { return wanted != c.name && wanted != c.String() })
	}
	switch {
	case len(chosen) > 1:
		return fmt.Errorf("%s pools of the clusters %s: choose one with --cluster", hold, list(chosen))
	case len(chosen) == 0 && wanted != "" && len(clusters) > 0:
		return fmt.Errorf("%s no pool of the cluster %q, but of %s: correct --cluster", hold, wanted, list(clusters))
	case len(chosen) == 0 && wanted != "":
		return fmt.Errorf("%s no pool that names a cluster: leave out --cluster %s", hold, wanted)
	case len(chosen) == 0:
		return nil
	}
	the := chosen[0]
	elsewhere := func(namespace string) bool {
		return namespace != "" && the.namespace != "" && namespace != the.namespace
	}
	o.pools = slices.DeleteFunc(o.pools, func(p poolv1.MachineConfigPool) bool {
		return elsewhere(p.Namespace) || p.Spec.ClusterName != "" && p.Spec.ClusterName != the.name
	})
	o.configs = slices.DeleteFunc(o.configs, func(c poolv1.MachineConfig) bool { return elsewhere(c.Namespace) })
	return nil
}

// inFiles says of a pool that was looked for in files that these do not hold it, and how to get it there.
func inFiles(err error) error {
	missing := (*pool.NotFoundError)(nil)
	if !errors.As(err, &missing) {
		return err
	}
	return fmt.Errorf("the files hold no MachineConfigPool of role %q: correct the role, or name a file with the pool too; "+
		"kubectl get pbpool,pbmconf -o yaml prints those of a cluster", missing.Role)
}

// cluster is a cluster that a pool names; the namespace may be empty.
type cluster struct{ namespace, name string }

func (c cluster) String() string {
	if c.namespace == "" {
		return c.name
	}
	return c.namespace + "/" + c.name
}

// clusters are the clusters that the pools name, in order. One without a namespace is the one with, if there is one.
func (o *objects) clusters() []cluster {
	named, bare := map[cluster]bool{}, map[string]bool{}
	for _, p := range o.pools {
		switch c := (cluster{namespace: p.Namespace, name: p.Spec.ClusterName}); {
		case c.name == "":
		case c.namespace == "":
			bare[c.name] = true
		default:
			named[c] = true
		}
	}
	for c := range named {
		delete(bare, c.name)
	}
	for name := range bare {
		named[cluster{name: name}] = true
	}
	return slices.SortedFunc(maps.Keys(named), func(a, b cluster) int { return strings.Compare(a.String(), b.String()) })
}

func list(clusters []cluster) string {
	names := make([]string, len(clusters))
	for i, c := range clusters {
		names[i] = c.String()
	}
	return strings.Join(names, " and ")
}
