package server

import (
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// Metrics are the metrics of the config server. Their names start with poolboot_config_server_.
type Metrics struct {
	requests      *prometheus.CounterVec   // requests_total by path (config, enrollment, rendered, health, unknown) and code
	seconds       *prometheus.HistogramVec // request_seconds by path: from the header of the request to the last byte of the answer
	waiting       prometheus.Gauge         // boots_waiting: hosts whose request is held
	waitSeconds   *prometheus.HistogramVec // boot_wait_seconds by result (served, timeout, gone, error): how long requests of hosts were held
	recordErrors  prometheus.Counter       // record_errors_total: failed writes of requests, addresses and answers to status
	renderedBytes prometheus.Gauge         // rendered_cached_bytes: size of the compressed rendered configs in memory
	connections   prometheus.Gauge         // connections: open connections
	dropped       prometheus.Counter       // connections_dropped_total: connections without a valid token that were closed to make room
	elsewhere     *prometheus.CounterVec   // other_addresses_total by result (allowed, refused): requests with a valid token from another address
	tooOld        *prometheus.CounterVec   // ignition_too_old_total by version: requests of hosts whose Ignition cannot read their configuration

	mu       sync.RWMutex
	outcomes map[outcome]observed
}

// NewMetrics creates the metrics and registers them.
func NewMetrics(registry prometheus.Registerer) (*Metrics, error) {
	const prefix = "poolboot_config_server_"
	m := &Metrics{
		outcomes: map[outcome]observed{},
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "requests_total", Help: "Requests by kind of path and status code.",
		}, []string{"path", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: prefix + "request_seconds", Help: "Seconds that requests took, waiting included, by kind of path.",
			Buckets: []float64{.001, .005, .025, .1, .5, 1, 2.5, 5, 10, 30, 120},
		}, []string{"path"}),
		waiting: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: prefix + "boots_waiting", Help: "Requests of hosts that wait for their overlay now.",
		}),
		waitSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: prefix + "boot_wait_seconds", Help: "Seconds that hosts waited for their overlay, by result.",
			Buckets: []float64{.01, .05, .1, .25, .5, 1, 2, 4, 6, 9},
		}, []string{"result"}),
		recordErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: prefix + "record_errors_total", Help: "Writes to the status of PoolbootConfigs that failed.",
		}),
		renderedBytes: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: prefix + "rendered_cached_bytes", Help: "Bytes of compressed rendered configs kept ready.",
		}),
		connections: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: prefix + "connections", Help: "Connections that are open now.",
		}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: prefix + "connections_dropped_total", Help: "Connections that had shown no good token and were closed to make room for others.",
		}),
		elsewhere: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "other_addresses_total",
			Help: "Requests with a live token from another address than its first (allowed), or than those that it is bound to (refused).",
		}, []string{"result"}),
		tooOld: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "ignition_too_old_total", Help: "Hosts told that their Ignition can't read what they are to boot with, by the version that it reads.",
		}, []string{"version"}),
	}
	for _, c := range []prometheus.Collector{m.requests, m.seconds, m.waiting, m.waitSeconds, m.recordErrors, m.renderedBytes,
		m.connections, m.dropped, m.elsewhere, m.tooOld} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	m.startFrom0()
	return m, nil
}

// Results of holding a request, as in metrics.
const (
	waitServed  = "served"
	waitTimeout = "timeout"
	waitGone    = "gone"
	waitError   = "error"
)

// answersTo lists the status codes of the answers to each kind of path.
var answersTo = map[string][]int{
	kindConfig: {http.StatusOK, http.StatusUnauthorized, http.StatusMethodNotAllowed, http.StatusNotAcceptable, http.StatusServiceUnavailable},
	kindEnrollment: {http.StatusOK, http.StatusUnauthorized, http.StatusForbidden, http.StatusMethodNotAllowed, http.StatusNotAcceptable,
		http.StatusServiceUnavailable},
	kindRendered: {http.StatusOK, http.StatusNotModified, http.StatusUnauthorized, http.StatusForbidden, http.StatusMethodNotAllowed,
		http.StatusNotAcceptable, http.StatusServiceUnavailable},
	kindHealth:  {http.StatusOK, http.StatusMethodNotAllowed, http.StatusServiceUnavailable},
	kindUnknown: {http.StatusNotFound},
}

// startFrom0 creates every series with the value 0. Otherwise, a series would start with its first increment, which
// rate and increase in Prometheus do not count.
func (m *Metrics) startFrom0() {
	for kind, codes := range answersTo {
		for _, code := range codes {
			m.of(outcome{kind, code})
		}
	}
	for _, result := range []string{waitServed, waitTimeout, waitGone, waitError} {
		m.waitSeconds.WithLabelValues(result)
	}
	for _, result := range []string{addressAllowed, addressRefused} {
		m.elsewhere.WithLabelValues(result)
	}
	for _, version := range ignition.VersionsWritten[:len(ignition.VersionsWritten)-1] {
		m.tooOld.WithLabelValues(version)
	}
}

// RenderedKept adds bytes to the size of the rendered configs in memory, or subtracts them if negative.
func (m *Metrics) RenderedKept(bytes int) { m.renderedBytes.Add(float64(bytes)) }

func (m *Metrics) observe(kind string, code int, took time.Duration) {
	of := m.of(outcome{kind, code})
	of.requests.Inc()
	of.seconds.Observe(took.Seconds())
}

// outcome is a kind of path and a status code.
type outcome struct {
	kind string
	code int
}

// observed has the metrics of an outcome.
type observed struct {
	requests prometheus.Counter
	seconds  prometheus.Observer
}

// of returns the metrics of an outcome. It caches them, because finding them by their labels takes longer than some
// answers.
func (m *Metrics) of(o outcome) observed {
	m.mu.RLock()
	known, ok := m.outcomes[o]
	m.mu.RUnlock()
	if ok {
		return known
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	known = observed{m.requests.WithLabelValues(o.kind, strconv.Itoa(o.code)), m.seconds.WithLabelValues(o.kind)}
	m.outcomes[o] = known
	return known
}

// answer records what a handler writes, for metrics and the access log.
type answer struct {
	http.ResponseWriter
	request *http.Request
	to      route
	config  types.NamespacedName // the host's PoolbootConfig, once known
	code    int
	bytes   int64
}

func (a *answer) WriteHeader(code int) {
	if a.code == 0 {
		a.code = code
	}
	a.ResponseWriter.WriteHeader(code)
}

func (a *answer) Write(p []byte) (int, error) {
	if a.code == 0 {
		a.code = http.StatusOK
	}
	n, err := a.ResponseWriter.Write(p)
	a.bytes += int64(n)
	return n, err
}

// Unwrap lets http.ResponseController reach the connection.
func (a *answer) Unwrap() http.ResponseWriter { return a.ResponseWriter }
