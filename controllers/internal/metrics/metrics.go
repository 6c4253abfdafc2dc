// Package metrics holds the manager's own metrics; docs/metrics.md describes them. No label takes more values than
// there are clusters, pools, stages and reasons. Controllers count here what happens; what is at the moment is read
// from the manager's cache when somebody asks.
package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
)

// done is the outcome of a stage that a boot has passed; every other outcome is a condition's reason.
const outcomeDone = "Done"

// Outcomes of a pre-registration.
const (
	NodeCreated = "Created" // the Node was made
	NodeKept    = "Kept"    // it stood already, made for the same PoolbootConfig
	NodeTaken   = "Taken"   // a Node of the name is somebody else's
)

// tokenReasons are the reasons of events about tokens.
var tokenReasons = []string{
	bootstrapv1.EventTokenRotated, bootstrapv1.TokenExpiredReason, bootstrapv1.EventTokenUsedFromSecondAddress, bootstrapv1.EventTokenAddressRefused,
}

// What a pool conflict is about.
const (
	ConflictMachine = "Machine"
	ConflictNode    = "Node"
)

var (
	boots = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "poolboot_boots_total",
		Help: "Boots that passed a stage (outcome Done), and times that one came to be held up in it (outcome: the reason of the condition that says why).",
	}, []string{"cluster", "pool", "stage", "outcome"})

	stageSeconds = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "poolboot_boot_stage_seconds",
		Help:    "Seconds that boots spent in each stage, counted when the boot is over.",
		Buckets: []float64{.1, .5, 1, 5, 15, 30, 60, 120, 300, 600, 900, 1200, 1800, 2700, 3600},
	}, []string{"stage"})

	prepareSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "poolboot_boot_prepare_seconds",
		Help:    "Seconds from a host's first request for its configuration until the boot was prepared.",
		Buckets: []float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300},
	})

	conflicts = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "poolboot_pool_conflicts_total",
		Help: "Times that the labels of a Machine or a Node came to be those of several custom pools.",
	}, []string{"cluster", "kind"})

	preRegistrations = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "poolboot_preregistrations_total",
		Help: "Nodes that were to be made before their kubelets come, by outcome: Created, Kept or Taken.",
	}, []string{"cluster", "pool", "outcome"})

	tokenEvents = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "poolboot_token_events_total",
		Help: "Events about the tokens of hosts, by the event's reason.",
	}, []string{"cluster", "reason"})
)

// startedFrom0 are the outcomes of a stage whose counters NewPool starts: those that are few and known. Any other
// reason that holds a boot up begins with its first boot; what is blocked at the moment, Now says.
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
	metrics.Registry.MustRegister(boots, stageSeconds, prepareSeconds, conflicts, preRegistrations, tokenEvents)
	for _, stage := range record.Stages() {
		stageSeconds.WithLabelValues(string(stage))
	}
}

// NewPool starts the counters of a pool and of its Cluster at 0. Prometheus' rate and increase do not see the first
// increment of a counter that begins with it. It changes no counter that exists.
func NewPoolCounters(p *poolv1.MachineConfigPool) PoolCounters {
	cluster := clusterNameOfPool(p)
	for _, start := range initialOutcomes {
		boots.WithLabelValues(cluster, p.Spec.PoolRole, string(start.stage), start.outcome)
	}
	for _, outcome := range []string{NodeCreated, NodeKept, NodeTaken} {
		preRegistrations.WithLabelValues(cluster, p.Spec.PoolRole, outcome)
	}
	for _, kind := range []string{ConflictMachine, ConflictNode} {
		conflicts.WithLabelValues(cluster, kind)
	}
	for _, reason := range tokenReasons {
		tokenEvents.WithLabelValues(cluster, reason)
	}
	return PoolCounters{cluster: cluster, role: p.Spec.PoolRole}
}

// Pool is a pool whose counters were started. The zero value is none.
type PoolCounters struct{ cluster, role string }

// End removes the counters of a pool that no longer exists. Without it, pools that are created and deleted would leave
// theirs for as long as the manager runs.
func (p PoolCounters) Delete() {
	of := prometheus.Labels{"cluster": p.cluster, "pool": p.role}
	boots.DeletePartialMatch(of)
	preRegistrations.DeletePartialMatch(of)
}

// clusterOfPool names a pool's cluster as clusterOf does.
func clusterNameOfPool(p *poolv1.MachineConfigPool) string {
	return p.Namespace + "/" + p.Spec.ClusterName
}

// clusterOf names a config's cluster as <namespace>/<name>.
func clusterNameOf(config *bootstrapv1.PoolbootConfig) string {
	return config.Namespace + "/" + record.ClusterName(config)
}

// Passed counts a boot that passed a stage.
func StagePassed(config *bootstrapv1.PoolbootConfig, stage record.Stage) {
	StageBlocked(config, stage, outcomeDone)
}

// HeldUp counts a boot that came to be held up in a stage, by the reason of the condition that says why. A retry is not
// counted again.
func StageBlocked(config *bootstrapv1.PoolbootConfig, stage record.Stage, reason string) {
	boots.WithLabelValues(clusterNameOf(config), config.Status.PoolRole, string(stage), reason).Inc()
}

// Prepared notes how long it took to prepare a boot, in seconds.
func BootPrepared(seconds float64) { prepareSeconds.Observe(max(0, seconds)) } // the request may have been noted by another clock

// Over notes the times of a boot that is over.
func BootCompleted(config *bootstrapv1.PoolbootConfig) {
	for stage, took := range record.StageDurations(config) {
		stageSeconds.WithLabelValues(string(stage)).Observe(took.Seconds())
	}
	StagePassed(config, record.StageJoining)
}

// Conflict counts labels that came to be those of several custom pools. The cluster is <namespace>/<name>.
func PoolConflict(cluster, kind string) { conflicts.WithLabelValues(cluster, kind).Inc() }

// ConflictOf counts a conflict about the Machine or the Node of a config.
func PoolConflictOfConfig(config *bootstrapv1.PoolbootConfig, kind string) {
	PoolConflict(clusterNameOf(config), kind)
}

// PreRegistered counts a Node that was to be made beforehand, in the pool of a role.
func PreRegistered(config *bootstrapv1.PoolbootConfig, role, outcome string) {
	preRegistrations.WithLabelValues(clusterNameOf(config), role, outcome).Inc()
}

// TokenEvent counts an event about the token of a config's host, by its reason.
func TokenEvent(config *bootstrapv1.PoolbootConfig, reason string) {
	tokenEvents.WithLabelValues(clusterNameOf(config), reason).Inc()
}
