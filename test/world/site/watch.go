package site

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	toolswatch "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// kind is a kind of object to watch.
type kind struct {
	client client.WithWatch
	list   client.ObjectList
}

// WatchWithContext starts a watch with options.
func (k kind) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	return k.client.Watch(ctx, k.list.DeepCopyObject().(client.ObjectList), &client.ListOptions{Raw: &options})
}

// Follow calls seen for each version of all objects of a kind, from now on and without gaps: it resumes broken watches.
// It returns when the start of the watch is known, and stops when ctx is done. It calls seen from one goroutine.
func Follow[T client.Object](ctx context.Context, c client.WithWatch, list client.ObjectList, seen func(watch.EventType, T)) error {
	if err := c.List(ctx, list); err != nil {
		return fmt.Errorf("list %T: %w", list, err)
	}
	watcher, err := toolswatch.NewRetryWatcherWithContext(ctx, list.GetResourceVersion(), kind{client: c, list: list})
	if err != nil {
		return fmt.Errorf("watch %T: %w", list, err)
	}
	go func() {
		for event := range watcher.ResultChan() {
			if object, ok := event.Object.(T); ok {
				seen(event.Type, object)
			} else if ctx.Err() == nil {
				panic(fmt.Sprintf("the watch on %T has a gap: %v", list, event.Object))
			}
		}
	}()
	return nil
}
