// Package metrics defines the manager's own metrics; docs/metrics.md describes them. Label values are clusters, pools,
// stages and reasons only, so the number of series is bounded. Controllers count events with the functions of this
// package. StateCollector counts the current state of objects at each scrape.
package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// outcomeDone is the outcome of a completed stage. Every other outcome is the reason of a condition.
const outcomeDone = "Done"

// Outcomes of a pre-registration.
const (
	NodeCreated = "Created" // Poolboot created the Node
	NodeKept    = "Kept"    // the Node was already pre-registered for the same PoolbootConfig
	NodeTaken   = "Taken"   // the name belongs to a Node that was not created for this PoolbootConfig
)

// tokenReasons are the reasons of events about tokens.
var tokenReasons = []string{
	bootstrapv1.EventTokenRotated, bootstrapv1.TokenExpiredReason, bootstrapv1.EventTokenUsedFromSecondAddress, bootstrapv1.EventTokenAddressRefused,
}

// Kinds of objects with a pool conflict.
const (
	ConflictMachine = "Machine"
	ConflictNode    = "Node"
)

var (
	boots = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "poolboot_boots_total",
		Help: "Boots that completed a stage (outcome Done), and boots that were blocked in it (outcome is the reason of the condition). A retry does not count again.",
	}, []string{"cluster", "pool", "stage", "outcome"})

	stageSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "poolboot_boot_stage_seconds",
		Help:    "Seconds that boots spent in each stage, observed at the end of the boot.",
		Buckets: []float64{.1, .5, 1, 5, 15, 30, 60, 120, 300, 600, 900, 1200, 1800, 2700, 3600},
	}, []string{"stage"})

	prepareSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "poolboot_boot_prepare_seconds",
		Help:    "Seconds from the first request of a host until its boot was prepared, for each preparation.",
		Buckets: []float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300},
	})

	conflicts = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "poolboot_pool_conflicts_total",
		Help: "How often the labels of a Machine or a Node started to match several custom pools.",
	}, []string{"cluster", "kind"})

	preRegistrations = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "poolboot_preregistrations_total",
		Help: "Pre-registrations of Nodes by outcome: Created, Kept (the Node already existed) or Taken (the Node belongs to something else).",
	}, []string{"cluster", "pool", "outcome"})

	tokenEvents = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "poolboot_token_events_total",
		Help: "Events about the tokens of hosts, by reason.",
	}, []string{"cluster", "reason"})

	updates = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "poolboot_updates_total",
		Help: "Updates of running hosts by outcome: Started, Done, Degraded (failed and undone) or Unreconcilable (not possible on a running host).",
	}, []string{"cluster", "pool", "outcome"})
)

var predictionDifferences = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "poolboot_prediction_differences_total",
	Help: "Updates of running hosts that did something else to the host than was predicted.",
}, []string{"cluster", "pool"})

// PredictionDiffers counts an update that did something else to the host than was predicted.
func PredictionDiffers(config *bootstrapv1.PoolbootConfig) {
	predictionDifferences.WithLabelValues(clusterNameOf(config), config.Status.PoolRole).Inc()
}

var rolloutSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
	Name:    "poolboot_rollout_seconds",
	Help:    "Seconds from the update of the first running host of a pool until no host of the pool had to change any more.",
	Buckets: []float64{10, 60, 300, 900, 1800, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 24 * 3600, 72 * 3600, 168 * 3600},
})

// Outcomes of updates. Others are the reasons UpdateDegradedReason and UpdateUnreconcilableReason.
const (
	UpdateBegun = "Started" // a host was told to have another revision
	UpdateDone  = "Done"    // the host has it, and its Node is Ready
)

// initialOutcomes are the outcomes whose counters NewPoolCounters sets to 0. There are too many other reasons: their
// counters start with the first boot that has the reason. StateCollector counts the boots that are blocked now.
var initialOutcomes = []struct {
	stage   record.Stage
	outcome string
}{
	{record.StagePending, outcomeDone},
	{record.StagePreparing, outcomeDone},
	{record.StageJoining, outcomeDone},
	{record.StageJoining, bootstrapv1.JoinCredentialExpiredReason},
}

func init() {
	metrics.Registry.MustRegister(boots, stageSeconds, prepareSeconds, conflicts, preRegistrations, tokenEvents, updates, rolloutSeconds, predictionDifferences)
	for _, stage := range record.Stages() {
		stageSeconds.WithLabelValues(string(stage))
	}
}

// NewPoolCounters creates the counters of a pool and of its Cluster with the value 0. Otherwise the functions rate and
// increase of Prometheus would not include the first increment. Counters that exist do not change.
func NewPoolCounters(p *poolv1.MachineConfigPool) PoolCounters {
	cluster := workload.ClusterOfPool(p).String()
	for _, initial := range initialOutcomes {
		boots.WithLabelValues(cluster, p.Spec.PoolRole, string(initial.stage), initial.outcome)
	}
	for _, outcome := range []string{NodeCreated, NodeKept, NodeTaken} {
		preRegistrations.WithLabelValues(cluster, p.Spec.PoolRole, outcome)
	}
	for _, outcome := range []string{UpdateBegun, UpdateDone, bootstrapv1.UpdateDegradedReason, bootstrapv1.UpdateUnreconcilableReason} {
		updates.WithLabelValues(cluster, p.Spec.PoolRole, outcome)
	}
	predictionDifferences.WithLabelValues(cluster, p.Spec.PoolRole)
	for _, kind := range []string{ConflictMachine, ConflictNode} {
		conflicts.WithLabelValues(cluster, kind)
	}
	for _, reason := range tokenReasons {
		tokenEvents.WithLabelValues(cluster, reason)
	}
	return PoolCounters{cluster: cluster, role: p.Spec.PoolRole}
}

// PoolCounters identifies the counters of a pool. Delete on the zero value does nothing.
type PoolCounters struct{ cluster, role string }

// Delete deletes the counters of a pool that no longer exists. Otherwise they would stay until the manager stops.
func (p PoolCounters) Delete() {
	pool := prometheus.Labels{"cluster": p.cluster, "pool": p.role}
	boots.DeletePartialMatch(pool)
	preRegistrations.DeletePartialMatch(pool)
	updates.DeletePartialMatch(pool)
	predictionDifferences.DeletePartialMatch(pool)
}

// clusterNameOf returns the label value for the Cluster of a PoolbootConfig: <namespace>/<name>.
func clusterNameOf(config *bootstrapv1.PoolbootConfig) string {
	return record.ClusterKey(config).String()
}

// StagePassed counts a boot that completed a stage.
func StagePassed(config *bootstrapv1.PoolbootConfig, stage record.Stage) {
	StageBlocked(config, stage, outcomeDone)
}

// StageBlocked counts a boot that is newly blocked in a stage, by the reason of the condition. Callers must not count a
// retry.
func StageBlocked(config *bootstrapv1.PoolbootConfig, stage record.Stage, reason string) {
	boots.WithLabelValues(clusterNameOf(config), config.Status.PoolRole, string(stage), reason).Inc()
}

// BootPrepared observes how many seconds the preparation of a boot took. The value can be negative, because another
// clock may have recorded the request; then it counts as 0.
func BootPrepared(seconds float64) { prepareSeconds.Observe(max(0, seconds)) }

// BootCompleted observes the duration of each stage of a boot that has completed.
func BootCompleted(config *bootstrapv1.PoolbootConfig) {
	for stage, duration := range record.StageDurations(config) {
		stageSeconds.WithLabelValues(string(stage)).Observe(duration.Seconds())
	}
	StagePassed(config, record.StageJoining)
}

// PoolConflict counts an object whose labels started to match several custom pools. The cluster is <namespace>/<name>.
func PoolConflict(cluster, kind string) { conflicts.WithLabelValues(cluster, kind).Inc() }

// PoolConflictOfConfig counts a pool conflict of the Machine or the Node of a PoolbootConfig.
func PoolConflictOfConfig(config *bootstrapv1.PoolbootConfig, kind string) {
	PoolConflict(clusterNameOf(config), kind)
}

// PreRegistered counts a pre-registration of a Node in the pool with a role.
func PreRegistered(config *bootstrapv1.PoolbootConfig, role, outcome string) {
	preRegistrations.WithLabelValues(clusterNameOf(config), role, outcome).Inc()
}

// TokenEvent counts an event about the token of the host of a PoolbootConfig.
func TokenEvent(config *bootstrapv1.PoolbootConfig, reason string) {
	tokenEvents.WithLabelValues(clusterNameOf(config), reason).Inc()
}

// UpdateStarted counts a host that was told to have another revision.
func UpdateStarted(config *bootstrapv1.PoolbootConfig) { UpdateEnded(config, UpdateBegun) }

// UpdateEnded counts an update that has ended with an outcome: UpdateDone or the reason of the condition Updated.
func UpdateEnded(config *bootstrapv1.PoolbootConfig, outcome string) {
	updates.WithLabelValues(clusterNameOf(config), config.Status.PoolRole, outcome).Inc()
}

// RolloutCompleted observes how long the rollout of a pool took.
func RolloutCompleted(duration time.Duration) { rolloutSeconds.Observe(max(0, duration.Seconds())) }
