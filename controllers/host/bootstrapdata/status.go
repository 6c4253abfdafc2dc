package bootstrapdata

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
)

// patchAnnotations writes annotations, and the finalizer if it is missing, in one patch. It removes annotations without
// a value. Changes of the status are written later.
func (s *state) patchAnnotations(ctx context.Context, annotations map[string]string) error {
	return s.PatchMetadata(ctx, func(config *bootstrapv1.PoolbootConfig) {
		controllerutil.AddFinalizer(config, bootstrapv1.Finalizer)
		for key, value := range annotations {
			if value == "" {
				delete(config.Annotations, key)
			} else {
				metav1.SetMetaDataAnnotation(&config.ObjectMeta, key, value)
			}
		}
	})
}
