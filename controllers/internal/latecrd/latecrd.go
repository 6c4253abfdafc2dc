// Package latecrd starts watches on kinds of other projects, whose CustomResourceDefinitions can be installed long
// after the manager has started. A controller with a watch on a kind that does not exist never starts its workers, and
// its cache sync timeout stops the manager after some minutes.
package latecrd

import (
	"context"
	"fmt"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/cluster-api/util/contract"
	ctrl "sigs.k8s.io/controller-runtime"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// pollInterval is the interval between discovery requests after a CustomResourceDefinition was created: the API server
// serves its kind a moment later.
const pollInterval = 500 * time.Millisecond

// WhenServed calls start once, as soon as the API server serves the kind: when the manager starts or, without a
// restart, when the kind is installed later. The name of the controller is for log lines. An error from start stops the
// manager.
func WhenServed(mgr ctrl.Manager, controller string, kind schema.GroupVersionKind, start func() error) error {
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		log := mgr.GetLogger().WithValues("controller", controller, "kind", kind.GroupKind().String())
		isServed := func(context.Context) (bool, error) {
			_, err := mgr.GetRESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
			return err == nil, nil // every error is retried: discovery can fail for a moment
		}
		if served, _ := isServed(ctx); !served {
			log.Info("The API server does not serve this kind yet: its objects are watched once its CustomResourceDefinition is installed")
			if err := waitForCRD(ctx, mgr.GetCache(), kind.GroupKind()); err != nil {
				return err
			}
			if err := wait.PollUntilContextCancel(ctx, pollInterval, true, isServed); err != nil {
				return nil //nolint:nilerr // The manager stops.
			}
			log.Info("The API server serves this kind now: its objects are watched")
		}
		if err := start(); err != nil {
			return fmt.Errorf("controller %s: watch on %s: %w", controller, kind.GroupKind(), err)
		}
		return nil
	}))
}

// waitForCRD returns when the CustomResourceDefinition of a kind exists, or when the manager stops. It watches only the
// metadata of CustomResourceDefinitions. Cluster API already has this informer, to find out API versions.
func waitForCRD(ctx context.Context, informers ctrlcache.Informers, kind schema.GroupKind) error {
	metadata := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{
		APIVersion: apiextensionsv1.SchemeGroupVersion.String(), Kind: "CustomResourceDefinition",
	}}
	informer, err := informers.GetInformer(ctx, metadata)
	if err != nil {
		return fmt.Errorf("watch on CustomResourceDefinitions: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	name := contract.CalculateCRDName(kind.Group, kind.Kind)
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(object any) {
		if crd, ok := object.(client.Object); ok && crd.GetName() == name {
			cancel()
		}
	}})
	if err != nil {
		return fmt.Errorf("watch on CustomResourceDefinition %s: %w", name, err)
	}
	<-ctx.Done()
	_ = informer.RemoveEventHandler(registration) // fails only if the informer has stopped
	return nil
}
