package update

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/updategate"
)

// maxKnownGates limits the pools whose gates are remembered.
const maxKnownGates = 5000

// knownGates remembers what the last requests for the objects of update gates have led to.
type knownGates struct {
	// closed has the gate of each pool that was closed, by closedKey.
	closed memory[*updategate.Closed]
	// unanswered has the time of the first of several requests in a row that were not answered, by the UID of the pool.
	unanswered memory[time.Time]
}

func newKnownGates() knownGates {
	return knownGates{
		closed:     memory[*updategate.Closed]{lru.New(maxKnownGates), closedTTL},
		unanswered: memory[time.Time]{lru.New(maxKnownGates), unansweredPatience},
	}
}

// generationKey identifies one version of the spec of a pool.
type generationKey struct {
	uid        types.UID
	generation int64
}

// closedKey returns the key of a closed gate. Another spec of the pool can have other gates.
func closedKey(p *poolv1.MachineConfigPool) generationKey { return generationKey{p.UID, p.Generation} }

// unansweredFor returns for how long a gate of a pool was not read. It begins to count again if no request was sent for
// a while.
func (k *knownGates) unansweredFor(p *poolv1.MachineConfigPool, now time.Time) time.Duration {
	first, ok := k.unanswered.get(p.UID, now)
	if !ok {
		first = now
	}
	k.unanswered.set(p.UID, first, now)
	return now.Sub(first)
}

// memory remembers values for some time after they were set.
type memory[Value any] struct {
	cache *lru.Cache
	ttl   time.Duration
}

// remembered is a value and when it was set.
type remembered[Value any] struct {
	value Value
	set   time.Time
}

func (m memory[Value]) get(key any, now time.Time) (value Value, ok bool) {
	if known, isKnown := m.cache.Get(key); isKnown {
		r := known.(remembered[Value])
		value, ok = r.value, now.Sub(r.set) <= m.ttl
	}
	return value, ok
}

func (m memory[Value]) set(key any, value Value, now time.Time) {
	m.cache.Add(key, remembered[Value]{value, now})
}

func (m memory[Value]) forget(key any) { m.cache.Remove(key) }
