package main

import (
	"fmt"
	"runtime"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/labels"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/component-base/version"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/secret"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// scheme knows every kind that the manager reads or writes, but for the Metal3 provider's, which are unstructured.
var scheme = apiruntime.NewScheme()

func init() {
	for _, add := range []func(*apiruntime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, clusterv1.AddToScheme,
		bmov1alpha1.AddToScheme, bootstrapv1.AddToScheme, poolv1.AddToScheme,
	} {
		utilruntime.Must(add(scheme))
	}
}

// userAgent is how API servers know the manager.
func userAgent() string {
	return fmt.Sprintf("%s/%s (%s/%s)", name, version.Get().GitVersion, runtime.GOOS, runtime.GOARCH)
}

// controllerConfig gives caches of large management clusters more than the usual 2 minutes to fill.
func controllerConfig() config.Controller {
	return config.Controller{CacheSyncTimeout: 5 * time.Minute}
}

// cacheOptions keeps of Secrets only Cluster API's kubeconfigs with their data, for the cluster cache: no other Secret is
// read through the cache (see clientOptions).
func cacheOptions(opts *options) ctrlcache.Options {
	ofACluster, err := labels.NewRequirement(clusterv1.ClusterNameLabel, selection.Exists, nil)
	utilruntime.Must(err)
	o := ctrlcache.Options{
		SyncPeriod:       &opts.syncPeriod,
		DefaultTransform: ctrlcache.TransformStripManagedFields(),
		ByObject: map[client.Object]ctrlcache.ByObject{
			&corev1.Secret{}: {
				Label: labels.NewSelector().Add(*ofACluster),
				Transform: func(in any) (any, error) {
					if s, ok := in.(*corev1.Secret); ok {
						s.ManagedFields = nil
						if !secret.HasPurposeSuffix(s.Name) {
							s.Data = nil
						}
					}
					return in, nil
				},
			},
		},
	}
	if opts.namespace != "" {
		o.DefaultNamespaces = map[string]ctrlcache.Config{opts.namespace: {}}
	}
	return o
}

// clientOptions reads Secrets from the API server, and what is unstructured from the cache.
func clientOptions() client.Options {
	return client.Options{Cache: &client.CacheOptions{
		DisableFor:   []client.Object{&corev1.Secret{}},
		Unstructured: true,
	}}
}
