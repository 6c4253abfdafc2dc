package main

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/server"
)

// liveQPS and liveBurst limit the requests to the API server by which a replica confirms answers that end a boot, so
// guessed tokens do not overload the API server. Beyond the limit, the answer is 503.
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
	return &server.Sources{Records: liveRecords{api}, Enrollments: liveEnrollments{api}, Overlays: liveOverlays{api, o.overlayNamespace}}, nil
}

type liveRecords struct{ api client.Reader }

func (l liveRecords) Get(ctx context.Context, name types.NamespacedName) (*server.Record, error) {
	var config bootstrapv1.PoolbootConfig
	if err := l.api.Get(ctx, name, &config); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	record := recordOf(&config)
	return &record, nil
}

type liveEnrollments struct{ api client.Reader }

func (l liveEnrollments) Get(ctx context.Context, name types.NamespacedName) (*server.Enrollment, error) {
	var enrollment poolv1.Enrollment
	if err := l.api.Get(ctx, name, &enrollment); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	found := enrollmentOf(&enrollment)
	return &found, nil
}

type liveOverlays struct {
	api       client.Reader
	namespace string
}

func (l liveOverlays) Get(ctx context.Context, config types.UID) (*server.Overlay, error) {
	var secret corev1.Secret
	err := l.api.Get(ctx, client.ObjectKey{Namespace: l.namespace, Name: record.OverlayName(config)}, &secret)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return overlayOf(&secret)
}
