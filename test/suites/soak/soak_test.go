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

// bad is what every way is like while faults are injected: a tenth of the requests fails, and no watch lives long.
var bad = faults.Faults{Delay: 100 * time.Millisecond, Dropped: 0.05, Errors: 0.05, Expired: 0.2, WatchLife: 10 * time.Second}

// eachWay sets the faults of all ways.
func eachWay(f faults.Faults) {
	for _, way := range []*faults.Proxy{lab.Ways.Manager, lab.Ways.ConfigServer, lab.Ways.Workload} {
		way.Set(f)
	}
}

// killServers kills a config server every so often, as the kernel does, and starts it again, until ctx ends.
func killServers(ctx context.Context) error {
	for i := 0; every(ctx, killEvery); i++ {
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

// partition cuts the config servers off from the management cluster for a while, every now and then, until ctx ends.
func partition(ctx context.Context) {
	for every(ctx, killEvery) {
		lab.Ways.ConfigServer.Set(faults.Faults{Partition: true})
		every(ctx, killEvery/4)
		lab.Ways.ConfigServer.Set(bad)
	}
}

var _ = Describe("Hosts that boot over and over again", func() {
	const each = 5
	soak := func(ctx context.Context, withFaults bool) {
		GinkgoHelper()
		h := newHerd(ctx, each)
		// Each is prepared once, so that the peak is that of servers that have what hosts ask for.
		DeferCleanup(eachWay, faults.Faults{})
		h.bootFor(ctx, time.Second, 0)
		before := h.result()
		took := h.bootFor(ctx, soaking/4, 0)
		peak := float64(h.result().boots-before.boots) / took.Seconds()

		mischief, end := context.WithTimeout(ctx, soaking)
		defer end()
		var all errgroup.Group
		all.Go(func() error { return killServers(mischief) })
		all.Go(func() error { h.renew(mischief); return nil })
		if withFaults {
			eachWay(bad)
			all.Go(func() error { partition(mischief); return nil })
		}
		before = h.result()
		took = h.bootFor(ctx, soaking, float32(peak/2))
		end()
		Expect(all.Wait()).To(Succeed())
		after := h.result()
		AddReportEntry("boots", fmt.Sprintf("%v; peak %.0f boots/s, then %d in %.0f s (%.0f/s); ways: manager %s, config server %s, workload %s", after, peak,
			after.boots-before.boots, took.Seconds(), float64(after.boots-before.boots)/took.Seconds(),
			lab.Ways.Manager.Counts(), lab.Ways.ConfigServer.Counts(), lab.Ways.Workload.Counts()), ReportEntryVisibilityAlways)
		Expect(after.lost).To(BeEmpty())
		Expect(after.wrong).To(BeEmpty())
		Expect(after.boots - before.boots).To(BeNumerically(">", each))
	}

	It("at half of the peak, lose none while servers are killed", func(ctx SpecContext) {
		soak(ctx, false)
	}, SpecTimeout(time.Hour))

	It("lose none and get nothing wrong also while every way to both API servers is bad", func(ctx SpecContext) {
		soak(ctx, true)
	}, SpecTimeout(time.Hour))
})

var _ = Describe("Hosts that join while every way to both API servers is bad", func() {
	It("are each in their pool from their Node's first version on", func(ctx SpecContext) {
		const n = 10
		DeferCleanup(eachWay, faults.Faults{})
		began := time.Now()
		for first := true; first || time.Since(began) < soaking; first = false {
			eachWay(faults.Faults{})
			run, end := context.WithCancel(ctx)
			start := time.Now().Truncate(time.Second) // as exact as a creation timestamp: Machines of the storm before are older
			Expect(site.Follow(run, lab.ManagementClient, &clusterv1.MachineList{}, func(_ watch.EventType, m *clusterv1.Machine) {
				if !m.CreationTimestamp.Time.Before(start) { // all that a user makes is there
					eachWay(bad)
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
