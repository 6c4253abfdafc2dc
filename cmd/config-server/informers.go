package main

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
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

// newCache returns a cache of just what the server answers from: PoolbootConfigs, rendered MachineConfigs, Enrolments, and the overlay
// Secrets of the server's own namespace. Reading any other kind from it fails.
func newCache(config *rest.Config, scheme *runtime.Scheme, o *options) (cache.Cache, error) {
	rendered, err := having(poolv1.RenderedForLabel)
	if err != nil {
		return nil, err
	}
	overlay, err := having(bootstrapv1.OverlayLabel)
	if err != nil {
		return nil, err
	}
	var watched map[string]cache.Config // nil: all namespaces
	if o.watchNamespace != "" {
		watched = map[string]cache.Config{o.watchNamespace: {}}
	}
	return cache.New(config, cache.Options{
		Scheme:                      scheme,
		ReaderFailOnMissingInformer: true,
		DefaultTransform:            cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&bootstrapv1.PoolbootConfig{}: {Namespaces: watched, Transform: withoutSpec},
			&poolv1.MachineConfig{}:       {Namespaces: watched, Label: rendered},
			&poolv1.Enrolment{}:           {Namespaces: watched},
			&corev1.Secret{}:              {Namespaces: map[string]cache.Config{o.namespace: {}}, Label: overlay},
		},
	})
}

func having(label string) (labels.Selector, error) {
	exists, err := labels.NewRequirement(label, selection.Exists, nil)
	if err != nil {
		return nil, err
	}
	return labels.NewSelector().Add(*exists), nil
}

// withoutSpec drops what the server has no use for: a PoolbootConfig's spec may hold a whole Ignition config.
func withoutSpec(object any) (any, error) {
	if config, ok := object.(*bootstrapv1.PoolbootConfig); ok {
		config.Spec = bootstrapv1.PoolbootConfigSpec{}
		config.ManagedFields = nil
	}
	return object, nil
}

// watchChanges starts the informers and tells the server of every change of what hosts wait for. The informers
// store a change before they tell of it, so who looks after being told sees it.
func watchChanges(ctx context.Context, objects cache.Cache, to *server.Server) error {
	if err := objects.IndexField(ctx, &bootstrapv1.PoolbootConfig{}, pointerIDIndex, pointerID); err != nil {
		return err
	}
	if err := objects.IndexField(ctx, &poolv1.Enrolment{}, tokenIndex, tokenSHA256); err != nil {
		return err
	}
	err := tell(ctx, objects, &bootstrapv1.PoolbootConfig{}, func(config client.Object) {
		for _, id := range pointerID(config) {
			to.RecordChanged(id)
		}
	})
	if err != nil {
		return err
	}
	err = tell(ctx, objects, &poolv1.Enrolment{}, func(enrolment client.Object) {
		to.EnrolmentChanged(client.ObjectKeyFromObject(enrolment))
	})
	if err != nil {
		return err
	}
	err = tell(ctx, objects, &corev1.Secret{}, func(secret client.Object) {
		to.OverlayChanged(types.UID(secret.GetLabels()[bootstrapv1.OverlayLabel]))
	})
	if err != nil {
		return err
	}
	return tell(ctx, objects, &poolv1.MachineConfig{}, func(rendered client.Object) {
		to.RenderedChanged(client.ObjectKeyFromObject(rendered))
	})
}

func tell(ctx context.Context, objects cache.Cache, kind client.Object, changed func(client.Object)) error {
	informer, err := objects.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	notify := func(object any) {
		if gone, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
			object = gone.Obj
		}
		if object, ok := object.(client.Object); ok {
			changed(object)
		}
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    notify,
		UpdateFunc: func(_, object any) { notify(object) },
		DeleteFunc: notify,
	})
	return err
}
