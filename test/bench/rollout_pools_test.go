package bench

import (
	"context"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/storm"
)

const (
	// poolCount is the number of pools of a fleet, each of which updates 10 % of its hosts at a time.
	poolCount = 5
	// limitOfPools is how many hosts of all pools can be updated at a time.
	limitOfPools = 2
)

// BenchmarkRolloutOfPools changes a MachineConfig that five pools render, first with their own limits alone, and then
// with a limit for all pools of the Cluster. "s-alone" and "s-limited" are how long the rollouts took, "away-alone" and
// "away-limited" how many hosts were away at most, at any version of any Node.
func BenchmarkRolloutOfPools(b *testing.B) {
	gomega.RegisterTestingT(b)
	ctrl.SetLogger(logr.Discard())
	withFleets(b, defaultRollout, func(ctx context.Context, b *testing.B, _ *site.Site, _ *storm.Hardware, fleet *storm.Fleet, n int) {
		if err := fleet.Spread(ctx, poolCount); err != nil {
			b.Fatal(err)
		}
		ofPool := max(n/poolCount/10, 1)
		alone := measurePools(ctx, b, fleet, "alone", "another", poolCount*ofPool)
		if err := fleet.SetClusterLimit(ctx, poolv1.ClusterUpdateSettings{MaxUnavailable: ptr.To(intstr.FromInt32(limitOfPools))}); err != nil {
			b.Fatal(err)
		}
		limited := measurePools(ctx, b, fleet, "limited", "third", limitOfPools)
		b.ReportMetric(limited.Seconds()/alone.Seconds(), "x-alone")
	})
}

// measurePools changes the configuration of all pools, and returns how long the rollout took. At most a number of hosts
// may be away.
func measurePools(ctx context.Context, b *testing.B, fleet *storm.Fleet, name, content string, most int) time.Duration {
	b.Helper()
	fleet.Judge.Begin()
	began := time.Now()
	rendered, err := fleet.Configure(ctx, content)
	if err == nil {
		err = fleet.WaitUntilPoolsUpdated(ctx, rendered)
	}
	if err != nil {
		b.Fatal(err)
	}
	took, verdict := time.Since(began), fleet.Judge.Verdict()
	b.Logf("%s: %s, %s", name, took.Round(time.Second), verdict)
	if verdict.Gaps > 0 || verdict.MostAway > most {
		b.Errorf("%s: %d hosts were away: more than %d", name, verdict.MostAway, most)
	}
	b.ReportMetric(took.Seconds(), "s-"+name)
	b.ReportMetric(float64(verdict.MostAway), "away-"+name)
	return took
}
