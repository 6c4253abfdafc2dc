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

// memory is what the last reconcile of a pool has computed, so a Machine that boots does not cause the pool to be
// rendered. It contains names and hashes, but no contents. No decision depends on it: a manager that has just started
// renders every pool once.
type memory struct {
	// inputs is the hash of what the pool was rendered from (see pool.InputsHash). The result is rendered, without its
	// spec, or err.
	inputs   string
	rendered *pool.Rendered
	err      error
	// fitting contains, by name, the versions of the rendered configs whose content was found to match their names.
	fitting map[string]version
	// counted identifies the pool in its counters.
	counted metrics.PoolCounters
}

// maxFitting limits how many earlier rendered configs of a pool are remembered. A pool hands out one at a time.
const maxFitting = 8

// version identifies one content of one object.
type version struct {
	uid             types.UID
	resourceVersion string
}

// remember returns the memory of a pool. Only the reconcile of the pool uses it, and there is one at a time.
func (r *Reconciler) remember(name types.NamespacedName) *memory {
	known, _ := r.memories.LoadOrStore(name, &memory{fitting: map[string]version{}})
	return known.(*memory)
}

// forget deletes the memory of a pool that no longer exists, and its counters.
func (r *Reconciler) forget(name types.NamespacedName) {
	if known, is := r.memories.LoadAndDelete(name); is {
		known.(*memory).counted.Delete()
	}
}

// render renders the pool of a scope, unless its input is unchanged. In that case, the result has no spec.
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

// renderAnew renders the pool of a scope, even if its input is unchanged.
func (s *scope) renderAnew() (*pool.Rendered, error) {
	defer func(start time.Time) { renderSeconds.Observe(time.Since(start).Seconds()) }(time.Now())
	return pool.Render(s.pool.Spec.PoolRole, s.pools, s.configs)
}

// fits reports whether the content of a rendered config matches its name.
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

// knows reports whether a rendered config with this name was created or found before.
func (m *memory) knows(name string) bool {
	_, knows := m.fitting[name]
	return knows
}
