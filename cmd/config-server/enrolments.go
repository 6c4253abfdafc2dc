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

// enrolments finds Enrolments by their name.
type enrolments struct {
	kind[*poolv1.Enrolment, types.NamespacedName, server.Enrolment]
}

func newEnrolments() *enrolments {
	return &enrolments{kind[*poolv1.Enrolment, types.NamespacedName, server.Enrolment]{
		object: &poolv1.Enrolment{},
		of: func(enrolment *poolv1.Enrolment) (types.NamespacedName, server.Enrolment) {
			return client.ObjectKeyFromObject(enrolment), enrolmentOf(enrolment)
		},
	}}
}

func (e *enrolments) Get(_ context.Context, name types.NamespacedName) (*server.Enrolment, error) {
	return e.get(name), nil
}

func enrolmentOf(enrolment *poolv1.Enrolment) server.Enrolment {
	found := server.Enrolment{
		NamespacedName: client.ObjectKeyFromObject(enrolment),
		TokenSHA256:    enrolment.Spec.TokenSHA256,
		TokenUID:       types.UID(enrolment.Spec.SecretUID),
		Role:           enrolment.Spec.Role,
		Names:          enrolment.Spec.Names,
		Requests:       make(map[string]server.EnrolmentRequest, len(enrolment.Status.Requests)),
	}
	if owner := metav1.GetControllerOfNoCopy(enrolment); owner != nil && owner.APIVersion == "v1" && owner.Kind == "Secret" {
		found.Secret = owner.UID
	}
	if enrolment.Spec.Expires != nil {
		found.Expires = enrolment.Spec.Expires.Time
	}
	for name, request := range enrolment.Status.Requests {
		found.Requests[name] = server.EnrolmentRequest{Time: request.Time.Time, Address: request.Address, Refused: request.Refused}
	}
	return found
}

// admissionRecorder writes into the status of Enrolments, by a merge patch that names one host.
type admissionRecorder struct{ client client.Client }

func (a admissionRecorder) Asked(ctx context.Context, enrolment server.Enrolment, name, address string, at time.Time) error {
	asks := map[string]any{"time": metav1.MicroTime{Time: at}, "address": address, "tokenSHA256": enrolment.TokenSHA256, "refused": nil}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"requests": map[string]any{name: asks}}})
	if err != nil {
		return err
	}
	object := &poolv1.Enrolment{ObjectMeta: metav1.ObjectMeta{Namespace: enrolment.Namespace, Name: enrolment.Name}}
	err = a.client.Status().Patch(ctx, object, client.RawPatch(types.MergePatchType, patch))
	if isFull(err) {
		return server.ErrEnrolmentFull
	}
	return err
}

// isFull says whether the API server refused a request because an Enrolment holds too many.
func isFull(err error) bool {
	cause := (apierrors.APIStatus)(nil)
	if !apierrors.IsInvalid(err) || !errors.As(err, &cause) || cause.Status().Details == nil {
		return false
	}
	return slices.ContainsFunc(cause.Status().Details.Causes, func(c metav1.StatusCause) bool {
		return c.Field == "status.requests" && c.Type == metav1.CauseType(field.ErrorTypeTooMany)
	})
}
