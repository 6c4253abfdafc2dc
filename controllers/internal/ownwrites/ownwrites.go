// Package ownwrites keeps a reconciler from starting on what its own last write has overtaken: an object from a cache
// that has not seen that write yet. Doing so ends in a conflict at best, and costs requests either way.
package ownwrites

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Patience is how long a cache may lag behind a write before it counts as all there is, as after an API server's return
// from a backup, when versions begin anew. A reconciler that finds its cache behind looks again after that, if no event
// of the write has brought the object before.
const Patience = 5 * time.Second

// Tracker remembers the version of each object that its owner last wrote. The zero value is ready to use, also by
// several goroutines.
type Tracker struct {
	once sync.Once
	last *cache.Expiring // identity → resource version
}

type identity struct {
	uid types.UID
	key client.ObjectKey
}

func of(object client.Object) identity {
	return identity{uid: object.GetUID(), key: client.ObjectKeyFromObject(object)}
}

// Note remembers an object as the API server returned it from a write.
func (t *Tracker) Note(object client.Object) {
	t.memory().Set(of(object), object.GetResourceVersion(), Patience)
}

// Behind says whether an object that a cache returned is older than what was noted of it.
func (t *Tracker) Behind(object client.Object) bool {
	last, found := t.memory().Get(of(object))
	if !found {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(object.GetResourceVersion(), last.(string))
	return err == nil && order < 0
}

func (t *Tracker) memory() *cache.Expiring {
	t.once.Do(func() { t.last = cache.NewExpiring() })
	return t.last
}
