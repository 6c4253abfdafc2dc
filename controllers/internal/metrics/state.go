package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/outlook"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// cacheTimeout is how long a scrape waits for a cache that is not synced yet.
const cacheTimeout = 2 * time.Second

var (
	bootsDesc = prometheus.NewDesc("poolboot_boots",
		"PoolbootConfigs by the current stage of their boot.", []string{"cluster", "pool", "stage"}, nil)
	nodesDesc = prometheus.NewDesc("poolboot_nodes",
		"Nodes of PoolbootConfigs by state: Ready, the reason of the condition NodeInPool, or Updating if they are not Ready because of an update of their host.",
		[]string{"cluster", "pool", "state"}, nil)
	hostsDesc = prometheus.NewDesc("poolboot_hosts",
		"Hosts that have joined, by the state of their update: the reason of the condition Updated.", []string{"cluster", "pool", "state"}, nil)
	blockedDesc = prometheus.NewDesc("poolboot_boots_blocked",
		"PoolbootConfigs whose host or Node needs an administrator to act, by the reason of the condition that describes what to do.",
		[]string{"cluster", "pool", "reason"}, nil)
	oldestDesc = prometheus.NewDesc("poolboot_boots_oldest_seconds",
		"Seconds since the oldest boot in a stage entered it; 0 if there is none.", []string{"stage"}, nil)
	degradedDesc = prometheus.NewDesc("poolboot_pools_degraded",
		"MachineConfigPools that are degraded, by the condition that is True, RenderDegraded or NodeDegraded, and its reason.",
		[]string{"cluster", "pool", "condition", "reason"}, nil)
	heldDesc = prometheus.NewDesc("poolboot_rollouts_held",
		"MachineConfigPools by the reason of the condition Updated or UpdateGatesOpen for which no running host begins an update.",
		[]string{"cluster", "pool", "reason"}, nil)
)

// heldReasons are the reasons of conditions of a pool in which no host begins an update until something else changes.
var heldReasons = sets.New(poolv1.ApprovalPendingReason, poolv1.CanaryPendingReason, poolv1.ClusterLimitReason, poolv1.EarlierPoolsPendingReason, poolv1.GateClosedReason, poolv1.GateUnreadableReason, poolv1.RolloutBlockedReason, poolv1.RolloutPausedReason, poolv1.RolloutStoppedReason)

// updatingState is the state of a Node that is not Ready because of an update of its host.
const updatingState = "Updating"

// StateCollector collects metrics about the current state of PoolbootConfigs and pools. It counts the objects in the
// manager's cache at each scrape. Only the leader exposes these metrics: every other manager would count the same
// objects.
type StateCollector struct {
	// Cache reads PoolbootConfigs and MachineConfigPools from the manager's cache.
	Cache client.Reader
	// Elected is closed when the manager becomes the leader.
	Elected <-chan struct{}
	// WatchFilterValue is the value of the label cluster.x-k8s.io/watch-filter that objects must have; empty means all.
	WatchFilterValue string
	// Clock returns the current time. Nil means time.Now.
	Clock func() time.Time
}

// Describe implements prometheus.Collector.
func (c *StateCollector) Describe(descs chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{bootsDesc, nodesDesc, hostsDesc, blockedDesc, oldestDesc, degradedDesc, heldDesc} {
		descs <- desc
	}
}

// Collect implements prometheus.Collector. It sends no metrics while the cache is not synced.
func (c *StateCollector) Collect(metrics chan<- prometheus.Metric) {
	select {
	case <-c.Elected:
	default:
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), cacheTimeout)
	defer cancel()
	configs, pools := &bootstrapv1.PoolbootConfigList{}, &poolv1.MachineConfigPoolList{}
	for _, list := range []client.ObjectList{configs, pools} {
		if err := c.Cache.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return
		}
	}
	counts := seriesCounts{}
	oldest := c.countConfigs(configs.Items, deadlinesOf(pools.Items), counts)
	c.countPools(pools.Items, counts)
	for s, count := range counts {
		metrics <- prometheus.MustNewConstMetric(s.desc, prometheus.GaugeValue, float64(count), s.labelValues()...)
	}
	for stage, age := range oldest {
		metrics <- prometheus.MustNewConstMetric(oldestDesc, prometheus.GaugeValue, age.Seconds(), string(stage))
	}
}

// series identifies one series of a gauge. The condition is empty for metrics without the label condition.
type series struct {
	desc                            *prometheus.Desc
	cluster, pool, condition, value string
}

func (s series) labelValues() []string {
	if s.condition == "" {
		return []string{s.cluster, s.pool, s.value}
	}
	return []string{s.cluster, s.pool, s.condition, s.value}
}

// seriesCounts has the number of objects for each series.
type seriesCounts map[series]int

// poolKey identifies a pool by its Cluster and role.
type poolKey struct{ cluster, role string }

// deadlinesOf returns how long a stage of an update of a host can last in each pool.
func deadlinesOf(pools []poolv1.MachineConfigPool) map[poolKey]time.Duration {
	deadlines := map[poolKey]time.Duration{}
	for i := range pools {
		p := &pools[i]
		deadlines[poolKey{workload.ClusterOfPool(p).String(), p.Spec.PoolRole}] = rollout.StageDeadline(p)
	}
	return deadlines
}

// countConfigs counts PoolbootConfigs. For each temporary stage, it returns the age of the oldest boot in the stage.
func (c *StateCollector) countConfigs(configs []bootstrapv1.PoolbootConfig, deadlines map[poolKey]time.Duration, counts seriesCounts) map[record.Stage]time.Duration {
	now := time.Now()
	if c.Clock != nil {
		now = c.Clock()
	}
	oldest := map[record.Stage]time.Duration{record.StageDeleting: 0}
	for _, stage := range record.Stages() {
		oldest[stage] = 0
	}
	for i := range configs {
		config := &configs[i]
		if !c.isWatched(config) {
			continue
		}
		key := poolKey{clusterNameOf(config), config.Status.PoolRole}
		count := func(desc *prometheus.Desc, value string) {
			counts[series{desc: desc, cluster: key.cluster, pool: key.role, value: value}]++
		}
		stage, since := record.StageOf(config)
		count(bootsDesc, string(stage))
		if age, ok := oldest[stage]; ok {
			oldest[stage] = max(age, now.Sub(since))
		}
		if state := nodeStateOf(config, deadlines[key], now); state != "" {
			count(nodesDesc, state)
		}
		if updated := conditions.Get(config, bootstrapv1.UpdatedCondition); updated != nil {
			count(hostsDesc, updated.Reason)
		}
		if condition := outlook.FindNeedsPerson(config); condition != nil {
			count(blockedDesc, condition.Reason)
		}
	}
	return oldest
}

// countPools counts degraded pools, and those that begin no update. It omits the condition Degraded, which repeats the
// other two.
func (c *StateCollector) countPools(pools []poolv1.MachineConfigPool, counts seriesCounts) {
	for i := range pools {
		p := &pools[i]
		if !c.isWatched(p) {
			continue
		}
		for _, kind := range []string{poolv1.RenderDegradedCondition, poolv1.NodeDegradedCondition} {
			if condition := meta.FindStatusCondition(p.Status.Conditions, kind); condition != nil && condition.Status == metav1.ConditionTrue {
				counts[series{degradedDesc, workload.ClusterOfPool(p).String(), p.Spec.PoolRole, kind, condition.Reason}]++
			}
		}
		for _, kind := range []string{poolv1.UpdatedCondition, poolv1.UpdateGatesOpenCondition} {
			if condition := meta.FindStatusCondition(p.Status.Conditions, kind); condition != nil && condition.Status == metav1.ConditionFalse && heldReasons.Has(condition.Reason) {
				counts[series{desc: heldDesc, cluster: workload.ClusterOfPool(p).String(), pool: p.Spec.PoolRole, value: condition.Reason}] = 1 // both can have the reason
			}
		}
	}
}

func (c *StateCollector) isWatched(object client.Object) bool {
	return c.WatchFilterValue == "" || labels.HasWatchLabel(object, c.WatchFilterValue)
}

// nodeStateOf returns the state of the Node of a PoolbootConfig, and "" if no Node was pre-registered. deadline is how
// long a stage of an update can last.
func nodeStateOf(config *bootstrapv1.PoolbootConfig, deadline time.Duration, now time.Time) string {
	inPool := conditions.Get(config, bootstrapv1.NodeInPoolCondition)
	switch {
	case !record.HasNode(config) || inPool == nil:
		return ""
	case inPool.Status == metav1.ConditionTrue:
		return string(record.StageReady)
	case inPool.Reason == bootstrapv1.NodeNotReadyReason && rollout.IsInterrupted(config) && rollout.StageLeft(config, deadline, now) > 0:
		return updatingState
	}
	return inPool.Reason
}
