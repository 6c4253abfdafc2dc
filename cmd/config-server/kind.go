package main

import (
	"context"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// kind keeps a value for each object of one kind. The value is computed once from the object that the API server sends,
// and the object is dropped. Values are found by their key, and not copied. The key follows from the name of the
// object, so a key has at most one value, and the key of an object never changes.
type kind[O client.Object, K comparable, V any] struct {
	// object is an empty object.
	object O

	// of returns the key and the value of an object.
	of func(O) (K, V)

	mu     sync.RWMutex
	values map[K]*V
}

// made is what the informer stores of an object.
type made[K comparable, V any] struct {
	metav1.PartialObjectMetadata
	key   K
	value V
}

// Get is get with the signature of the server's interfaces.
func (k *kind[O, K, V]) Get(_ context.Context, key K) (*V, error) { //nolint:unparam // The server's interfaces return errors.
	return k.get(key), nil
}

// get returns the value of a key, or nil. It must not be modified.
func (k *kind[O, K, V]) get(key K) *V {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.values[key]
}

// transform is the transform function of the informer, which can call it again with its result.
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

// follow updates the values from the informer, and calls changed after every update. The value before is nil if the
// object is new, and the value after is nil if it was deleted. The returned function reports whether the values of all
// objects that existed at the start are known.
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
