package soak

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/watch"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/faults"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/storm"
)

// badConnection are the injected faults of a bad connection: a tenth of the requests fails, and watches are closed
// early.
var badConnection = faults.Faults{Delay: 100 * time.Millisecond, Dropped: 0.05, Errors: 0.05, Expired: 0.2, WatchLife: 10 * time.Second}

// setFaults sets the faults of all connections to API servers.
func setFaults(f faults.Faults) {
	for _, way := range []*faults.Proxy{lab.Ways.Manager, lab.Ways.ConfigServer, lab.Ways.Workload} {
		way.Set(f)
	}
}

// killConfigServers kills and restarts a config server at intervals until ctx is done.
func killConfigServers(ctx context.Context) error {
	for i := 0; sleep(ctx, killInterval); i++ {
		victim := lab.Replicas[i%len(lab.Replicas)]
		if err := victim.Kill(); err != nil {
			return err
		}
		if err := victim.Start(context.WithoutCancel(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// partitionConfigServers disconnects the config servers from the management cluster at intervals until ctx is done.
func partitionConfigServers(ctx context.Context) {
	for sleep(ctx, killInterval) {
		lab.Ways.ConfigServer.Set(faults.Faults{Partition: true})
		sleep(ctx, killInterval/4)
		lab.Ways.ConfigServer.Set(badConnection)
	}
}

var _ = Describe("Hosts that boot repeatedly", func() {
	const each = 5
	soak := func(ctx context.Context, withFaults bool) {
		GinkgoHelper()
		h := newHostFleet(ctx, each)
		// Prepare each Machine once, in order to measure the peak rate of prepared boots.
		DeferCleanup(setFaults, faults.Faults{})
		h.bootFor(ctx, time.Second, 0)
		before := h.getCounts()
		took := h.bootFor(ctx, soakDuration/4, 0)
		peak := float64(h.getCounts().boots-before.boots) / took.Seconds()

		disruptionCtx, end := context.WithTimeout(ctx, soakDuration)
		defer end()
		var all errgroup.Group
		all.Go(func() error { return killConfigServers(disruptionCtx) })
		all.Go(func() error { h.deleteOverlays(disruptionCtx); return nil })
		if withFaults {
			setFaults(badConnection)
			all.Go(func() error { partitionConfigServers(disruptionCtx); return nil })
		}
		before = h.getCounts()
		took = h.bootFor(ctx, soakDuration, float32(peak/2))
		end()
		Expect(all.Wait()).To(Succeed())
		after := h.getCounts()
		AddReportEntry("boots", fmt.Sprintf("%v; peak %.0f boots/s, then %d in %.0f s (%.0f/s); connections: manager %s, config server %s, workload %s", after, peak,
			after.boots-before.boots, took.Seconds(), float64(after.boots-before.boots)/took.Seconds(),
			lab.Ways.Manager.Counts(), lab.Ways.ConfigServer.Counts(), lab.Ways.Workload.Counts()), ReportEntryVisibilityAlways)
		Expect(after.lost).To(BeEmpty())
		Expect(after.wrong).To(BeEmpty())
		Expect(after.boots - before.boots).To(BeNumerically(">", each))
	}

	It("all get their configuration at half of the peak rate while config servers are killed", func(ctx SpecContext) {
		soak(ctx, false)
	}, SpecTimeout(time.Hour))

	It("all get their configuration while connections to both API servers are bad", func(ctx SpecContext) {
		soak(ctx, true)
	}, SpecTimeout(time.Hour))
})

var _ = Describe("Hosts that join while connections to both API servers are bad", func() {
	It("have Nodes that are in their pool from their first version", func(ctx SpecContext) {
		const n = 10
		DeferCleanup(setFaults, faults.Faults{})
		begin := time.Now()
		for first := true; first || time.Since(begin) < soakDuration; first = false {
			setFaults(faults.Faults{})
			run, end := context.WithCancel(ctx)
			start := time.Now().Truncate(time.Second) // creation timestamps have seconds; Machines of the previous storm are older
			Expect(site.Follow(run, lab.ManagementClient, &clusterv1.MachineList{}, func(_ watch.EventType, m *clusterv1.Machine) {
				if !m.CreationTimestamp.Time.Before(start) { // the user's objects exist
					setFaults(badConnection)
				}
			})).To(Succeed())
			result, err := storm.Run(ctx, lab, hardware, storm.Poolboot(), n)
			end()
			Expect(err).NotTo(HaveOccurred())
			AddReportEntry("storm", result.String(), ReportEntryVisibilityAlways)
			Expect(result.Nodes).To(And(HaveField("Nodes", n), HaveField("Outside", 0), HaveField("Orders", 0)))
		}
	}, SpecTimeout(time.Hour))
})
