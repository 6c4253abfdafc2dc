package main

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// kind is what the server knows of the objects of one kind: of each a value of its own, made once from what the API
// server sent, which is then dropped. They are found by the keys that hosts ask by, without a copy. A key follows from
// the name of its object, so each has one value at most, and an object keeps its key.
type kind[O client.Object, K comparable, V any] struct {
	// object is an empty one.
	object O

	// of returns what the server needs of an object, and the key by which it is asked for.
	of func(O) (K, V)

	mu     sync.RWMutex
	values map[K]*V
}

// made is an object as the informer stores it.
type made[K comparable, V any] struct {
	metav1.PartialObjectMetadata
	key   K
	value V
}

// Get is get as the server's sources have it.
func (k *kind[O, K, V]) Get(_ context.Context, key K) (*V, error) { //nolint:unparam // The server's interfaces return errors.
	return k.get(key), nil
}

// get returns the value of a key, or nil. Nobody may change it.
func (k *kind[O, K, V]) get(key K) *V {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.values[key]
}

// transform is the informer's: it may meet an object a second time.
func (k *kind[O, K, V]) transform(object any) (any, error) {
	sent, ok := object.(O)
	if !ok {
		return object, nil
	}
	of := &made[K, V]{PartialObjectMetadata: metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: sent.GetNamespace(), Name: sent.GetName(), UID: sent.GetUID(), ResourceVersion: sent.GetResourceVersion(),
	}}}
	of.key, of.value = k.of(sent)
	return of, nil
}

// follow keeps the values as the informer's objects are, and then tells what has changed: from one value (nil when
// there was none) to another (nil when there is none any more). What it returns says whether all that was there at the
// start is known.
func (k *kind[O, K, V]) follow(ctx context.Context, objects cache.Cache, changed func(key K, before, after *V)) (toolscache.InformerSynced, error) {
	informer, err := objects.GetInformer(ctx, k.object, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, err
	}
	handled, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { k.change(nil, object, changed) },
		UpdateFunc: func(before, after any) { k.change(before, after, changed) },
		DeleteFunc: func(object any) { k.change(object, nil, changed) },
	})
	if err != nil {
		return nil, err
	}
	return handled.HasSynced, nil
}

func (k *kind[O, K, V]) change(before, after any, changed func(key K, before, after *V)) {
	if gone, ok := before.(toolscache.DeletedFinalStateUnknown); ok {
		before = gone.Obj
	}
	var was, got *V
	var key K
	if object, had := before.(*made[K, V]); had {
		key, was = object.key, &object.value
	}
	if object, has := after.(*made[K, V]); has {
		key, got = object.key, &object.value
	}
	k.mu.Lock()
	switch {
	case got != nil && k.values == nil:
		k.values = map[K]*V{key: got}
	case got != nil:
		k.values[key] = got
	default:
		delete(k.values, key)
	}
	k.mu.Unlock()
	changed(key, was, got)
}
