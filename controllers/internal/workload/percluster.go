package workload

import (
	"cmp"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"
)

// perCluster caches one result for each Cluster, so many hosts that boot at the same time cause one API request. The
// zero value is ready to use.
type perCluster[T any] struct {
	// Clock determines when results expire. Nil means the real clock.
	Clock clock.Clock

	once     sync.Once
	inFlight singleflight.Group
	results  *cache.Expiring // UID or key of the Cluster → T
}

// get returns the cached result of a Cluster, or calls read for a new one, which is cached for ttl(result). An error is
// not cached.
func (p *perCluster[T]) get(cluster any, ttl func(T) time.Duration, read func() (T, error)) (T, error) {
	p.once.Do(func() { p.results = cache.NewExpiringWithClock(cmp.Or[clock.Clock](p.Clock, clock.RealClock{})) })
	if cached, ok := p.results.Get(cluster); ok {
		return cached.(T), nil
	}
	shared, err, _ := p.inFlight.Do(fmt.Sprint(cluster), func() (any, error) {
		if cached, ok := p.results.Get(cluster); ok {
			return cached, nil
		}
		result, err := read()
		if err == nil {
			p.results.Set(cluster, result, ttl(result))
		}
		return result, err
	})
	return shared.(T), err
}
