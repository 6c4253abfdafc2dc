package bench

import (
	"fmt"
	"testing"
	"time"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
)

// candidates returns n hosts of a pool in the middle of a rollout, in 20 zones: a third is updated, a tenth is in the
// update, and the others wait.
func candidates(n int) []rollout.Candidate {
	hosts := make([]rollout.Candidate, n)
	for i := range hosts {
		hosts[i] = rollout.Candidate{
			Name: fmt.Sprintf("host-%d", i*7919%n), Zone: fmt.Sprintf("zone-%d", i%20), CreationTime: time.Unix(int64(i*7919%n), 0), Desired: "old", Target: "new",
		}
		if i < n/3 {
			hosts[i].Desired = "new"
		} else if i < n/3+n/10-1 {
			hosts[i].Desired, hosts[i].Progress = "new", rollout.InUpdate
		}
	}
	return hosts
}

// BenchmarkNext decides which hosts of a pool are next.
func BenchmarkNext(b *testing.B) {
	for _, n := range []int{500, 5000} {
		b.Run(fmt.Sprintf("hosts=%d", n), func(b *testing.B) {
			hosts := candidates(n)
			start := processorTime(b)
			for b.Loop() {
				if next := rollout.Next(hosts, n/10); len(next) != 1 {
					b.Fatal(len(next), "hosts are next")
				}
			}
			spent := float64((processorTime(b) - start).Microseconds()) / 1000 / float64(b.N)
			b.ReportMetric(spent, "cpu-ms/op")
			if n == 5000 {
				enter(b, "next-time", spent)
			}
		})
	}
}
