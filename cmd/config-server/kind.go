package main

import (
	"context"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// kind is what the server knows of the objects of one kind: of each a value of its own, made once from what the API server sent,
// which is then dropped. They are found by the keys that hosts ask by, without a copy.
type kind[O client.Object, K comparable, V any] struct {
	// object is an empty one.
	object O

	// of returns what the server needs of an object, and the key by which it is asked for. An object whose key is empty is not
	// found.
	of func(O) (K, V)

	mu     sync.RWMutex
	values map[K]named[V]
}

// named are the values of one key and the names of their objects, in the same order. Readers share them: a change makes new ones.
type named[V any] struct {
	names  []types.NamespacedName
	values []V
}

// made is an object as the informer stores it.
type made[K comparable, V any] struct {
	metav1.PartialObjectMetadata
	key   K
	value V
}

// get returns the values of a key. Nobody may change them.
func (k *kind[O, K, V]) get(key K) []V {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.values[key].values
}

// transform is the informer's: it may meet an object a second time.
func (k *kind[O, K, V]) transform(object any) (any, error) {
	sent, is := object.(O)
	if !is {
		return object, nil
	}
	of := &made[K, V]{PartialObjectMetadata: metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: sent.GetNamespace(), Name: sent.GetName(), UID: sent.GetUID(), ResourceVersion: sent.GetResourceVersion(),
	}}}
	of.key, of.value = k.of(sent)
	return of, nil
}

// follow keeps the values as the informer's objects are, and then tells what has changed: from one value (nil when there was none)
// to another (nil when there is none any more). What it returns says whether all that was there at the start is known.
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
	was, hadOne := before.(*made[K, V])
	is, hasOne := after.(*made[K, V])
	same := hadOne && hasOne && was.key == is.key
	k.mu.Lock()
	if hadOne && !same {
		k.drop(was)
	}
	if hasOne {
		k.put(is)
	}
	k.mu.Unlock()
	switch {
	case same:
		changed(is.key, &was.value, &is.value)
		return
	case hadOne:
		changed(was.key, &was.value, nil)
	}
	if hasOne {
		changed(is.key, nil, &is.value)
	}
}

func (k *kind[O, K, V]) drop(object *made[K, V]) {
	of := k.values[object.key]
	at := slices.Index(of.names, client.ObjectKeyFromObject(object))
	switch {
	case at < 0:
	case len(of.names) == 1:
		delete(k.values, object.key)
	default:
		k.values[object.key] = named[V]{slices.Delete(slices.Clone(of.names), at, at+1), slices.Delete(slices.Clone(of.values), at, at+1)}
	}
}

func (k *kind[O, K, V]) put(object *made[K, V]) {
	var none K
	if object.key == none {
		return
	}
	if k.values == nil {
		k.values = map[K]named[V]{}
	}
	of := k.values[object.key]
	of = named[V]{slices.Clone(of.names), slices.Clone(of.values)}
	if at := slices.Index(of.names, client.ObjectKeyFromObject(object)); at >= 0 {
		of.values[at] = object.value
	} else {
		of.names, of.values = append(of.names, client.ObjectKeyFromObject(object)), append(of.values, object.value)
	}
	k.values[object.key] = of
}
