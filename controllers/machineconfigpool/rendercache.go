package machineconfigpool

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/metrics"
)

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
	predictions   map[[2]string]update.Effect
	predictedWith string
	// stuckSince is since when no host is updated, while others wait and some could not be updated, in a pool with
	// failure domains. It is zero otherwise.
	stuckSince time.Time
	// smallerSince is since when the pool has fewer Machines than its capacity. It is zero otherwise.
	smallerSince time.Time
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
