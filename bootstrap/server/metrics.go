package server

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"k8s.io/apimachinery/pkg/types"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
)

// Metrics are the metrics of the config server. Their names start with poolboot_config_server_.
type Metrics struct {
	requests      *prometheus.CounterVec
	seconds       *prometheus.HistogramVec
	waiting       prometheus.Gauge
	waitSeconds   *prometheus.HistogramVec
	recordErrors  prometheus.Counter
	renderedBytes prometheus.Gauge
	connections   prometheus.Gauge
	dropped       prometheus.Counter
	otherAddress  *prometheus.CounterVec
	tooOld        *prometheus.CounterVec
}

// NewMetrics creates the metrics and registers them. It panics if the registry already has metrics with these names.
func NewMetrics(registry prometheus.Registerer) *Metrics {
	const namespace = "poolboot_config_server"
	factory := promauto.With(registry)
	m := &Metrics{
		requests: factory.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "requests_total", Help: "Requests by kind of path and status code.",
		}, []string{"path", "code"}),
		seconds: factory.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Name: "request_seconds", Help: "Seconds from the header of a request to the end of its answer, by kind of path.",
			Buckets: []float64{.001, .005, .025, .1, .5, 1, 2.5, 5, 10, 30, 120},
		}, []string{"path"}),
		waiting: factory.NewGauge(prometheus.GaugeOpts{
			Namespace: namespace, Name: "boots_waiting", Help: "Requests of hosts that currently wait until their configuration is complete.",
		}),
		waitSeconds: factory.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: namespace, Name: "boot_wait_seconds",
			Help:    "Seconds that requests of hosts waited until their configuration was complete, by result.",
			Buckets: []float64{.01, .05, .1, .25, .5, 1, 2, 4, 6, 9},
		}, []string{"result"}),
		recordErrors: factory.NewCounter(prometheus.CounterOpts{
			Namespace: namespace, Name: "record_errors_total", Help: "Failed writes to the status of PoolbootConfigs and Enrollments.",
		}),
		renderedBytes: factory.NewGauge(prometheus.GaugeOpts{
			Namespace: namespace, Name: "rendered_cached_bytes", Help: "Bytes of compressed rendered configs in memory.",
		}),
		connections: factory.NewGauge(prometheus.GaugeOpts{
			Namespace: namespace, Name: "connections", Help: "Open connections.",
		}),
		dropped: factory.NewCounter(prometheus.CounterOpts{
			Namespace: namespace, Name: "connections_dropped_total",
			Help: "Connections that were closed because their address had half of all connections.",
		}),
		otherAddress: factory.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "other_addresses_total",
			Help: "Requests with a valid token from another address than its first one (allowed), or from an address to which it is not bound (refused).",
		}, []string{"result"}),
		tooOld: factory.NewCounterVec(prometheus.CounterOpts{
			Namespace: namespace, Name: "ignition_too_old_total",
			Help: "Requests of hosts whose Ignition cannot read their configuration, by the spec version that it reads.",
		}, []string{"version"}),
	}
	m.initialize()
	return m
}

// Results of holding a request, as in metrics.
const (
	waitServed   = "served"
	waitTimeout  = "timeout"
	waitCanceled = "gone"
	waitError    = "error"
)

// answerCodes lists the status codes of the answers to each kind of path.
var answerCodes = map[string][]int{
	kindConfig: {http.StatusOK, http.StatusUnauthorized, http.StatusMethodNotAllowed, http.StatusNotAcceptable, http.StatusServiceUnavailable},
	kindEnrollment: {http.StatusOK, http.StatusUnauthorized, http.StatusForbidden, http.StatusMethodNotAllowed, http.StatusNotAcceptable,
		http.StatusServiceUnavailable},
	kindRendered: {http.StatusOK, http.StatusNotModified, http.StatusUnauthorized, http.StatusForbidden, http.StatusMethodNotAllowed,
		http.StatusNotAcceptable, http.StatusServiceUnavailable},
	kindUpdate: {http.StatusOK, http.StatusNoContent, http.StatusUnauthorized, http.StatusForbidden, http.StatusMethodNotAllowed,
		http.StatusRequestEntityTooLarge, http.StatusServiceUnavailable},
	kindAgent:   {http.StatusOK, http.StatusNotModified, http.StatusMethodNotAllowed, http.StatusGone, http.StatusServiceUnavailable},
	kindHealth:  {http.StatusOK, http.StatusMethodNotAllowed, http.StatusServiceUnavailable},
	kindUnknown: {http.StatusNotFound},
}

// initialize creates every series with the value 0. Otherwise, a series would start with its first increment, which
// rate and increase in Prometheus do not count.
func (m *Metrics) initialize() {
	for kind, codes := range answerCodes {
		for _, code := range codes {
			m.requests.WithLabelValues(kind, strconv.Itoa(code))
		}
		m.seconds.WithLabelValues(kind)
	}
	for _, result := range []string{waitServed, waitTimeout, waitCanceled, waitError} {
		m.waitSeconds.WithLabelValues(result)
	}
	for _, result := range []string{addressAllowed, addressRefused} {
		m.otherAddress.WithLabelValues(result)
	}
	for _, version := range ignition.VersionsWritten[:len(ignition.VersionsWritten)-1] {
		m.tooOld.WithLabelValues(version)
	}
}

// AddRenderedBytes adds bytes to the size of the rendered configs in memory, or subtracts them if negative.
func (m *Metrics) AddRenderedBytes(bytes int) { m.renderedBytes.Add(float64(bytes)) }

func (m *Metrics) observe(kind string, code int, took time.Duration) {
	m.requests.WithLabelValues(kind, strconv.Itoa(code)).Inc()
	m.seconds.WithLabelValues(kind).Observe(took.Seconds())
}

// answer records what a handler writes, for metrics and the access log.
type answer struct {
	http.ResponseWriter
	request *http.Request
	route   route
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
