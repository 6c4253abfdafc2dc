package bench

import (
	"context"
	"fmt"
	"os"
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

// stormSizes is the environment variable with the numbers of hosts to boot, separated by spaces.
const stormSizes = "STORM"

// defaultStorm is the size of a storm that takes about a minute.
const defaultStorm = "50"

// stormTimeout is the timeout of a storm.
const stormTimeout = 2 * time.Hour

// BenchmarkStorm boots growing numbers of hosts of a MachineDeployment, each on a new site, with Poolboot and, as the
// peer, with Cluster API's kubeadm bootstrap provider and label sync. All hosts are powered on simultaneously, see
// package storm. It needs the programs of "make binaries". Each of the two can be run alone: "-bench
// Storm/hosts=1000/by=peer".
//
// "s-secrets" is the time from the MachineDeployment to the last data Secret, including "s-machines", the time to the
// last Machine. "s-boot" is the time from power on to the last Node that is Ready in its pool. "outside" is the number
// of Node versions outside the pool, and "orders" the number of the adversary's patches.
func BenchmarkStorm(b *testing.B) {
	gomega.RegisterTestingT(b)
	ctrl.SetLogger(logr.Discard())
	sizes := os.Getenv(stormSizes)
	if sizes == "" {
		sizes = defaultStorm
	}
	for _, text := range strings.Fields(sizes) {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			b.Fatalf("%s=%q: write numbers of hosts", stormSizes, sizes)
		}
		b.Run(fmt.Sprintf("hosts=%d", n), func(b *testing.B) {
			var ours storm.Result
			b.Run("by=poolboot", func(b *testing.B) {
				for b.Loop() {
					ours = runStorm(b, n, storm.Poolboot(), func(s *site.Site, r storm.Result) { reportCosts(b, s, r.Started, n) })
					report(b, ours)
				}
				b.ReportMetric(0, "ns/op")
			})
			b.Run("by=peer", func(b *testing.B) {
				for b.Loop() {
					peers := runStorm(b, n, storm.Kubeadm(), nil)
					report(b, peers)
					if ours.DataSecrets > 0 {
						b.ReportMetric(ours.DataSecrets.Seconds()/peers.DataSecrets.Seconds(), "x-peer")
					}
				}
				b.ReportMetric(0, "ns/op")
			})
		})
	}
}

// runStorm boots n hosts on a new site, and calls measure before the site stops.
func runStorm(b *testing.B, n int, provider storm.Provider, measure func(*site.Site, storm.Result)) storm.Result {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), stormTimeout)
	defer cancel()
	hardware := &storm.Hardware{}
	s, err := site.Start(ctx, site.Options{
		Hardware: hardware,
		// The limits of the real programs. The hosts send no heartbeats, and signing is not measured.
		Concurrency: 100, RetryInterval: 30 * time.Second,
		Flags: site.Flags{ControllerManager: []string{"--node-monitor-grace-period=1h", "--kube-api-qps=1000", "--kube-api-burst=1000"}},
	})
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := s.Stop(); err != nil {
			b.Log("the site did not end by itself: ", err)
		}
	}()
	result, err := storm.Run(ctx, s, hardware, provider, n)
	b.Log(result)
	if result.StopError != nil {
		b.Log("the provider did not end by itself: ", result.StopError)
	}
	if err != nil {
		b.Fatal(err)
	}
	if measure != nil {
		measure(s, result)
	}
	return result
}

func report(b *testing.B, r storm.Result) {
	b.ReportMetric(r.Machines.Seconds(), "s-machines")
	b.ReportMetric(r.DataSecrets.Seconds(), "s-secrets")
	b.ReportMetric((r.InPool - r.SwitchedOn).Seconds(), "s-boot")
	b.ReportMetric(r.InPool.Seconds(), "s-in-pool")
	b.ReportMetric(float64(r.Nodes.Outside), "outside")
	b.ReportMetric(float64(r.Nodes.Orders), "orders")
}

// reportCosts reports the API requests since a time, for each of n Machines, and the peak memory.
func reportCosts(b *testing.B, s *site.Site, since time.Time, n int) {
	b.Helper()
	requests, err := s.Requests(since)
	if err != nil {
		b.Fatal(err)
	}
	var table strings.Builder
	total, err := site.PrintRequests(&table, requests)
	if err != nil {
		b.Fatal(err)
	}
	b.Log("\n" + table.String())
	b.ReportMetric(float64(total)/float64(n), "requests/machine")
	for name, program := range map[string]*site.Program{"manager-MiB": s.Manager, "config-server-MiB": s.ConfigServer} {
		peak, err := program.PeakMemory()
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(peak)/(1<<20), name)
	}
}
