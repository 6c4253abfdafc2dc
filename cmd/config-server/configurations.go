package main

import (
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
type overlays = kind[*corev1.Secret, types.UID, server.Overlay]

func newOverlays() *overlays {
	ownerOf := func(secret client.Object) types.UID { return record.OverlayOwner(secret.GetName()) }
	return newKind(&corev1.Secret{}, ownerOf, overlayOf)
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
		return nil, fmt.Errorf("overlay Secret %s/%s, annotation %s: %w. Delete the Secret; the manager creates it again",
			secret.Namespace, secret.Name, bootstrapv1.OverlayExpiresAnnotation, err)
	}
	return &server.Overlay{
		Packed:        ignition.PackedOverlay(packed),
		Configuration: secret.Annotations[bootstrapv1.OverlayConfigurationAnnotation],
		AgentSHA512:   secret.Annotations[bootstrapv1.OverlayAgentAnnotation],
		Expires:       expires,
		CredentialID:  secret.Annotations[bootstrapv1.CredentialIDAnnotation],
		Version:       string(secret.UID) + "/" + secret.ResourceVersion,
	}, nil
}

// assignments finds assignment Secrets by the UID of their PoolbootConfig.
type assignments = kind[*corev1.Secret, types.UID, server.Assigned]

func newAssignments() *assignments {
	ownerOf := func(secret client.Object) types.UID { return record.AssignmentOwner(secret.GetName()) }
	return newKind(&corev1.Secret{}, ownerOf, assignmentOf)
}

func assignmentOf(secret *corev1.Secret) (*server.Assigned, error) {
	assigned, err := server.PackAssignment(secret.Data[bootstrapv1.AssignmentKey], secret.Data[bootstrapv1.AssignmentClientCAKey])
	if err != nil {
		return nil, fmt.Errorf("assignment Secret %s/%s: %w. Delete the Secret; the manager creates it again", secret.Namespace, secret.Name, err)
	}
	return assigned, nil
}

// renderedConfigs finds packed rendered MachineConfigs by their name.
type renderedConfigs = kind[*poolv1.MachineConfig, types.NamespacedName, server.PoolBytes]

func newRenderedConfigs() *renderedConfigs {
	r := newKind(&poolv1.MachineConfig{}, client.ObjectKeyFromObject, server.PackRendered)
	r.convert = func(config *poolv1.MachineConfig) (*server.PoolBytes, error) {
		// Informers list all objects again from time to time.
		packed := r.lookup(client.ObjectKeyFromObject(config))
		if packed != nil && packed.UID == config.UID && packed.Generation == config.Generation {
			return packed.value, packed.err
		}
		return server.PackRendered(config)
	}
	return r
}

// enrollments finds Enrollments by their name.
type enrollments = kind[*poolv1.Enrollment, types.NamespacedName, server.Enrollment]

func newEnrollments() *enrollments {
	return newKind(&poolv1.Enrollment{}, client.ObjectKeyFromObject, withoutError(enrollmentOf))
}

func enrollmentOf(enrollment *poolv1.Enrollment) server.Enrollment {
	result := server.Enrollment{
		NamespacedName: client.ObjectKeyFromObject(enrollment),
		TokenSHA256:    enrollment.Status.TokenSHA256,
		TokenUID:       types.UID(enrollment.Status.TokenSecretUID),
		Role:           enrollment.Spec.PoolRole,
		Names:          enrollment.Spec.NamePattern,
		Expires:        enrollment.Spec.ExpirationTime.Time,
		Requests:       make(map[string]server.EnrollmentRequest, len(enrollment.Status.Requests)),
	}
	for _, request := range enrollment.Status.Requests {
		result.Requests[request.Name] = server.EnrollmentRequest{
			Time: request.RequestedTime.Time, Address: request.Address, Refused: request.Refused,
		}
	}
	return result
}
