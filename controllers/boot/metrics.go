package boot

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// outcomePrepared is the outcome of a boot that succeeded; every other outcome is the reason of the condition BootPrepared.
const outcomePrepared = "prepared"

var (
	bootsTotal = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "poolboot_boots_total",
		Help: "Tries to prepare a boot, by outcome: prepared, or the reason of the condition BootPrepared.",
	}, []string{"outcome"})

	prepareSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "poolboot_boot_prepare_seconds",
		Help:    "Seconds from a host's request for its configuration until the boot was prepared.",
		Buckets: []float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300},
	})
)

func init() {
	metrics.Registry.MustRegister(bootsTotal, prepareSeconds)
}
