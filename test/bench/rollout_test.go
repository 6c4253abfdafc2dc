package bench

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/onsi/gomega"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/storm"
)

// rolloutSizes is the environment variable with the numbers of hosts of rollouts, separated by spaces.
const rolloutSizes = "ROLLOUT"

// defaultRollout is the size of a rollout that takes about a minute.
const defaultRollout = "50"

// BenchmarkRollout boots simulated hosts, and updates them after their pool has changed, 10 % at a time. Nothing goes
// wrong. Each update reboots its host, which takes one to three seconds.
//
// "requests/machine" are Poolboot's requests to both API servers, without watches and their lists. "s-told",
// "s-drained" and "s-released" are the times that Poolboot adds to each wave, each the median: from a host that made
// room to the next one that was told, from the host that waits for its drain to the end of it, and from the end of the
// update to a Node that gets Pods.
func BenchmarkRollout(b *testing.B) {
	gomega.RegisterTestingT(b)
	ctrl.SetLogger(logr.Discard())
	sizes := os.Getenv(rolloutSizes)
	if sizes == "" {
		sizes = defaultRollout
	}
	for _, text := range strings.Fields(sizes) {
		n, err := strconv.Atoi(text)
		if err != nil || n < 10 {
			b.Fatalf("%s=%q: write numbers of hosts of at least 10", rolloutSizes, sizes)
		}
		b.Run(fmt.Sprintf("hosts=%d", n), func(b *testing.B) {
			for b.Loop() {
				runRollout(b, n)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

func runRollout(b *testing.B, n int) {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), stormTimeout)
	defer cancel()
	hardware := &storm.Hardware{}
	s, err := site.Start(ctx, site.Options{
		Hardware: hardware, Agents: true, Concurrency: 100, RetryInterval: 30 * time.Second,
		Flags: site.Flags{ControllerManager: []string{"--node-monitor-grace-period=10h", "--kube-api-qps=1000", "--kube-api-burst=1000"}},
	})
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := s.Stop(); err != nil {
			b.Log("the site did not end by itself: ", err)
		}
	}()
	fleet, err := storm.NewFleet(ctx, s, hardware, n, storm.Unkindness{})
	if err != nil {
		b.Fatal(err)
	}
	defer fleet.Stop()
	cpu, err := managerCPU(ctx, s)
	if err != nil {
		b.Fatal(err)
	}
	began := time.Now()
	rendered, err := fleet.Configure(ctx, "another")
	if err != nil {
		b.Fatal(err)
	}
	if err := fleet.WaitUntilUpdated(ctx, rendered); err != nil {
		b.Fatal(err)
	}
	took, verdict := time.Since(began), fleet.Judge.Verdict()
	b.Log(verdict)
	if verdict.MostAway > fleet.MaxUnavailable {
		b.Errorf("%d hosts were away: more than %s", verdict.MostAway, fleet.Limit())
	}
	after, err := managerCPU(ctx, s)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(took.Seconds(), "s-rollout")
	b.ReportMetric((after-cpu)*1000/float64(n), "manager-cpu-ms/host")
	for name, waits := range map[string][]time.Duration{"told": fleet.Judge.Waits(fleet.MaxUnavailable), "drained": verdict.Drains, "released": verdict.Releases} {
		if len(waits) == 0 {
			continue
		}
		slices.Sort(waits)
		b.ReportMetric(waits[len(waits)/2].Seconds(), "s-"+name)
		b.ReportMetric(waits[len(waits)*99/100].Seconds(), "s-"+name+"-p99")
	}
	reportCosts(b, s, began, n)
}

// managerCPU returns the seconds of processor time that the manager has used.
func managerCPU(ctx context.Context, s *site.Site) (float64, error) {
	metrics, err := s.Manager.Metrics(ctx)
	if err != nil {
		return 0, err
	}
	return metrics["process_cpu_seconds_total"].GetMetric()[0].GetCounter().GetValue(), nil
}
