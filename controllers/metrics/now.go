package metrics

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/timeline"
)

// readPatience is how long a scrape waits for a cache that is not in sync yet.
const readPatience = 2 * time.Second

var (
	bootsNow = prometheus.NewDesc("poolboot_boots",
		"PoolbootConfigs by the stage that their boot is in.", []string{"cluster", "pool", "stage"}, nil)
	nodesNow = prometheus.NewDesc("poolboot_nodes",
		"Nodes of PoolbootConfigs by state: Ready, or the reason of the condition NodeInPool.", []string{"cluster", "pool", "state"}, nil)
)

// Now is what there is at the moment, counted at each scrape out of the manager's cache. Only the manager that leads tells
// it: the others would count the same again.
type Now struct {
	// Configs reads PoolbootConfigs from the manager's cache.
	Configs client.Reader
	// Elected is closed when the manager leads.
	Elected <-chan struct{}
	// WatchFilterValue is the value of the label cluster.x-k8s.io/watch-filter that objects must have; empty means all.
	WatchFilterValue string
}

// Describe sends what Collect may send.
func (n *Now) Describe(to chan<- *prometheus.Desc) {
	to <- bootsNow
	to <- nodesNow
}

// Collect counts. Nothing is sent while the cache is not in sync.
func (n *Now) Collect(to chan<- prometheus.Metric) {
	select {
	case <-n.Elected:
	default:
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), readPatience)
	defer cancel()
	configs := &bootstrapv1.PoolbootConfigList{}
	if err := n.Configs.List(ctx, configs, client.UnsafeDisableDeepCopy); err != nil {
		return
	}
	type group struct{ cluster, pool, is string }
	inStage, inState := map[group]int{}, map[group]int{}
	for i := range configs.Items {
		config := &configs.Items[i]
		if n.WatchFilterValue != "" && !labels.HasWatchLabel(config, n.WatchFilterValue) {
			continue
		}
		stage, _ := timeline.StageOf(config)
		inStage[group{clusterOf(config), config.Status.Pool, string(stage)}]++
		if state := stateOf(config); state != "" {
			inState[group{clusterOf(config), config.Status.Pool, state}]++
		}
	}
	for desc, counted := range map[*prometheus.Desc]map[group]int{bootsNow: inStage, nodesNow: inState} {
		for of, number := range counted {
			to <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, float64(number), of.cluster, of.pool, of.is)
		}
	}
}

// stateOf is the state of a config's Node; "" when none was made.
func stateOf(config *bootstrapv1.PoolbootConfig) string {
	is := conditions.Get(config, bootstrapv1.NodeInPoolCondition)
	switch {
	case config.Status.Node == nil || is == nil:
		return ""
	case is.Status == metav1.ConditionTrue:
		return string(timeline.Ready)
	}
	return is.Reason
}
