package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

// difference is what would change of what one pool renders.
type difference struct {
	pool poolv1.MachineConfigPool
	// before and after are the names of the rendered configs; before is empty for the first pool of a cluster.
	before, after string
	// isNew is true when there is no such pool yet: before is then what worker renders, where its Nodes would be now.
	isNew   bool
	changes []change
	// declared is what the pool declares otherwise beside its config.
	declared []declaredChange
	machines []bootstrapv1.PoolbootConfig
	// nodes are the existing Nodes that the change reaches.
	nodes []nodeOutlook
	// unread says why the Nodes could not be looked at; nil when they were, or need not be.
	unread error
}

// namespaced are the objects of one namespace.
type namespaced struct {
	pools   []poolv1.MachineConfigPool
	configs []poolv1.MachineConfig
}

// against compares what live pools render with what they would render with the objects in files, in every namespace
// that these are of. wanted, if not empty, is the one Cluster to look at. workload leads to the Nodes.
func (o *objects) against(ctx context.Context, live client.Reader, workload workloadOf, wanted string) (differences []difference, notes []string, err error) {
	inFiles := map[string]*namespaced{}
	of := func(namespace string) *namespaced {
		if inFiles[namespace] == nil {
			inFiles[namespace] = &namespaced{}
		}
		return inFiles[namespace]
	}
	for _, p := range o.pools {
		of(p.Namespace).pools = append(of(p.Namespace).pools, p)
	}
	for _, c := range o.configs {
		of(c.Namespace).configs = append(of(c.Namespace).configs, c)
	}
	hasWanted := wanted == ""
	for _, namespace := range slices.Sorted(maps.Keys(inFiles)) {
		before, machines, err := readLive(ctx, live, namespace)
		if err != nil {
			return nil, notes, err
		}
		after := before.with(*inFiles[namespace])
		for _, name := range after.clusters() {
			if wanted != "" && wanted != name && wanted != namespace+"/"+name {
				continue
			}
			hasWanted = true
			found, said, err := compareCluster(before.of(name), after.of(name))
			notes = append(notes, said...)
			if err != nil {
				return nil, notes, fmt.Errorf("the pools of Cluster %s/%s: %w", namespace, name, err)
			}
			for i := range found {
				found[i].machines = machinesOf(found[i].pool, machines)
			}
			lookAtNodes(ctx, workload, found, before.of(name), after.of(name), machinesOfCluster(name, machines))
			differences = append(differences, found...)
		}
	}
	if !hasWanted {
		return nil, notes, fmt.Errorf("no pool is of the Cluster %q, live or in the files: correct --cluster or --namespace", wanted)
	}
	return differences, notes, nil
}

// readLive returns what is stored in a namespace.
func readLive(ctx context.Context, live client.Reader, namespace string) (namespaced, []bootstrapv1.PoolbootConfig, error) {
	var pools poolv1.MachineConfigPoolList
	var configs poolv1.MachineConfigList
	var machines bootstrapv1.PoolbootConfigList
	for _, list := range []client.ObjectList{&pools, &configs, &machines} {
		if err := live.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return namespaced{}, nil, fmt.Errorf("reading what is live in the namespace %s: %w", namespace, err)
		}
	}
	return namespaced{pools: pools.Items, configs: configs.Items}, machines.Items, nil
}

// with returns the objects with others in the place of those of the same name.
func (n namespaced) with(others namespaced) namespaced {
	return namespaced{
		pools:   replaced(n.pools, others.pools, func(p poolv1.MachineConfigPool) string { return p.Name }),
		configs: replaced(n.configs, others.configs, func(c poolv1.MachineConfig) string { return c.Name }),
	}
}

func replaced[T any](objects, others []T, name func(T) string) []T {
	kept := slices.DeleteFunc(slices.Clone(objects), func(object T) bool {
		return slices.ContainsFunc(others, func(other T) bool { return name(other) == name(object) })
	})
	return append(kept, others...)
}

// of returns the objects with the pools of one Cluster only.
func (n namespaced) of(cluster string) namespaced {
	n.pools = slices.DeleteFunc(slices.Clone(n.pools), func(p poolv1.MachineConfigPool) bool { return p.Spec.ClusterName != cluster })
	return n
}

// clusters are the names of the Clusters that pools are of, in order.
func (n namespaced) clusters() []string {
	names := map[string]bool{}
	for _, p := range n.pools {
		names[p.Spec.ClusterName] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// compareCluster compares what the pools of one Cluster render, in the order of the pools' names.
func compareCluster(before, after namespaced) (differences []difference, notes []string, err error) {
	slices.SortFunc(after.pools, func(a, b poolv1.MachineConfigPool) int { return strings.Compare(a.Name, b.Name) })
	for _, p := range after.pools {
		to, err := pool.Render(p.Spec.PoolRole, after.pools, after.configs)
		if err != nil {
			return nil, notes, err
		}
		from, isNew, err := before.rendered(p.Spec.PoolRole)
		if err != nil {
			notes = append(notes, fmt.Sprintf("MachineConfigPool %q can't be rendered as it is now (%v): what it rendered last is compared", p.Name, err))
		}
		was, _ := pool.OfRole(before.pools, p.Spec.PoolRole)
		declared, err := compareDeclared(was, p)
		if err != nil {
			return nil, notes, err
		}
		if from.Name == to.Name && len(declared) == 0 {
			continue
		}
		changes, err := compare(from.Spec, to.Spec)
		if err != nil {
			return nil, notes, fmt.Errorf("MachineConfigPool %q: %w", p.Name, err)
		}
		differences = append(differences, difference{pool: p, before: from.Name, after: to.Name, isNew: isNew, changes: changes, declared: declared})
	}
	return differences, notes, nil
}

// rendered is what the pool of a role renders. For a new pool it is what worker does. When it can't be rendered, the
// error says why, and what is returned is what it rendered last.
func (n namespaced) rendered(role string) (rendered *pool.Rendered, isNew bool, err error) {
	if _, err := pool.OfRole(n.pools, role); errors.As(err, new(*pool.NotFoundError)) {
		if role, isNew = poolv1.RoleWorker, true; len(n.pools) == 0 {
			return &pool.Rendered{}, isNew, nil
		}
	}
	rendered, err = pool.Render(role, n.pools, n.configs)
	if err == nil {
		return rendered, isNew, nil
	}
	p, notOne := pool.OfRole(n.pools, role)
	for _, c := range n.configs {
		if notOne == nil && p.Status.Configuration.IsDefined() && p.Status.Configuration.Name == c.Name {
			return &pool.Rendered{Name: c.Name, Spec: c.Spec}, isNew, err
		}
	}
	return &pool.Rendered{}, isNew, err
}

// machinesOfCluster are the PoolbootConfigs of one Cluster.
func machinesOfCluster(name string, all []bootstrapv1.PoolbootConfig) []bootstrapv1.PoolbootConfig {
	return slices.DeleteFunc(slices.Clone(all), func(c bootstrapv1.PoolbootConfig) bool { return c.Labels[clusterv1.ClusterNameLabel] != name })
}

// machinesOf are the PoolbootConfigs of the Machines that are recorded in a pool, in the order of their names.
func machinesOf(p poolv1.MachineConfigPool, all []bootstrapv1.PoolbootConfig) []bootstrapv1.PoolbootConfig {
	in := slices.DeleteFunc(slices.Clone(all), func(c bootstrapv1.PoolbootConfig) bool {
		return c.Labels[clusterv1.ClusterNameLabel] != p.Spec.ClusterName || c.Status.PoolRole != p.Spec.PoolRole
	})
	slices.SortFunc(in, func(a, b bootstrapv1.PoolbootConfig) int { return strings.Compare(a.Name, b.Name) })
	return in
}
