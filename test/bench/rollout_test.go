package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
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

// rebootTime is the environment variable with the mean time of a reboot, for example 10s. Without it, reboots are so
// short that a rollout needs all of a small machine.
const rebootTime = "REBOOT"

// defaultRollout is the size of a rollout that takes about a minute.
const defaultRollout = "50"

// BenchmarkRollout updates simulated hosts after their pool has changed, 10 % at a time. One of them has booted, and
// the others are clones of it. Nothing goes wrong. Each update reboots its host, which takes 0.9 s or
// REBOOT.
//
// "requests/machine" are Poolboot's requests to both API servers, without watches and their lists. "s-told",
// "s-drained" and "s-released" are the times that Poolboot adds to each wave, each the median: from a host that made
// room to the next one that was told, from the host that waits for its drain to the end of it, and from the end of the
// update to a Node that gets Pods.
func BenchmarkRollout(b *testing.B) {
	gomega.RegisterTestingT(b)
	ctrl.SetLogger(logr.Discard())
	withFleets(b, defaultRollout, measureRollout)
}

// withFleets runs a benchmark with a fleet of each size, on a new site.
func withFleets(b *testing.B, sizes string, measure func(context.Context, *testing.B, *site.Site, *storm.Hardware, *storm.Fleet, int)) {
	b.Helper()
	sizes = cmp.Or(os.Getenv(rolloutSizes), sizes)
	for _, text := range strings.Fields(sizes) {
		n, err := strconv.Atoi(text)
		if err != nil || n < 10 {
			b.Fatalf("%s=%q: write numbers of hosts of at least 10", rolloutSizes, sizes)
		}
		b.Run(fmt.Sprintf("hosts=%d", n), func(b *testing.B) {
			for b.Loop() {
				withFleet(b, n, measure)
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

func withFleet(b *testing.B, n int, measure func(context.Context, *testing.B, *site.Site, *storm.Hardware, *storm.Fleet, int)) {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), stormTimeout)
	defer cancel()
	var unkindness storm.Unkindness
	if text := os.Getenv(rebootTime); text != "" {
		reboot, err := time.ParseDuration(text)
		if err != nil || reboot <= 0 {
			b.Fatalf("%s=%q: write a duration such as 10s", rebootTime, text)
		}
		unkindness.Reboot = reboot
	}
	hardware := &storm.Hardware{}
	s, err := site.Start(ctx, site.Options{
		Hardware: hardware, Agents: true, Concurrency: 10, RetryInterval: 30 * time.Second,
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
	up := time.Now()
	fleet, err := storm.NewFleet(ctx, s, hardware, n, unkindness)
	if err != nil {
		b.Fatal(err)
	}
	defer fleet.Stop()
	b.Logf("%d hosts after %s", n, time.Since(up).Round(time.Second))
	measure(ctx, b, s, hardware, fleet, n)
}

func measureRollout(ctx context.Context, b *testing.B, s *site.Site, _ *storm.Hardware, fleet *storm.Fleet, n int) {
	b.Helper()
	beginRollout(ctx, b, s, fleet).follow(ctx, b, s, fleet, n)
}

// rolloutRun is a rollout that is measured.
type rolloutRun struct {
	rendered string
	began    time.Time
	// cpu is the processor time in seconds that the manager had used before.
	cpu float64
}

func beginRollout(ctx context.Context, b *testing.B, s *site.Site, fleet *storm.Fleet) rolloutRun {
	b.Helper()
	cpu, err := managerCPU(ctx, s)
	if err != nil {
		b.Fatal(err)
	}
	r := rolloutRun{began: time.Now(), cpu: cpu}
	if r.rendered, err = fleet.Configure(ctx, "another"); err != nil {
		b.Fatal(err)
	}
	return r
}

// follow waits for the end of the rollout, and reports what it cost.
func (r rolloutRun) follow(ctx context.Context, b *testing.B, s *site.Site, fleet *storm.Fleet, n int) {
	b.Helper()
	for share := 0.25; share < 1; share += 0.25 {
		if err := fleet.WaitForShare(ctx, r.rendered, share); err != nil {
			b.Fatal(err)
		}
		r.log(ctx, b, s, fleet)
	}
	if err := fleet.WaitUntilUpdated(ctx, r.rendered); err != nil {
		b.Fatal(err)
	}
	took, verdict := time.Since(r.began), fleet.Judge.Verdict()
	b.Log(verdict)
	if verdict.Gaps > 0 || verdict.MostAway > fleet.MaxUnavailable {
		b.Errorf("%d hosts were away: more than %s", verdict.MostAway, fleet.Limit())
	}
	after, err := managerCPU(ctx, s)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(took.Seconds(), "s-rollout")
	spent := (after - r.cpu) * 1000 / float64(n)
	b.ReportMetric(spent, "manager-cpu-ms/host")
	enter(b, "update-manager-time", spent)
	for name, waits := range waitsOf(fleet) {
		if len(waits) > 0 {
			b.ReportMetric(waits[len(waits)/2].Seconds(), "s-"+name)
			b.ReportMetric(waits[len(waits)*99/100].Seconds(), "s-"+name+"-p99")
		}
	}
	reportCosts(b, s, r.began, n)
}

// waitsOf returns the times that Poolboot added to the waves of a rollout up to now, each sorted.
func waitsOf(fleet *storm.Fleet) map[string][]time.Duration {
	verdict := fleet.Judge.Verdict()
	waits := map[string][]time.Duration{"told": fleet.Judge.Waits(fleet.MaxUnavailable), "drained": verdict.Drains, "released": verdict.Releases}
	for _, times := range waits {
		slices.Sort(times)
	}
	return waits
}

// log logs the verdict and the costs of a rollout up to now, because a rollout of thousands takes an hour.
func (r rolloutRun) log(ctx context.Context, b *testing.B, s *site.Site, fleet *storm.Fleet) {
	b.Helper()
	updated, took := fleet.Updated(r.rendered), time.Since(r.began).Round(time.Second)
	now, cpuErr := managerCPU(ctx, s)
	requests, requestsErr := s.Requests(r.began)
	total, tableErr := site.PrintRequests(io.Discard, requests)
	peak, memoryErr := s.Manager.PeakMemory()
	if err := errors.Join(cpuErr, requestsErr, tableErr, memoryErr); err != nil {
		b.Fatal(err)
	}
	hosts := float64(updated)
	b.Logf("%d hosts after %s: %.1f requests and %.0f ms of the manager for each, which had at most %d MiB",
		updated, took, float64(total)/hosts, (now-r.cpu)*1000/hosts, peak>>20)
	b.Log(fleet.Judge.Verdict())
	for name, waits := range waitsOf(fleet) {
		if len(waits) > 0 {
			b.Logf("%s: median %.1f s, 99th percentile %.1f s", name, waits[len(waits)/2].Seconds(), waits[len(waits)*99/100].Seconds())
		}
	}
}

// managerCPU returns the seconds of processor time that the manager has used.
func managerCPU(ctx context.Context, s *site.Site) (float64, error) {
	metrics, err := s.Manager.Metrics(ctx)
	if err != nil {
		return 0, err
	}
	return metrics["process_cpu_seconds_total"].GetMetric()[0].GetCounter().GetValue(), nil
}
