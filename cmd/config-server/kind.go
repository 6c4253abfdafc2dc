package main

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/server"
)

// kind keeps a value for each object of one kind. The value is computed once from the object that the API server sends,
// and the object is dropped. Values are found by their key, and not copied. The key follows from the name of the
// object, so a key has at most one value, and the key of an object never changes.
type kind[O client.Object, K comparable, V any] struct {
	object  O                     // an empty object
	keyOf   func(client.Object) K // returns the key of an object
	convert func(O) (*V, error)   // returns the value of an object

	mu     sync.RWMutex
	values map[K]*converted[K, V]
}

// converted is what the informer stores of an object: its value, or the error from computing it.
type converted[K comparable, V any] struct {
	metav1.PartialObjectMetadata
	key   K
	value *V
	err   error
}

func newKind[O client.Object, K comparable, V any](object O, keyOf func(client.Object) K, convert func(O) (*V, error)) *kind[O, K, V] {
	return &kind[O, K, V]{object: object, keyOf: keyOf, convert: convert, values: map[K]*converted[K, V]{}}
}

// withoutError returns a conversion that never fails as one of newKind.
func withoutError[O, V any](convert func(O) V) func(O) (*V, error) {
	return func(object O) (*V, error) {
		value := convert(object)
		return &value, nil
	}
}

// Get returns the value of a key, or nil. It must not be modified.
func (k *kind[O, K, V]) Get(_ context.Context, key K) (*V, error) {
	if current := k.lookup(key); current != nil {
		return current.value, current.err
	}
	return nil, nil
}

// lookup returns what is stored for a key, or nil.
func (k *kind[O, K, V]) lookup(key K) *converted[K, V] {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.values[key]
}

// transform is the transform function of the informer, which can call it again with its result.
func (k *kind[O, K, V]) transform(object any) (any, error) {
	received, ok := object.(O)
	if !ok {
		return object, nil
	}
	result := &converted[K, V]{key: k.keyOf(received), PartialObjectMetadata: metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: received.GetNamespace(), Name: received.GetName(), UID: received.GetUID(),
		ResourceVersion: received.GetResourceVersion(), Generation: received.GetGeneration(),
	}}}
	result.value, result.err = k.convert(received)
	return result, nil
}

// follow updates the values from the informer, and calls changed after every update. The value before is nil if the
// object is new, and the value after is nil if it was deleted. The returned function reports whether the values of all
// objects that existed at the start are known.
func (k *kind[O, K, V]) follow(
	ctx context.Context, objects cache.Cache, changed func(key K, before, after *V),
) (toolscache.InformerSynced, error) {
	informer, err := objects.GetInformer(ctx, k.object, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, err
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { k.change(nil, object, changed) },
		UpdateFunc: func(before, after any) { k.change(before, after, changed) },
		DeleteFunc: func(object any) { k.change(object, nil, changed) },
	})
	if err != nil {
		return nil, err
	}
	return registration.HasSynced, nil
}

func (k *kind[O, K, V]) change(before, after any, changed func(key K, before, after *V)) {
	if tombstone, ok := before.(toolscache.DeletedFinalStateUnknown); ok {
		before = tombstone.Obj
	}
	var key K
	var oldValue, newValue *V
	if old, ok := before.(*converted[K, V]); ok {
		key, oldValue = old.key, old.value
	}
	k.mu.Lock()
	if current, ok := after.(*converted[K, V]); ok {
		key, newValue = current.key, current.value
		k.values[key] = current
	} else {
		delete(k.values, key)
	}
	k.mu.Unlock()
	changed(key, oldValue, newValue)
}

// liveQPS and liveBurst limit the requests to the API server by which a replica confirms answers that end a boot or an
// update, so guessed tokens and foreign certificates do not overload the API server. Beyond the limit, the answer is
// 503.
const (
	liveQPS   = 10
	liveBurst = 20
)

// newLive returns sources that read every object from the API server.
func newLive(config *rest.Config, scheme *runtime.Scheme, o *options) (*server.Sources, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = liveQPS, liveBurst
	api, err := client.New(config, client.Options{Scheme: scheme, Mapper: newMapper()})
	if err != nil {
		return nil, err
	}
	byName := func(name types.NamespacedName) types.NamespacedName { return name }
	secret := func(nameOf func(types.UID) string) func(types.UID) types.NamespacedName {
		return func(config types.UID) types.NamespacedName {
			return types.NamespacedName{Namespace: o.overlayNamespace, Name: nameOf(config)}
		}
	}
	return &server.Sources{
		Records:     &live[*bootstrapv1.PoolbootConfig, types.NamespacedName, server.Record]{newRecords(), api, byName},
		Enrollments: &live[*poolv1.Enrollment, types.NamespacedName, server.Enrollment]{newEnrollments(), api, byName},
		Overlays:    &live[*corev1.Secret, types.UID, server.Overlay]{newOverlays(), api, secret(record.OverlayName)},
		Assignments: &live[*corev1.Secret, types.UID, server.Assigned]{newAssignments(), api, secret(record.AssignmentName)},
	}, nil
}

// live reads objects of one kind from the API server.
type live[O client.Object, K comparable, V any] struct {
	kind   *kind[O, K, V] // without values
	api    client.Reader
	nameOf func(K) types.NamespacedName
}

func (l *live[O, K, V]) Get(ctx context.Context, key K) (*V, error) {
	object := l.kind.object.DeepCopyObject().(O)
	if err := l.api.Get(ctx, l.nameOf(key), object); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return l.kind.convert(object)
}
