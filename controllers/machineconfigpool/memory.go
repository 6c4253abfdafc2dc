package machineconfigpool

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/metrics"
)

var renderSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
	Name:    "poolboot_pool_render_seconds",
	Help:    "Seconds that it took to render a pool, each time that one was rendered.",
	Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1},
})

func init() { ctrlmetrics.Registry.MustRegister(renderSeconds) }

// memory is what is known of a pool from its last reconcile, so that a Machine that boots costs no render. It holds
// names and hashes, no contents, and nothing depends on it: a manager that has just started renders every pool once.
type memory struct {
	// inputs are what the pool was rendered from, see pool.InputsHash. What came of it is rendered, without its spec,
	// or err.
	inputs   string
	rendered *pool.Rendered
	err      error
	// fitting are the versions of the rendered configs that were found to hold what their names say, by name.
	fitting map[string]version
	// counted is the pool as its counters name it.
	counted metrics.PoolCounters
}

// maxFitting bounds what is known of rendered configs that a pool had once. It hands out one at a time.
const maxFitting = 8

// version is one content of one object.
type version struct {
	uid             types.UID
	resourceVersion string
}

// remember returns what is known of a pool. Only the reconcile of the pool may use it: there is one at a time.
func (r *Reconciler) remember(name types.NamespacedName) *memory {
	known, _ := r.memories.LoadOrStore(name, &memory{fitting: map[string]version{}})
	return known.(*memory)
}

// forget drops what is known of a pool that no longer exists, and its counters.
func (r *Reconciler) forget(name types.NamespacedName) {
	if known, is := r.memories.LoadAndDelete(name); is {
		known.(*memory).counted.Delete()
	}
}

// render renders the pool of a scope, unless nothing has changed that it is rendered from. Then the spec is missing.
func (m *memory) render(s *scope) (*pool.Rendered, error) {
	inputs, err := pool.InputsHash(s.pool.Spec.PoolRole, s.pools, s.configs)
	if err != nil {
		return nil, err
	}
	if inputs == m.inputs {
		return m.rendered, m.err
	}
	rendered, err := s.renderAnew()
	m.inputs, m.rendered, m.err = inputs, nil, err
	if err == nil {
		slim := *rendered
		slim.Spec, slim.Origins = poolv1.MachineConfigSpec{}, nil
		m.rendered = &slim
	}
	return rendered, err
}

// renderAnew renders the pool of a scope in any case.
func (s *scope) renderAnew() (*pool.Rendered, error) {
	defer func(start time.Time) { renderSeconds.Observe(time.Since(start).Seconds()) }(time.Now())
	return pool.Render(s.pool.Spec.PoolRole, s.pools, s.configs)
}

// fits says whether a rendered config of a pool holds what its name says.
func (m *memory) fits(poolName string, config *poolv1.MachineConfig) bool {
	is := version{config.UID, config.ResourceVersion}
	if m.fitting[config.Name] == is {
		return true
	}
	fitting, err := pool.NameFor(poolName, config.Spec)
	if err != nil || fitting != config.Name {
		return false
	}
	if len(m.fitting) > maxFitting {
		clear(m.fitting)
	}
	m.fitting[config.Name] = is
	return true
}

// knows says whether a rendered config of this name was made or found.
func (m *memory) knows(name string) bool {
	_, knows := m.fitting[name]
	return knows
}
