// Package latecrd waits for kinds of other projects, which may be installed long after the manager has started. A watch
// on a kind that does not exist keeps its controller from working, and after some minutes ends the manager.
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

// retry is when to look again whether a kind is served whose CustomResourceDefinition stands: the API server needs a
// moment.
const retry = 500 * time.Millisecond

// WhenServed calls begin once, as soon as the API server serves a kind: when the manager starts or, without a restart,
// when the kind is installed later. The controller's name is for the log, which says that it waits. An error of begin
// ends the manager.
func WhenServed(mgr ctrl.Manager, controller string, kind schema.GroupVersionKind, begin func() error) error {
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		log := mgr.GetLogger().WithValues("controller", controller, "kind", kind.GroupKind().String())
		mapped := func(context.Context) (bool, error) {
			_, err := mgr.GetRESTMapper().RESTMapping(kind.GroupKind(), kind.Version)
			return err == nil, nil // whatever is wrong may be right in a moment
		}
		if is, _ := mapped(ctx); !is {
			log.Info("The kind is not served: its objects will be watched once it is installed")
			if err := installed(ctx, mgr.GetCache(), kind.GroupKind()); err != nil {
				return err
			}
			if is = wait.PollUntilContextCancel(ctx, retry, true, mapped) == nil; !is {
				return nil // the manager ends
			}
			log.Info("The kind is served now: its objects are watched")
		}
		if err := begin(); err != nil {
			return fmt.Errorf("controller %s, watch on %s: %w", controller, kind.GroupKind(), err)
		}
		return nil
	}))
}

// installed returns when the CustomResourceDefinition of a kind stands, or the manager ends. Of all definitions the
// metadata alone is watched, which Cluster API's code does already to find out versions.
func installed(ctx context.Context, definitions ctrlcache.Informers, kind schema.GroupKind) error {
	all := &metav1.PartialObjectMetadata{}
	all.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	informer, err := definitions.GetInformer(ctx, all)
	if err != nil {
		return fmt.Errorf("watch on CustomResourceDefinitions: %w", err)
	}
	ctx, found := context.WithCancel(ctx)
	defer found()
	name := contract.CalculateCRDName(kind.Group, kind.Kind)
	watch, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(object any) {
		if definition, is := object.(client.Object); is && definition.GetName() == name {
			found()
		}
	}})
	if err != nil {
		return fmt.Errorf("watch on CustomResourceDefinition %s: %w", name, err)
	}
	<-ctx.Done()
	_ = informer.RemoveEventHandler(watch) // fails only when the informer has ended
	return nil
}
