package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/server"
)

// overlays finds overlay Secrets by the UID of their PoolbootConfig.
type overlays struct {
	kind[*corev1.Secret, types.UID, overlay]
}

// overlay is the content of an overlay Secret, or the error from reading it.
type overlay struct {
	*server.Overlay
	err error
}

func newOverlays() *overlays {
	return &overlays{kind[*corev1.Secret, types.UID, overlay]{
		object: &corev1.Secret{},
		of: func(secret *corev1.Secret) (types.UID, overlay) {
			read, err := overlayOf(secret)
			return record.OverlayOwner(secret.Name), overlay{read, err}
		},
	}}
}

func (o *overlays) Get(_ context.Context, config types.UID) (*server.Overlay, error) {
	if known := o.get(config); known != nil {
		return known.Overlay, known.err
	}
	return nil, nil
}

// overlayOf reads an overlay Secret. A Secret without a packed overlay was created by an older manager. It counts as
// missing, so a request is recorded and the manager creates it again.
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

// renderedConfigs finds packed rendered MachineConfigs by their name.
type renderedConfigs struct {
	kind[*poolv1.MachineConfig, types.NamespacedName, rendered]
}

// rendered is the download of one version of a rendered MachineConfig, or the error from packing it.
type rendered struct {
	*server.PoolBytes
	err        error
	uid        types.UID
	generation int64
}

func newRenderedConfigs() *renderedConfigs {
	r := &renderedConfigs{}
	r.object, r.of = &poolv1.MachineConfig{}, r.pack
	return r
}

// pack packs a rendered MachineConfig, unless this version is packed already: informers list all objects again from
// time to time.
func (r *renderedConfigs) pack(config *poolv1.MachineConfig) (types.NamespacedName, rendered) {
	name := client.ObjectKeyFromObject(config)
	if known := r.get(name); known != nil && known.uid == config.UID && known.generation == config.Generation {
		return name, *known
	}
	packed, err := server.PackRendered(config)
	return name, rendered{packed, err, config.UID, config.Generation}
}

func (r *renderedConfigs) Get(_ context.Context, name types.NamespacedName) (*server.PoolBytes, error) {
	if known := r.get(name); known != nil {
		return known.PoolBytes, known.err
	}
	return nil, nil
}

// size returns the number of bytes in memory.
func (r *rendered) size() int {
	if r == nil || r.PoolBytes == nil {
		return 0
	}
	return r.Size()
}
