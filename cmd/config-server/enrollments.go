package main

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/server"
)

// enrollments finds Enrollments by their name.
type enrollments struct {
	kind[*poolv1.Enrollment, types.NamespacedName, server.Enrollment]
}

func newEnrollments() *enrollments {
	return &enrollments{kind[*poolv1.Enrollment, types.NamespacedName, server.Enrollment]{
		object: &poolv1.Enrollment{},
		of: func(enrollment *poolv1.Enrollment) (types.NamespacedName, server.Enrollment) {
			return client.ObjectKeyFromObject(enrollment), enrollmentOf(enrollment)
		},
	}}
}

func (e *enrollments) Get(_ context.Context, name types.NamespacedName) (*server.Enrollment, error) {
	return e.get(name), nil
}

func enrollmentOf(enrollment *poolv1.Enrollment) server.Enrollment {
	found := server.Enrollment{
		NamespacedName: client.ObjectKeyFromObject(enrollment),
		TokenSHA256:    enrollment.Status.TokenSHA256,
		TokenUID:       types.UID(enrollment.Status.TokenSecretUID),
		Role:           enrollment.Spec.PoolRole,
		Names:          enrollment.Spec.NamePattern,
		Expires:        enrollment.Spec.ExpirationTime.Time,
		Requests:       make(map[string]server.EnrollmentRequest, len(enrollment.Status.Requests)),
	}
	for name, request := range enrollment.Status.Requests {
		found.Requests[name] = server.EnrollmentRequest{Time: request.RequestedTime.Time, Address: request.Address, Refused: request.Refused}
	}
	return found
}

// admissionRecorder writes into the status of Enrollments, by a merge patch that names one host.
type admissionRecorder struct{ client client.Client }

func (a admissionRecorder) Asked(ctx context.Context, enrollment server.Enrollment, name, address string, at time.Time) error {
	asks := map[string]any{"requestedTime": metav1.MicroTime{Time: at}, "address": address, "tokenSHA256": enrollment.TokenSHA256, "refused": nil}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"requests": map[string]any{name: asks}}})
	if err != nil {
		return err
	}
	object := &poolv1.Enrollment{ObjectMeta: metav1.ObjectMeta{Namespace: enrollment.Namespace, Name: enrollment.Name}}
	err = a.client.Status().Patch(ctx, object, client.RawPatch(types.MergePatchType, patch))
	if isFull(err) {
		return server.ErrEnrollmentFull
	}
	return err
}

// isFull says whether the API server refused a request because an Enrollment holds too many.
func isFull(err error) bool {
	cause := (apierrors.APIStatus)(nil)
	if !apierrors.IsInvalid(err) || !errors.As(err, &cause) || cause.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(cause.Status().Details.Causes, func(c metav1.StatusCause) bool {
		return c.Field == "status.requests" && c.Type == metav1.CauseType(field.ErrorTypeTooMany)
	})
}
