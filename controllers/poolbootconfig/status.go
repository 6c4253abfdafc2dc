package poolbootconfig

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/status"
)

// writeStatus writes every change of the status in one patch, so Ready is never True without dataSecretName.
func (r *Reconciler) writeStatus(ctx context.Context, s *scope) error {
	written := s.config.DeepCopy()
	if err := status.PoolbootConfig.Patch(ctx, r.Client, s.before, written); err != nil {
		return err
	}
	r.written.Record(written)
	s.before, s.config = written, written.DeepCopy()
	return nil
}

// patchAnnotations writes annotations, and the finalizer if it is missing, in one patch. It removes annotations without
// a value. Changes of the status are written later.
func (r *Reconciler) patchAnnotations(ctx context.Context, s *scope, annotations map[string]string) error {
	written := s.before.DeepCopy()
	controllerutil.AddFinalizer(written, bootstrapv1.Finalizer)
	for key, value := range annotations {
		if value == "" {
			delete(written.Annotations, key)
		} else {
			metav1.SetMetaDataAnnotation(&written.ObjectMeta, key, value)
		}
	}
	if equality.Semantic.DeepEqual(written.ObjectMeta, s.before.ObjectMeta) {
		return nil
	}
	if err := r.Client.Patch(ctx, written, status.Locked(s.before)); err != nil {
		return err
	}
	r.written.Record(written)
	s.before.ObjectMeta = written.ObjectMeta
	written.ObjectMeta.DeepCopyInto(&s.config.ObjectMeta)
	return nil
}
