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
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/server"
)

// liveQPS and liveBurst bound how often a replica asks the API server before it refuses a host for good: who guesses tokens must
// not keep it from anything else. Refusals beyond that are 503.
const (
	liveQPS   = 10
	liveBurst = 20
)

// newLive returns sources that read every object live. Which objects these are is looked up in what the server knows: by name alone none can
// be found that the server has not heard of.
func newLive(config *rest.Config, scheme *runtime.Scheme, known *sources, namespace string) (*server.Sources, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst = liveQPS, liveBurst
	api, err := client.New(config, client.Options{Scheme: scheme, Mapper: newMapper()})
	if err != nil {
		return nil, err
	}
	return &server.Sources{
		Records: liveRecords{known.records, api}, Enrolments: liveEnrolments{known.enrolments, api}, Overlays: liveOverlays{api, namespace},
	}, nil
}

type liveRecords struct {
	known *records
	api   client.Reader
}

func (l liveRecords) ByPointerID(ctx context.Context, id string) ([]server.Record, error) {
	known, err := l.known.ByPointerID(ctx, id)
	if err != nil {
		return nil, err
	}
	found := make([]server.Record, 0, len(known))
	for i := range known {
		var config bootstrapv1.PoolbootConfig
		switch err := l.api.Get(ctx, known[i].NamespacedName, &config); {
		case apierrors.IsNotFound(err):
		case err != nil:
			return nil, err
		case config.Annotations[bootstrapv1.PointerIDAnnotation] == id:
			found = append(found, recordOf(&config))
		}
	}
	return found, nil
}

type liveEnrolments struct {
	known *enrolments
	api   client.Reader
}

func (l liveEnrolments) ByTokenSHA256(ctx context.Context, sum string) ([]server.Enrolment, error) {
	known, err := l.known.ByTokenSHA256(ctx, sum)
	if err != nil {
		return nil, err
	}
	found := make([]server.Enrolment, 0, len(known))
	for i := range known {
		var enrolment poolv1.Enrolment
		switch err := l.api.Get(ctx, known[i].NamespacedName, &enrolment); {
		case apierrors.IsNotFound(err):
		case err != nil:
			return nil, err
		case enrolment.Spec.TokenSHA256 == sum:
			found = append(found, enrolmentOf(&enrolment))
		}
	}
	return found, nil
}

type liveOverlays struct {
	api       client.Reader
	namespace string
}

func (l liveOverlays) Get(ctx context.Context, config types.UID) (*server.Overlay, error) {
	var secret corev1.Secret
	err := l.api.Get(ctx, client.ObjectKey{Namespace: l.namespace, Name: bootstrapv1.OverlayNamePrefix + string(config)}, &secret)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return overlayOf(&secret)
}
