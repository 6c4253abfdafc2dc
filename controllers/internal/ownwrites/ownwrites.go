// Package ownwrites tracks the writes of a reconciler, because the cache shows a write only after some delay. A
// reconcile with an object from before the reconciler's own last write ends in a conflict at best and wastes requests.
package ownwrites

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// MaxLag is how long a write is tracked. After that the content of the cache is used even if it looks older: when an
// API server is restored from a backup, resource versions start at a lower number. A reconciler with a stale object
// retries after MaxLag, unless the event of the write triggers it earlier.
const MaxLag = 5 * time.Second

// Tracker remembers the resource version of each object that a reconciler wrote last. The zero value is ready to use,
// and it is safe for concurrent use.
type Tracker struct {
	once     sync.Once
	versions *cache.Expiring // identity → resource version
}

type identity struct {
	uid types.UID
	key client.ObjectKey
}

func identityOf(object client.Object) identity {
	return identity{uid: object.GetUID(), key: client.ObjectKeyFromObject(object)}
}

// Record remembers an object as the API server returned it from a write.
func (t *Tracker) Record(object client.Object) {
	t.cache().Set(identityOf(object), object.GetResourceVersion(), MaxLag)
}

// IsStale reports whether an object from a cache is older than the recorded write.
func (t *Tracker) IsStale(object client.Object) bool {
	recorded, ok := t.cache().Get(identityOf(object))
	if !ok {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(object.GetResourceVersion(), recorded.(string))
	return err == nil && order < 0
}

func (t *Tracker) cache() *cache.Expiring {
	t.once.Do(func() { t.versions = cache.NewExpiring() })
	return t.versions
}
