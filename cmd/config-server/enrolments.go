package main

import (
	"context"
	"encoding/json"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/server"
)

// tokenIndex indexes Enrolments by the SHA-256 of their token.
const tokenIndex = "tokenSHA256"

func tokenSHA256(object client.Object) []string {
	if enrolment, is := object.(*poolv1.Enrolment); is && enrolment.Spec.TokenSHA256 != "" {
		return []string{enrolment.Spec.TokenSHA256}
	}
	return nil
}

// enrolments finds Enrolments in the informer's cache.
type enrolments struct{ cache client.Reader }

func (e enrolments) ByTokenSHA256(ctx context.Context, sum string) ([]server.Enrolment, error) {
	var list poolv1.EnrolmentList
	if err := e.cache.List(ctx, &list, client.MatchingFields{tokenIndex: sum}); err != nil {
		return nil, err
	}
	found := make([]server.Enrolment, 0, len(list.Items))
	for i := range list.Items {
		found = append(found, enrolmentOf(&list.Items[i]))
	}
	return found, nil
}

func enrolmentOf(enrolment *poolv1.Enrolment) server.Enrolment {
	found := server.Enrolment{
		NamespacedName: client.ObjectKeyFromObject(enrolment),
		Role:           enrolment.Spec.Role,
		Names:          enrolment.Spec.Names,
		Requests:       make(map[string]server.EnrolmentRequest, len(enrolment.Status.Requests)),
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

func (a admissionRecorder) Asked(ctx context.Context, enrolment server.Enrolment, name, address, tokenSHA256 string, at time.Time) error {
	asks := map[string]any{"time": metav1.MicroTime{Time: at}, "address": address, "tokenSHA256": tokenSHA256, "refused": nil}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"requests": map[string]any{name: asks}}})
	if err != nil {
		return err
	}
	object := &poolv1.Enrolment{ObjectMeta: metav1.ObjectMeta{Namespace: enrolment.Namespace, Name: enrolment.Name}}
	return a.client.Status().Patch(ctx, object, client.RawPatch(types.MergePatchType, patch))
}
