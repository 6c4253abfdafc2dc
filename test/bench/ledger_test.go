package bench

import (
	"testing"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/ledger"
)

// TestAllocations counts the allocations of what the benchmarks of the same names measure.
func TestAllocations(t *testing.T) {
	all, err := defaultLoad.make()
	if err != nil {
		t.Fatal(err)
	}
	roles, hosts := pools(), candidates(5000)
	for figure, do := range map[string]func() error{
		"render-allocations":  func() error { _, err := pool.Render("infra", roles, all); return err },
		"overlay-allocations": func() error { _, err := overlay(); return err },
		"next-allocations":    func() error { rollout.Next(hosts, len(hosts)/10); return nil },
	} {
		var failed error
		count := testing.AllocsPerRun(5, func() {
			if err := do(); err != nil {
				failed = err
			}
		})
		if failed != nil {
			t.Fatal(failed)
		}
		enter(t, figure, count)
	}
}

// enter compares a measured value with the ledger.
func enter(tb testing.TB, figure string, value float64) {
	tb.Helper()
	if err := ledger.Enter(figure, value); err != nil {
		tb.Error(err)
	}
}
