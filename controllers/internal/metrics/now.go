package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/outlook"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
)

// readPatience is how long a scrape waits for a cache that is not in sync yet.
const cacheTimeout = 2 * time.Second

var (
	bootsDesc = prometheus.NewDesc("poolboot_boots",
		"PoolbootConfigs by the stage that their boot is in.", []string{"cluster", "pool", "stage"}, nil)
	nodesDesc = prometheus.NewDesc("poolboot_nodes",
		"Nodes of PoolbootConfigs by state: Ready, or the reason of the condition NodeInPool.", []string{"cluster", "pool", "state"}, nil)
	blockedDesc = prometheus.NewDesc("poolboot_boots_blocked",
		"PoolbootConfigs whose host or Node waits for a person, by the reason of the condition that says what to do.",
		[]string{"cluster", "pool", "reason"}, nil)
	oldestDesc = prometheus.NewDesc("poolboot_boots_oldest_seconds",
		"Seconds that the boot that has been in a stage for the longest has been in it; 0 while none is.", []string{"stage"}, nil)
	degradedDesc = prometheus.NewDesc("poolboot_pools_degraded",
		"MachineConfigPools that are degraded, by the condition that is True, RenderDegraded or NodeDegraded, and its reason.",
		[]string{"cluster", "pool", "condition", "reason"}, nil)
)

// Now is what there is at the moment, counted at each scrape out of the manager's cache. Only the manager that leads
// exposes it: the others would count the same again.
type StateCollector struct {
	// Cache reads PoolbootConfigs and MachineConfigPools from the manager's cache.
	Cache client.Reader
	// Elected is closed when the manager leads.
	Elected <-chan struct{}
	// WatchFilterValue is the value of the label cluster.x-k8s.io/watch-filter that objects must have; empty means all.
	WatchFilterValue string
	// Clock tells the time; nil is the real one.
	Clock func() time.Time
}

// Describe sends what Collect may send.
func (n *StateCollector) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{bootsDesc, nodesDesc, blockedDesc, oldestDesc, degradedDesc} {
		to <- desc
	}
}

// Collect counts. Nothing is sent while the cache is not in sync.
func (n *StateCollector) Collect(to chan<- prometheus.Metric) {
	select {
	case <-n.Elected:
	default:
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), cacheTimeout)
	defer cancel()
	configs, pools := &bootstrapv1.PoolbootConfigList{}, &poolv1.MachineConfigPoolList{}
	for _, list := range []client.ObjectList{configs, pools} {
		if err := n.Cache.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return
		}
	}
	counted := seriesCounts{}
	oldest := n.countConfigs(configs.Items, counted)
	n.countPools(pools.Items, counted)
	for of, number := range counted {
		to <- prometheus.MustNewConstMetric(of.desc, prometheus.GaugeValue, float64(number), of.values()...)
	}
	for stage, age := range oldest {
		to <- prometheus.MustNewConstMetric(oldestDesc, prometheus.GaugeValue, age.Seconds(), string(stage))
	}
}

// series is one of a gauge's, by its label values; condition is empty for those that have none.
type series struct {
	desc                            *prometheus.Desc
	cluster, pool, condition, value string
}

func (s series) values() []string {
	if s.condition == "" {
		return []string{s.cluster, s.pool, s.value}
	}
	return []string{s.cluster, s.pool, s.condition, s.value}
}

// tally is how many objects each series counts.
type seriesCounts map[series]int

// countConfigs counts PoolbootConfigs, and returns for each stage that ends how long the one that began first has been
// in it.
func (n *StateCollector) countConfigs(configs []bootstrapv1.PoolbootConfig, counted seriesCounts) map[record.Stage]time.Duration {
	now := time.Now()
	if n.Clock != nil {
		now = n.Clock()
	}
	oldest := map[record.Stage]time.Duration{record.StageDeleting: 0}
	for _, stage := range record.Stages() {
		oldest[stage] = 0
	}
	for i := range configs {
		config := &configs[i]
		if !n.isWatched(config) {
			continue
		}
		count := func(desc *prometheus.Desc, is string) {
			counted[series{desc: desc, cluster: clusterNameOf(config), pool: config.Status.PoolRole, value: is}]++
		}
		stage, since := record.StageOf(config)
		count(bootsDesc, string(stage))
		if age, ends := oldest[stage]; ends {
			oldest[stage] = max(age, now.Sub(since))
		}
		if state := nodeStateOf(config); state != "" {
			count(nodesDesc, state)
		}
		if c := outlook.ForPerson(config); c != nil {
			count(blockedDesc, c.Reason)
		}
	}
	return oldest
}

// countPools counts pools that are degraded. Degraded is left out: it repeats the other two.
func (n *StateCollector) countPools(pools []poolv1.MachineConfigPool, counted seriesCounts) {
	for i := range pools {
		p := &pools[i]
		if !n.isWatched(p) {
			continue
		}
		for _, kind := range []string{poolv1.RenderDegradedCondition, poolv1.NodeDegradedCondition} {
			if c := meta.FindStatusCondition(p.Status.Conditions, kind); c != nil && c.Status == metav1.ConditionTrue {
				counted[series{degradedDesc, clusterNameOfPool(p), p.Spec.PoolRole, kind, c.Reason}]++
			}
		}
	}
}

func (n *StateCollector) isWatched(object client.Object) bool {
	return n.WatchFilterValue == "" || labels.HasWatchLabel(object, n.WatchFilterValue)
}

// stateOf is the state of a config's Node; "" when none was made.
func nodeStateOf(config *bootstrapv1.PoolbootConfig) string {
	is := conditions.Get(config, bootstrapv1.NodeInPoolCondition)
	switch {
	case !record.HasNode(config) || is == nil:
		return ""
	case is.Status == metav1.ConditionTrue:
		return string(record.StageReady)
	}
	return is.Reason
}
