package machineconfigpool

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
)

// deleteUnused deletes the rendered configs of the pool that nothing uses, except the RenderedHistory newest of them,
// and those of pools that no longer exist. It runs after all other writes: a crash before it leaves too many rendered
// configs, never too few. The cache shows which of them can be deleted, and the API server confirms it.
func (r *Reconciler) deleteUnused(ctx context.Context, s *scope) error {
	if s.problem != nil || !s.pool.Status.Configuration.IsDefined() {
		return nil // it is not known what the pool is going to need
	}
	cached, err := listPossibleUsers(ctx, r.Client, s)
	if err != nil {
		return err
	}
	inUse, known := cached.inUse(s)
	surplus := append(s.findSurplus(inUse, r.RenderedHistory), s.findOrphans(cached, inUse)...)
	if !known || len(surplus) == 0 {
		return nil
	}
	live, err := listPossibleUsers(ctx, r.APIReader, s)
	if err != nil {
		return err
	}
	booting, err := r.configsOfBootingHosts(ctx, s, live)
	if err != nil {
		return err
	}
	if inUse, known = live.inUse(s); !known {
		return nil
	}
	for _, config := range surplus {
		if inUse[config.Name] || booting[config.Name] {
			continue
		}
		if err := r.Client.Delete(ctx, config, client.Preconditions{UID: &config.UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting MachineConfig %s, which is no longer used: %w", client.ObjectKeyFromObject(config), err)
		}
		ctrl.LoggerFrom(ctx).V(2).Info("Deleted a rendered config that is no longer used", "MachineConfig", config.Name)
	}
	return nil
}

// findSurplus returns the pool's own rendered configs that are not in use, except the newest ones, which the history
// keeps.
func (s *scope) findSurplus(inUse map[string]bool, history int) []*poolv1.MachineConfig {
	var unused []*poolv1.MachineConfig
	for i := range s.configs {
		c := &s.configs[i]
		if s.owns(c) && c.Name != s.rendered.Name && !inUse[c.Name] {
			unused = append(unused, c)
		}
	}
	slices.SortFunc(unused, func(a, b *poolv1.MachineConfig) int { return pool.CompareAge(b, a) })
	return unused[min(history, len(unused)):]
}

// findOrphans returns the rendered configs of the Cluster that are not in use and whose pools no longer exist. The
// worker pool, from which all others inherit, deletes them.
func (s *scope) findOrphans(u *possibleUsers, inUse map[string]bool) []*poolv1.MachineConfig {
	if pool.IsCustom(s.pool.Spec.PoolRole) {
		return nil
	}
	exists := map[string]bool{"": true} // not rendered
	for i := range u.pools.Items {
		exists[u.pools.Items[i].Name] = true
	}
	var orphans []*poolv1.MachineConfig
	for i := range s.configs {
		c := &s.configs[i]
		if c.Labels[clusterv1.ClusterNameLabel] == s.cluster.Name && !exists[renderedFor(c)] && !inUse[c.Name] {
			orphans = append(orphans, c)
		}
	}
	return orphans
}

// renderedFor returns the name of the pool for which a rendered config was created, or "" for any other MachineConfig.
func renderedFor(c client.Object) string {
	name := c.GetLabels()[poolv1.RenderedForLabel]
	if hash, ok := strings.CutPrefix(c.GetName(), poolv1.RenderedNamePrefix+name+"-"); !ok || strings.Contains(hash, "-") {
		return ""
	}
	return name
}

// possibleUsers are all objects of a namespace that can refer to a rendered config.
type possibleUsers struct {
	pools    poolv1.MachineConfigPoolList
	machines bootstrapv1.PoolbootConfigList
}

func listPossibleUsers(ctx context.Context, reader client.Reader, s *scope) (*possibleUsers, error) {
	u, namespace := &possibleUsers{}, client.InNamespace(s.pool.Namespace)
	if err := reader.List(ctx, &u.pools, namespace, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("MachineConfigPools of namespace %s: %w", s.pool.Namespace, err)
	}
	if err := reader.List(ctx, &u.machines, namespace, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("PoolbootConfigs of namespace %s: %w", s.pool.Namespace, err)
	}
	return u, nil
}

// inUse returns the names of the rendered configs that pools hand out, or are to hand out, those that Machines run,
// which the annotations of their Nodes repeat, and those that running hosts are updated to. The names are not known if
// a Machine that has joined has none recorded, as just after clusterctl move: it can run any of them.
func (u *possibleUsers) inUse(s *scope) (names map[string]bool, known bool) {
	names = map[string]bool{s.pool.Status.Configuration.Name: true}
	for i := range u.pools.Items {
		names[u.pools.Items[i].Annotations[poolv1.PausedConfigurationAnnotation]] = true
		names[u.pools.Items[i].Spec.ConfigurationName] = true
		if c := u.pools.Items[i].Status.Configuration; c.IsDefined() {
			names[c.Name] = true
		}
	}
	for i := range u.machines.Items {
		c := &u.machines.Items[i]
		if record.LacksConfiguration(c) {
			return nil, false
		}
		names[c.Status.Boot.ServedConfiguration.Name], names[c.Status.Update.Desired.Name] = true, true
	}
	return names, true
}

// configsOfBootingHosts returns the names of the rendered configs that hosts can still be served: those in overlays,
// and those in inline data Secrets, which exist before they are recorded.
func (r *Reconciler) configsOfBootingHosts(ctx context.Context, s *scope, u *possibleUsers) (map[string]bool, error) {
	ours := map[string]bool{"": true} // inline Secrets have no such label
	for i := range u.machines.Items {
		ours[string(u.machines.Items[i].UID)] = true
	}
	names := map[string]bool{}
	for _, options := range [][]client.ListOption{
		{client.InNamespace(r.OverlayNamespace), client.HasLabels{bootstrapv1.OverlayLabel}},
		{client.InNamespace(s.pool.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: s.pool.Spec.ClusterName}},
	} {
		secrets := &metav1.PartialObjectMetadataList{}
		secrets.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
		if err := r.APIReader.List(ctx, secrets, options...); err != nil {
			return nil, fmt.Errorf("reading the Secrets of booting hosts: %w", err)
		}
		for i := range secrets.Items {
			if ours[secrets.Items[i].Labels[bootstrapv1.OverlayLabel]] {
				names[secrets.Items[i].Annotations[bootstrapv1.OverlayConfigurationAnnotation]] = true
			}
		}
	}
	return names, nil
}
