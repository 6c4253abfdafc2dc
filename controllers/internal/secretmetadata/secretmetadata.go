// Package secretmetadata has caches of the metadata of Secrets that the manager's own cache does not contain.
package secretmetadata

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// New returns an object for the metadata of a Secret.
func New() *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}}
}

// NewHostSecrets adds a cache of the metadata of the Secrets of BareMetalHosts to a manager. The baremetal-operator
// labels each Secret that it reads. An empty namespace means all namespaces.
func NewHostSecrets(mgr ctrl.Manager, namespace string) (cache.Cache, error) {
	return NewCache(mgr, cache.Options{ByObject: map[client.Object]cache.ByObject{New(): {
		Label: labels.SelectorFromSet(labels.Set{"environment.metal3.io": "baremetal"}), Namespaces: map[string]cache.Config{namespace: {}},
	}}})
}

// NewCache adds a cache of the metadata of Secrets to a manager. The options select these Secrets.
func NewCache(mgr ctrl.Manager, options cache.Options) (cache.Cache, error) {
	options.HTTPClient, options.Scheme, options.Mapper = mgr.GetHTTPClient(), mgr.GetScheme(), mgr.GetRESTMapper()
	options.DefaultTransform = cache.TransformStripManagedFields()
	secrets, err := cache.New(mgr.GetConfig(), options)
	if err != nil {
		return nil, fmt.Errorf("cache of the metadata of Secrets: %w", err)
	}
	return secrets, mgr.Add(secrets)
}
