package machineconfigpool

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/metrics"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// ensureRendered creates the rendered MachineConfig if it does not exist, and reports whether it did. The content of an
// existing one must match its name, and is never changed. A failed write is a problem of the pool and also an error, so
// it is retried.
func (r *Reconciler) ensureRendered(ctx context.Context, s *scope) (created bool, err error) {
	if s.rendered == nil {
		return false, nil
	}
	exists, err := r.renderedExists(ctx, r.Client, s)
	if err == nil && !exists && s.cache.isVerified(s.rendered.Name) { // the client's cache can be older than a recent write
		exists, err = r.renderedExists(ctx, r.APIReader, s)
	}
	if err == nil && !exists {
		if created, err = r.createRendered(ctx, s); !created && err == nil {
			_, err = r.renderedExists(ctx, r.APIReader, s)
		}
	}
	if err != nil {
		s.problem, s.rendered = &problem{poolv1.RenderFailedReason, err.Error()}, nil
	}
	return created && err == nil, err
}

// renderedExists reports whether the rendered config of the pool exists. It returns an error if the content does not
// match the name.
func (r *Reconciler) renderedExists(ctx context.Context, reader client.Reader, s *scope) (bool, error) {
	key := client.ObjectKey{Namespace: s.pool.Namespace, Name: s.rendered.Name}
	config, err := workload.GetIfExists[poolv1.MachineConfig](ctx, reader, key, client.UnsafeDisableDeepCopy)
	switch {
	case err != nil:
		return false, fmt.Errorf("MachineConfig %s: %w", key, err)
	case config != nil && !s.cache.contentMatchesName(s.pool.Name, config):
		return false, fmt.Errorf("the content of MachineConfig %s does not match its name: delete it, and it is rendered again", key)
	}
	return config != nil, nil
}

// createRendered creates the rendered config. It returns false without an error if the config exists although the cache
// does not contain it. The Cluster is an owner besides the pool, so the garbage collector does not delete the config
// with the pool: Machines can still run it.
func (r *Reconciler) createRendered(ctx context.Context, s *scope) (bool, error) {
	if s.rendered.Spec.Config == nil { // the result in the cache has no spec
		rendered, err := s.renderPool()
		if err != nil {
			return false, err
		}
		s.rendered = rendered
	}
	config := &poolv1.MachineConfig{
		ObjectMeta: metav1.ObjectMeta{
			Name:      s.rendered.Name,
			Namespace: s.pool.Namespace,
			Labels:    map[string]string{poolv1.RenderedForLabel: s.pool.Name, clusterv1.ClusterNameLabel: s.cluster.Name},
		},
		Spec: s.rendered.Spec,
	}
	from, err := pool.RenderedFrom(s.pool.Spec.PoolRole, s.pools, s.configs)
	if err != nil {
		return false, err
	}
	if from != "" || len(s.rendered.Source) == 0 {
		config.Annotations = map[string]string{poolv1.RenderedFromAnnotation: from}
	}
	if err := controllerutil.SetControllerReference(s.pool, config, r.Client.Scheme()); err != nil {
		return false, err
	}
	config.OwnerReferences = util.EnsureOwnerRef(config.OwnerReferences, ownerReference(s.cluster))
	if err := r.Client.Create(ctx, config); apierrors.IsAlreadyExists(err) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("MachineConfig %s cannot be created, which is retried: %w", client.ObjectKeyFromObject(config), err)
	}
	s.cache.contentMatchesName(s.pool.Name, config) // records that it is verified
	return true, nil
}

// checkPausedConfiguration sets the problem of a paused pool whose annotation names what cannot be handed out: the
// rendered config was deleted, or a user named a MachineConfig that the pool did not render. The config that the pool
// renders now always exists, so it is not read.
func (r *Reconciler) checkPausedConfiguration(ctx context.Context, s *scope) error {
	name := s.pool.Annotations[poolv1.PausedConfigurationAnnotation]
	if name == "" || s.rendered != nil && s.rendered.Name == name {
		return nil
	}
	cause, err := r.whyNotHandedOut(ctx, s, name)
	if err != nil || cause == "" {
		return err
	}
	s.pausedConfigurationInvalid = true
	if s.problem == nil {
		s.problem = &problem{poolv1.PausedConfigurationInvalidReason, fmt.Sprintf(
			"annotation %s: MachineConfig %s %srun %s --configuration NAME with one that %s lists, or %s",
			poolv1.PausedConfigurationAnnotation, name, cause, rollout.Command("pause", s.pool), rollout.Command("history", s.pool), rollout.Command("resume", s.pool))}
	}
	return nil
}

// whyNotHandedOut returns why the pool can't hand out a MachineConfig that a user named, up to the remedy, or "" if it
// can.
func (r *Reconciler) whyNotHandedOut(ctx context.Context, s *scope, name string) (cause string, err error) {
	key := client.ObjectKey{Namespace: s.pool.Namespace, Name: name}
	config, err := workload.GetIfExists[poolv1.MachineConfig](ctx, r.Client, key, client.UnsafeDisableDeepCopy)
	isName := len(validation.IsDNS1123Subdomain(name)) == 0 // otherwise the API server cannot be asked for it
	if err == nil && config == nil && isName {              // the cache can be stale, as just after clusterctl move
		config, err = workload.GetIfExists[poolv1.MachineConfig](ctx, r.APIReader, key)
	}
	switch {
	case err != nil:
		return "", fmt.Errorf("MachineConfig %s: %w", key, err)
	case config == nil:
		return "does not exist: apply it from a backup, ", nil
	case !s.owns(config):
		return "is not a rendered config of this pool: ", nil
	case !s.cache.contentMatchesName(s.pool.Name, config):
		return "has content that does not match its name: ", nil
	}
	return "", nil
}

var renderSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
	Name:    "poolboot_pool_render_seconds",
	Help:    "Seconds to render a pool, for each time that a pool was rendered.",
	Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1},
})

func init() { ctrlmetrics.Registry.MustRegister(renderSeconds) }

// renderCache has what the last reconcile of a pool has computed, so a Machine that boots does not cause the pool to be
// rendered. It contains names and hashes, but no contents. No decision depends on it: a manager that has just started
// renders every pool once.
type renderCache struct {
	// inputs is the hash of what the pool was rendered from (see pool.InputsHash). The result is rendered, without its
	// spec, or err.
	inputs   string
	rendered *pool.Rendered
	err      error
	// verified has, by name, the versions of the rendered configs whose content was found to match their names.
	verified map[string]version
	// predictions has the effects of changes from one rendered config to another. They were predicted with the pools
	// that predictedWith identifies.
	predictions   map[prediction]update.Effect
	predictedWith string
	// misfits are why the pool renders something else than it hands out.
	misfits misfits
	// stuckSince is since when no host is updated, while others wait and some could not be updated, in a pool with
	// failure domains. It is zero otherwise.
	stuckSince time.Time
	// smallerSince is since when the pool has fewer Machines than its capacity. It is zero otherwise.
	smallerSince time.Time
	// joined are the PoolbootConfigs of the hosts that had joined. A host that moves is found by it.
	joined sets.Set[string]
	// counters identify the counters of the pool.
	counters metrics.PoolCounters
}

// maxVerified limits how many earlier rendered configs of a pool are in the cache. A pool hands out one at a time.
const maxVerified = 8

// version identifies one content of one object.
type version struct {
	uid             types.UID
	resourceVersion string
}

// cacheOf returns the cache of a pool. Only the reconcile of the pool uses it, and there is one at a time.
func (r *Reconciler) cacheOf(name types.NamespacedName) *renderCache {
	cache, _ := r.caches.LoadOrStore(name, &renderCache{verified: map[string]version{}})
	return cache.(*renderCache)
}

// deleteCache deletes the cache of a pool that no longer exists, and its counters.
func (r *Reconciler) deleteCache(name types.NamespacedName) {
	if cache, ok := r.caches.LoadAndDelete(name); ok {
		cache.(*renderCache).counters.Delete()
	}
}

// render renders the pool of a scope, unless its input is unchanged. In that case, the result has no spec.
func (c *renderCache) render(s *scope) (*pool.Rendered, error) {
	inputs, err := pool.InputsHash(s.pool.Spec.PoolRole, s.pools, s.configs)
	if err != nil {
		return nil, err
	}
	if inputs == c.inputs {
		return c.rendered, c.err
	}
	rendered, err := s.renderPool()
	c.inputs, c.rendered, c.err = inputs, nil, err
	if err == nil {
		withoutSpec := *rendered
		withoutSpec.Spec, withoutSpec.Origins = poolv1.MachineConfigSpec{}, nil
		c.rendered = &withoutSpec
	}
	return rendered, err
}

// renderPool renders the pool of a scope, even if its input is unchanged.
func (s *scope) renderPool() (*pool.Rendered, error) {
	defer func(start time.Time) { renderSeconds.Observe(time.Since(start).Seconds()) }(time.Now())
	return pool.Render(s.pool.Spec.PoolRole, s.pools, s.configs)
}

// contentMatchesName reports whether the content of a rendered config matches its name.
func (c *renderCache) contentMatchesName(poolName string, config *poolv1.MachineConfig) bool {
	current := version{config.UID, config.ResourceVersion}
	if c.verified[config.Name] == current {
		return true
	}
	if name, err := pool.NameFor(poolName, config.Spec); err != nil || name != config.Name {
		return false
	}
	if len(c.verified) > maxVerified {
		clear(c.verified)
	}
	c.verified[config.Name] = current
	return true
}

// isVerified reports whether a rendered config with this name was created or found before.
func (c *renderCache) isVerified(name string) bool {
	_, ok := c.verified[name]
	return ok
}
