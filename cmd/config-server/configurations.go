package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/server"
)

// overlays finds overlay Secrets in the informer's cache.
type overlays struct {
	cache     client.Reader
	namespace string
}

func (o overlays) Get(ctx context.Context, config types.UID) (*server.Overlay, error) {
	var secret corev1.Secret
	err := o.cache.Get(ctx, client.ObjectKey{Namespace: o.namespace, Name: bootstrapv1.OverlayNamePrefix + string(config)}, &secret)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return overlayOf(&secret)
}

// overlayOf reads an overlay Secret. One without a packed overlay was made by an older manager: it is as if it were not there, so
// that it is asked for, and made anew.
func overlayOf(secret *corev1.Secret) (*server.Overlay, error) {
	packed := secret.Data[bootstrapv1.OverlayKey]
	if len(packed) == 0 {
		return nil, nil
	}
	expires, err := time.Parse(time.RFC3339, secret.Annotations[bootstrapv1.OverlayExpiresAnnotation])
	if err != nil {
		return nil, fmt.Errorf("overlay Secret %s/%s, annotation %s: %w. Delete the Secret; it is made anew",
			secret.Namespace, secret.Name, bootstrapv1.OverlayExpiresAnnotation, err)
	}
	return &server.Overlay{
		Packed:        ignition.PackedOverlay(packed),
		Configuration: secret.Annotations[bootstrapv1.OverlayConfigurationAnnotation],
		Expires:       expires,
		CredentialID:  secret.Annotations[bootstrapv1.CredentialIDAnnotation],
		Version:       string(secret.UID) + "/" + secret.ResourceVersion,
	}, nil
}

// renderedConfigs finds rendered MachineConfigs in the informer's cache.
type renderedConfigs struct{ cache client.Reader }

func (r renderedConfigs) Get(ctx context.Context, name types.NamespacedName) (*poolv1.MachineConfig, error) {
	var rendered poolv1.MachineConfig
	err := r.cache.Get(ctx, name, &rendered)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &rendered, nil
}
