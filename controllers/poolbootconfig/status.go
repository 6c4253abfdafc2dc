package poolbootconfig

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"
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

// annotate writes annotations at once; changes of the status stay to be written.
func (r *Reconciler) annotate(ctx context.Context, s *scope, annotations map[string]string) error {
	written := s.before.DeepCopy()
	if written.Annotations == nil {
		written.Annotations = map[string]string{}
	}
	changed := false
	for key, value := range annotations {
		changed = changed || written.Annotations[key] != value
		written.Annotations[key] = value
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
