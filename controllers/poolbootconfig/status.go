package poolbootconfig

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
)

// writeStatus writes every change of the status in one patch, so that Ready never stands before dataSecretName. The
// optimistic lock keeps the list of conditions, which other controllers write too, from being set back.
func (r *Reconciler) writeStatus(ctx context.Context, s *scope) error {
	if equality.Semantic.DeepEqual(s.before.Status, s.config.Status) {
		return nil
	}
	written := s.config.DeepCopy()
	if err := r.Client.Status().Patch(ctx, written, locked(s.before)); err != nil {
		return err
	}
	r.written.Note(written)
	s.before, s.config = written, written.DeepCopy()
	return nil
}

// mark writes annotations, and the finalizer if it is missing, at once, and takes away annotations without a value;
// changes of the status stay to be written.
func (r *Reconciler) mark(ctx context.Context, s *scope, annotations map[string]string) error {
	written := s.before.DeepCopy()
	changed := controllerutil.AddFinalizer(written, bootstrapv1.Finalizer)
	for key, value := range annotations {
		if was, has := written.Annotations[key]; value == "" && has {
			delete(written.Annotations, key)
			changed = true
		} else if was != value {
			metav1.SetMetaDataAnnotation(&written.ObjectMeta, key, value)
			changed = true
		}
	}
	if !changed {
		return nil
	}
	if err := r.Client.Patch(ctx, written, locked(s.before)); err != nil {
		return err
	}
	r.written.Note(written)
	s.before.ObjectMeta = written.ObjectMeta
	written.ObjectMeta.DeepCopyInto(&s.config.ObjectMeta)
	return nil
}

func locked(before client.Object) client.Patch {
	return client.MergeFromWithOptions(before.DeepCopyObject().(client.Object), client.MergeFromWithOptimisticLock{})
}
