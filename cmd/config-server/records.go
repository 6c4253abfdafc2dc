package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/server"
)

// records finds PoolbootConfigs by the id in their pointer.
type records struct {
	kind[*bootstrapv1.PoolbootConfig, string, server.Record]
}

func newRecords() *records {
	return &records{kind[*bootstrapv1.PoolbootConfig, string, server.Record]{
		object: &bootstrapv1.PoolbootConfig{},
		of: func(config *bootstrapv1.PoolbootConfig) (string, server.Record) {
			return config.Annotations[bootstrapv1.PointerIDAnnotation], recordOf(config)
		},
	}}
}

func (r *records) ByPointerID(_ context.Context, id string) ([]server.Record, error) {
	return r.get(id), nil
}

func recordOf(config *bootstrapv1.PoolbootConfig) server.Record {
	boot := config.Status.Boot
	prepared := meta.FindStatusCondition(config.Status.Conditions, bootstrapv1.BootPreparedCondition)
	used := ""
	if boot.Certificate != nil {
		used = boot.Certificate.CredentialID
	}
	return server.Record{
		NamespacedName: client.ObjectKeyFromObject(config),
		UID:            config.UID,
		TokenSHA256:    config.Annotations[bootstrapv1.TokenHashAnnotation],
		Rotating:       metav1.HasAnnotation(config.ObjectMeta, bootstrapv1.RotateTokenAnnotation),
		RequestedTime:  timeOf(boot.RequestedTime),
		PreparedTime:   timeOf(boot.PreparedTime),
		ServedTime:     timeOf(boot.ServedTime),
		Enrolment:      config.Annotations[bootstrapv1.EnrolmentAnnotation],
		EnrolledFrom:   config.Annotations[bootstrapv1.EnrolledFromAnnotation],
		CredentialID:   boot.CredentialID,
		UsedCredential: used,
		Troubled:       prepared != nil && prepared.Status == metav1.ConditionFalse,
		Pending:        pending(prepared),
	}
}

func timeOf(t *metav1.MicroTime) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}

// pending is why the boot is not prepared, as its controller tells it by its condition.
func pending(prepared *metav1.Condition) string {
	if prepared == nil || prepared.Status == metav1.ConditionTrue {
		return ""
	}
	return fmt.Sprintf("%s: %s", prepared.Reason, prepared.Message)
}

// bootRecorder writes into the status of PoolbootConfigs. A merge patch that names one field takes no part in conflicts
// with those who own the others.
type bootRecorder struct{ client client.Client }

func (b bootRecorder) Requested(ctx context.Context, record server.Record, at time.Time) error {
	return b.patch(ctx, record, bootstrapv1.BootStatus{RequestedTime: &metav1.MicroTime{Time: at}})
}

func (b bootRecorder) Served(ctx context.Context, record server.Record, at time.Time) error {
	return b.patch(ctx, record, bootstrapv1.BootStatus{ServedTime: &metav1.MicroTime{Time: at}})
}

func (b bootRecorder) patch(ctx context.Context, record server.Record, boot bootstrapv1.BootStatus) error {
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"boot": boot}})
	if err != nil {
		return err
	}
	config := &bootstrapv1.PoolbootConfig{ObjectMeta: metav1.ObjectMeta{Namespace: record.Namespace, Name: record.Name}}
	return b.client.Status().Patch(ctx, config, client.RawPatch(types.MergePatchType, patch))
}
