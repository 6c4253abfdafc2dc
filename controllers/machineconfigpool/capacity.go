package machineconfigpool

import "time"

// replacementDelay is how long a Machine can be gone before its replacement exists. Cluster API creates it only then.
const replacementDelay = time.Minute

// setCapacity sets how many hosts the pool has when all are available. It grows with the hosts that join. It shrinks
// only if fewer Machines exist for longer than a replacement needs to be created: a host that is replaced counts until
// its replacement has joined, and a host that boots in addition does not.
func (s *scope) setCapacity(n counts, now time.Time) {
	capacity := &s.pool.Status.CapacityHostCount
	switch {
	case n.joined >= *capacity:
		*capacity = n.joined
	case n.total < *capacity:
		if s.cache.smallerSince.IsZero() {
			s.cache.smallerSince = now
		}
		if left := replacementDelay - now.Sub(s.cache.smallerSince); left > 0 {
			s.reconcileIn(left)
			return
		}
		*capacity = n.total
	}
	s.cache.smallerSince = time.Time{}
}
