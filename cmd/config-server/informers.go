package main

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/server"
)

func newScheme() (*runtime.Scheme, error) {
	scheme := runtime.NewScheme()
	builder := runtime.NewSchemeBuilder(corev1.AddToScheme, bootstrapv1.AddToScheme, poolv1.AddToScheme)
	return scheme, builder.AddToScheme(scheme)
}

// newMapper returns the API paths of the server's kinds, without discovery. With discovery, the first write of a client
// would block while the API server cannot be reached.
func newMapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []schema.GroupVersionKind{
		bootstrapv1.GroupVersion.WithKind("PoolbootConfig"), poolv1.GroupVersion.WithKind("MachineConfig"),
		poolv1.GroupVersion.WithKind("Enrollment"), corev1.SchemeGroupVersion.WithKind("Secret"),
	} {
		mapper.Add(kind, meta.RESTScopeNamespace)
	}
	return mapper
}

// newCache returns informers for the objects that the answers depend on: PoolbootConfigs, rendered MachineConfigs,
// Enrollments, and the overlay Secrets in the server's own namespace. Rendered configs have no watch filter label,
// because the records decide which host gets one. The informers store only what the sources compute from each object: a
// rendered config is four times as large as its download.
func newCache(config *rest.Config, scheme *runtime.Scheme, o *options, s *sources) (cache.Cache, error) {
	rendered, renderedErr := labels.Parse(poolv1.RenderedForLabel)
	overlay, overlayErr := labels.Parse(bootstrapv1.OverlayLabel)
	if err := errors.Join(renderedErr, overlayErr); err != nil {
		return nil, err
	}
	var watched map[string]cache.Config // nil: all namespaces
	if o.namespace != "" {
		watched = map[string]cache.Config{o.namespace: {}}
	}
	filtered := labels.Everything()
	if o.watchFilter != "" {
		filtered = labels.SelectorFromValidatedSet(labels.Set{clusterv1.WatchLabel: o.watchFilter})
	}
	return cache.New(config, cache.Options{
		Scheme:                      scheme,
		Mapper:                      newMapper(),
		ReaderFailOnMissingInformer: true,
		ByObject: map[client.Object]cache.ByObject{
			&bootstrapv1.PoolbootConfig{}: {Namespaces: watched, Label: filtered, Transform: s.records.transform},
			&poolv1.MachineConfig{}:       {Namespaces: watched, Label: rendered, Transform: s.rendered.transform},
			&poolv1.Enrollment{}:          {Namespaces: watched, Label: filtered, Transform: s.enrollments.transform},
			&corev1.Secret{}:              {Namespaces: map[string]cache.Config{o.overlayNamespace: {}}, Label: overlay, Transform: s.overlays.transform},
		},
	})
}

// sources has the data that the answers depend on.
type sources struct {
	records     *records
	enrollments *enrollments
	overlays    *overlays
	rendered    *renderedConfigs
}

func newSources() *sources {
	return &sources{newRecords(), newEnrollments(), newOverlays(), newRenderedConfigs()}
}

// follow starts the informers and notifies the server of every change that hosts can wait for. The sources have the
// change before the notification, so a read after the notification sees it. The returned functions report whether the
// sources have all objects that existed at the start.
func (s *sources) follow(
	ctx context.Context, objects cache.Cache, handler *server.Server, metrics *server.Metrics,
) (synced [4]toolscache.InformerSynced, err error) {
	var errs [4]error
	synced[0], errs[0] = s.records.follow(ctx, objects, keyOnly[server.Record](handler.RecordChanged))
	synced[1], errs[1] = s.enrollments.follow(ctx, objects, keyOnly[server.Enrollment](handler.EnrollmentChanged))
	synced[2], errs[2] = s.overlays.follow(ctx, objects, keyOnly[server.Overlay](handler.OverlayChanged))
	synced[3], errs[3] = s.rendered.follow(ctx, objects, func(name types.NamespacedName, before, after *server.PoolBytes) {
		metrics.AddRenderedBytes(after.Size() - before.Size())
		handler.RenderedChanged(name)
	})
	return synced, errors.Join(errs[:]...)
}

func keyOnly[V, K any](changed func(K)) func(K, *V, *V) { return func(key K, _, _ *V) { changed(key) } }
