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

// cacheOptions returns the options of caches for the objects that the answers depend on: PoolbootConfigs, rendered
// MachineConfigs, Enrollments, and the overlay and assignment Secrets in the server's own namespace. No other Secret is
// read, and a cache has one selector for each kind, so the assignments have a cache of their own. Rendered configs have
// no watch filter label, because the records decide which host gets one. The informers store only what the sources
// compute from each object: a rendered config is four times as large as its download.
func cacheOptions(scheme *runtime.Scheme, o *options, s *sources) (objects, assigned cache.Options, err error) {
	rendered, renderedErr := labels.Parse(poolv1.RenderedForLabel)
	overlay, overlayErr := labels.Parse(bootstrapv1.OverlayLabel)
	assignment, assignmentErr := labels.Parse(bootstrapv1.AssignmentLabel)
	if err := errors.Join(renderedErr, overlayErr, assignmentErr); err != nil {
		return cache.Options{}, cache.Options{}, err
	}
	var watched map[string]cache.Config // nil: all namespaces
	if o.namespace != "" {
		watched = map[string]cache.Config{o.namespace: {}}
	}
	filtered := labels.Everything()
	if o.watchFilter != "" {
		filtered = labels.SelectorFromValidatedSet(labels.Set{clusterv1.WatchLabel: o.watchFilter})
	}
	own := map[string]cache.Config{o.overlayNamespace: {}}
	objects = cache.Options{Scheme: scheme, Mapper: newMapper(), ReaderFailOnMissingInformer: true}
	assigned = objects
	objects.ByObject = map[client.Object]cache.ByObject{
		&bootstrapv1.PoolbootConfig{}: {Namespaces: watched, Label: filtered, Transform: s.records.transform},
		&poolv1.MachineConfig{}:       {Namespaces: watched, Label: rendered, Transform: s.rendered.transform},
		&poolv1.Enrollment{}:          {Namespaces: watched, Label: filtered, Transform: s.enrollments.transform},
		&corev1.Secret{}:              {Namespaces: own, Label: overlay, Transform: s.overlays.transform},
	}
	assigned.ByObject = map[client.Object]cache.ByObject{&corev1.Secret{}: {Namespaces: own, Label: assignment, Transform: s.assignments.transform}}
	return objects, assigned, nil
}

// sources has the data that the answers depend on.
type sources struct {
	records     *records
	enrollments *enrollments
	overlays    *overlays
	assignments *assignments
	rendered    *renderedConfigs
}

func newSources() *sources {
	return &sources{newRecords(), newEnrollments(), newOverlays(), newAssignments(), newRenderedConfigs()}
}

// follow starts the informers and notifies the server of every change that hosts can wait for. The sources have the
// change before the notification, so a read after the notification sees it. The returned functions report whether the
// sources have all objects that existed at the start.
func (s *sources) follow(
	ctx context.Context, objects, assigned cache.Cache, handler *server.Server, metrics *server.Metrics,
) (synced [5]toolscache.InformerSynced, err error) {
	var errs [5]error
	synced[0], errs[0] = s.records.follow(ctx, objects, keyOnly[server.Record](handler.RecordChanged))
	synced[1], errs[1] = s.enrollments.follow(ctx, objects, keyOnly[server.Enrollment](handler.EnrollmentChanged))
	synced[2], errs[2] = s.overlays.follow(ctx, objects, keyOnly[server.Overlay](handler.OverlayChanged))
	synced[3], errs[3] = s.rendered.follow(ctx, objects, func(name types.NamespacedName, before, after *server.PoolBytes) {
		metrics.AddRenderedBytes(after.Size() - before.Size())
		handler.RenderedChanged(name)
	})
	synced[4], errs[4] = s.assignments.follow(ctx, assigned, keyOnly[server.Assigned](handler.AssignmentChanged))
	return synced, errors.Join(errs[:]...)
}

func keyOnly[V, K any](changed func(K)) func(K, *V, *V) { return func(key K, _, _ *V) { changed(key) } }
