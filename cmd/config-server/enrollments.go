package main

import (
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/server"
)

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
