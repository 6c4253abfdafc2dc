package update

import (
	"time"

	"k8s.io/utils/lru"
)

const (
	// maxStreaks limits the hosts and pools for which it is remembered since when something fails.
	maxStreaks = 20000
	// failureTTL is longer than the time between two tries of what fails.
	failureTTL = time.Hour
)

// streaks remembers since when something fails each time.
type streaks struct {
	known *lru.Cache
	ttl   time.Duration
}

// streak is when something failed first and last.
type streak struct{ first, last time.Time }

// newStreaks returns a memory in which a streak ends if nothing fails for the ttl.
func newStreaks(ttl time.Duration) streaks { return streaks{lru.New(maxStreaks), ttl} }

// add adds a failure, and returns for how long the streak has lasted.
func (s streaks) add(key any, now time.Time) time.Duration {
	current := streak{first: now, last: now}
	if known, ok := s.known.Get(key); ok && now.Sub(known.(streak).last) <= s.ttl {
		current.first = known.(streak).first
	}
	s.known.Add(key, current)
	return now.Sub(current.first)
}

// end ends a streak.
func (s streaks) end(key any) { s.known.Remove(key) }
