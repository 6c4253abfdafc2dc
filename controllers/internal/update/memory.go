package update

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
)

const (
	// maxKnownGates limits the pools whose gates are remembered.
	maxKnownGates = 5000
	// failureTTL is longer than the time between two tries of what fails.
	failureTTL = time.Hour
)

// knownGates remembers what the last requests for the objects of update gates have led to.
type knownGates struct {
	// closed has the gate of each pool that was closed, by closedKey.
	closed memory[*rollout.ClosedGate]
	// unanswered has the requests that were not answered, by the UID of the pool.
	unanswered streaks
}

func newKnownGates() knownGates {
	return knownGates{closed: newMemory[*rollout.ClosedGate](maxKnownGates, closedTTL), unanswered: newStreaks(maxKnownGates, unansweredPatience)}
}

// generationKey identifies one version of the spec of a pool.
type generationKey struct {
	uid        types.UID
	generation int64
}

// closedKey returns the key of a closed gate. Another spec of the pool can have other gates.
func closedKey(p *poolv1.MachineConfigPool) generationKey { return generationKey{p.UID, p.Generation} }

// streaks remembers since when something fails each time.
type streaks struct{ first memory[time.Time] }

// newStreaks returns a memory in which a streak ends if nothing fails for the ttl.
func newStreaks(size int, ttl time.Duration) streaks { return streaks{newMemory[time.Time](size, ttl)} }

// add adds a failure, and returns for how long the streak has lasted.
func (s streaks) add(key any, now time.Time) time.Duration {
	first, ok := s.first.get(key, now)
	if !ok {
		first = now
	}
	s.first.set(key, first, now)
	return now.Sub(first)
}

// end ends a streak.
func (s streaks) end(key any) { s.first.forget(key) }

// memory remembers a limited number of values for some time after they were set.
type memory[Value any] struct {
	cache *lru.Cache
	ttl   time.Duration
}

func newMemory[Value any](size int, ttl time.Duration) memory[Value] {
	return memory[Value]{lru.New(size), ttl}
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
