package main

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/server"
)

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
