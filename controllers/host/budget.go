package host

import (
	"time"

	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// hostBurst is how often a host is reconciled without a limit: several times as often as a boot or an update needs.
	hostBurst = 300
	// hostInterval is the time between two reconciles of a host that has used that up.
	hostInterval = 5 * time.Second
	// maxHosts limits the hosts that are remembered.
	maxHosts = 20000
)

// budget limits how often a host is reconciled. Root on a host can change what its Node reports hundreds of times per
// second, and a workload cluster can answer each request with another error. Each of these can be a status, an
// annotation of the Machine and an event in the management cluster, which others share, and a status that was written
// triggers the next reconcile. The zero value does not limit it.
type budget struct {
	// burst is how often a host is reconciled at once.
	burst int
	// spent remembers for each host until when its reconciles up to now use up its budget, if it is in the future.
	spent *lru.Cache
}

func newBudget(burst int) budget { return budget{burst: burst, spent: lru.New(maxHosts)} }

// wait returns how long to wait, or 0 if the host is reconciled now. A host is not reconciled by several workers.
func (b *budget) wait(host client.ObjectKey, now time.Time) time.Duration {
	if b.spent == nil {
		return 0
	}
	until := now
	if known, ok := b.spent.Get(host); ok && known.(time.Time).After(now) {
		until = known.(time.Time)
	}
	if left := until.Sub(now) - time.Duration(b.burst-1)*hostInterval; left > 0 && left <= hostInterval { // else the clock was set
		return left
	}
	b.spent.Add(host, until.Add(hostInterval))
	return 0
}
