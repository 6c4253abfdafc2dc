package assignments

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
)

// NewMetadata returns an object for the metadata of a Secret.
func NewMetadata() *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}}
}

// NewMetadataCache adds a cache of the metadata of the Secrets in a namespace to a manager. The manager's own cache has
// no Secrets except kubeconfigs.
func NewMetadataCache(mgr ctrl.Manager, namespace string) (cache.Cache, error) {
	secrets, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(),
		DefaultNamespaces: map[string]cache.Config{namespace: {}}, DefaultTransform: cache.TransformStripManagedFields(),
	})
	if err != nil {
		return nil, fmt.Errorf("cache of the metadata of Secrets: %w", err)
	}
	return secrets, mgr.Add(secrets)
}
