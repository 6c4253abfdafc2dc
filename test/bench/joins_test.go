package bench

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/onsi/gomega"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/storm"
)

// bootsAtOnce is the number of hosts of BenchmarkRolloutAndJoins that boot at once.
const bootsAtOnce = 10

// loadWindow is how long the use of the processor is measured.
const loadWindow = 10 * time.Second

// BenchmarkRolloutAndJoins boots hosts of one pool while another pool of the same Cluster is rolled out. The peer is
// the same number of hosts that boot while a process uses as much processor time as the rollout, and has nothing to do
// with Poolboot and its API servers. Others boot while nothing else happens, before and after the rollout. Times are
// from the request of a host for its configuration to its Node in the pool.
//
// "x-peer" is the median of the boots during the rollout divided by that of the peer, and "x-quiet" divided by that of
// the boots beside nothing. The hosts, their agents, the API servers and Poolboot share the processor: "cores" is how
// many cores the rollout used. "updates/s" is how fast it was meanwhile: with 10 % of the hosts away at a time for
// five minutes, 5,000 hosts are updated at 1.7 per second. "ms-queue" and "ms-queue-quiet" are how long objects waited
// in the queues of the controllers of a boot with and without the rollout, and "ms-request" and "ms-request-quiet" how
// long the API servers took to answer Poolboot. The other metrics are those of [BenchmarkRollout]; the boots beside
// the rollout are part of its requests.
func BenchmarkRolloutAndJoins(b *testing.B) {
	gomega.RegisterTestingT(b)
	ctrl.SetLogger(logr.Discard())
	withFleets(b, defaultRollout, func(ctx context.Context, b *testing.B, s *site.Site, hardware *storm.Hardware, fleet *storm.Fleet, n int) {
		quiet, busy, peer := &boots{}, &boots{}, &boots{}
		round := 0
		boot := func(to *boots, before func() error) {
			b.Helper()
			round++
			hosts, err := fleet.NewBoots(ctx, hardware, fmt.Sprintf("boots-%d", round), bootsAtOnce)
			if err == nil {
				err = before()
			}
			if err == nil {
				err = to.measure(ctx, s, hosts)
			}
			if err != nil {
				b.Fatal(err)
			}
		}
		nothing := func() error { return nil }
		boot(quiet, nothing)
		idle, err := usedCores(ctx, loadWindow)
		if err != nil {
			b.Fatal(err)
		}
		var rollout rolloutRun
		var began time.Time
		var updatedBefore int
		var cores float64
		boot(busy, func() (err error) {
			rollout = beginRollout(ctx, b, s, fleet)
			if err := fleet.WaitForShare(ctx, rollout.rendered, 0.1); err != nil {
				return err
			}
			began, updatedBefore = time.Now(), fleet.Updated(rollout.rendered)
			cores, err = usedCores(ctx, loadWindow)
			return err
		})
		updated := fleet.Updated(rollout.rendered)
		if updated == fleet.Size() {
			b.Error("the rollout ended before the boots: take more hosts")
		} else {
			b.Logf("%d of %d hosts were updated when the boots ended", updated, fleet.Size())
		}
		b.ReportMetric(float64(updated-updatedBefore)/time.Since(began).Seconds(), "updates/s")
		b.Logf("boots beside the rollout took %s, and before it %s: median", busy.percentile(50), quiet.percentile(50))
		rollout.follow(ctx, b, s, fleet, n)
		boot(quiet, nothing)
		var stop func() error
		boot(peer, func() (err error) {
			stop, err = startBusy(ctx, cores-idle)
			return err
		})
		if err := stop(); err != nil {
			b.Fatal(err)
		}

		b.ReportMetric(cores-idle, "cores")
		for name, of := range map[string]*boots{"": busy, "peer-": peer, "quiet-": quiet} {
			b.ReportMetric(of.percentile(50).Seconds(), name+"s-boot")
			b.ReportMetric(of.percentile(99).Seconds(), name+"s-boot-p99")
		}
		b.ReportMetric(busy.percentile(50).Seconds()/peer.percentile(50).Seconds(), "x-peer")
		b.ReportMetric(busy.percentile(50).Seconds()/quiet.percentile(50).Seconds(), "x-quiet")
		b.ReportMetric(busy.queued(), "ms-queue")
		b.ReportMetric(quiet.queued(), "ms-queue-quiet")
		b.ReportMetric(busy.answered(), "ms-request")
		b.ReportMetric(quiet.answered(), "ms-request-quiet")
	})
}

// boots are the times of boots, and how long objects waited meanwhile.
type boots struct {
	took    []time.Duration
	waited  float64 // seconds
	objects uint64
	// requests are the mean times of requests of Poolboot in each round.
	requests []time.Duration
}

func (o *boots) measure(ctx context.Context, s *site.Site, hosts *storm.Boots) error {
	waited, objects, err := waitsInQueues(ctx, s)
	if err != nil {
		return err
	}
	began := time.Now()
	took, err := hosts.PowerOn(ctx)
	if err != nil {
		return err
	}
	request, err := s.RequestTime(began, time.Now())
	if err != nil {
		return err
	}
	o.requests = append(o.requests, request)
	waitedAfter, objectsAfter, err := waitsInQueues(ctx, s)
	o.took, o.waited, o.objects = append(o.took, took...), o.waited+waitedAfter-waited, o.objects+objectsAfter-objects
	return err
}

func (o *boots) percentile(p int) time.Duration {
	slices.Sort(o.took)
	return o.took[len(o.took)*p/100]
}

// queued returns how long an object waited, in milliseconds.
func (o *boots) queued() float64 { return o.waited * 1000 / float64(max(o.objects, 1)) }

// answered returns how long an API server took to answer a request of Poolboot, in milliseconds.
func (o *boots) answered() float64 {
	var sum time.Duration
	for _, request := range o.requests {
		sum += request
	}
	return sum.Seconds() * 1000 / float64(len(o.requests))
}

// waitsInQueues returns how long objects have waited in the queues of the controllers of a boot so far, in seconds, and
// how many have waited.
func waitsInQueues(ctx context.Context, s *site.Site) (waited float64, objects uint64, err error) {
	metrics, err := s.Manager.Metrics(ctx)
	if err != nil {
		return 0, 0, err
	}
	for _, m := range metrics["workqueue_queue_duration_seconds"].GetMetric() {
		for _, label := range m.GetLabel() {
			if label.GetName() == "controller" && slices.Contains([]string{"host", "certificate"}, label.GetValue()) {
				waited += m.GetHistogram().GetSampleSum()
				objects += m.GetHistogram().GetSampleCount()
			}
		}
	}
	return waited, objects, nil
}
