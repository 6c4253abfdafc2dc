package site

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	toolswatch "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Gap is the kind of an event of Follow before which versions of the object can be missing.
const Gap watch.EventType = "GAP"

// Follow calls seen for each version of all objects of a kind, from now on. It resumes broken watches. After a restart
// an API server has only later events: Follow then lists the objects, and reads the versions in between of those that
// have changed. If it can't know all of them, because they were compacted or the object was deleted, the kind of the
// event is Gap.
//
// Follow returns when the start of the watch is known, and stops when ctx is done. It calls seen from one goroutine.
func Follow[T client.Object](ctx context.Context, c client.WithWatch, list client.ObjectList, seen func(watch.EventType, T)) error {
	empty := list.DeepCopyObject().(client.ObjectList)
	f := &follower[T]{client: c, empty: empty, seen: seen, known: map[client.ObjectKey]T{}}
	if err := c.List(ctx, list); err != nil {
		return fmt.Errorf("list %T: %w", list, err)
	}
	objects, err := itemsOf[T](list)
	if err != nil {
		return err
	}
	for _, object := range objects {
		f.known[client.ObjectKeyFromObject(object)] = object
	}
	watcher, err := f.watch(ctx, list.GetResourceVersion())
	if err != nil {
		return err
	}
	go func() {
		for ctx.Err() == nil {
			for event := range watcher.ResultChan() {
				if object, ok := event.Object.(T); ok {
					f.see(event.Type, object)
				}
			}
			// This only fails when ctx is done.
			_ = wait.PollUntilContextCancel(ctx, 100*time.Millisecond, true, func(ctx context.Context) (bool, error) {
				watcher, err = f.resume(ctx)
				return err == nil, nil
			})
		}
	}()
	return nil
}

// follower follows the objects of a kind.
type follower[T client.Object] struct {
	client client.WithWatch
	empty  client.ObjectList
	seen   func(watch.EventType, T)
	known  map[client.ObjectKey]T // the last version of each object
}

// WatchWithContext starts a watch with options.
func (f *follower[T]) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	return f.client.Watch(ctx, f.newList(), &client.ListOptions{Raw: &options})
}

func (f *follower[T]) newList() client.ObjectList {
	return f.empty.DeepCopyObject().(client.ObjectList)
}

// watch watches from a resource version until it is too old, or ctx is done.
func (f *follower[T]) watch(ctx context.Context, version string) (watch.Interface, error) {
	watcher, err := toolswatch.NewRetryWatcherWithContext(ctx, version, f)
	if err != nil {
		return nil, fmt.Errorf("watch %T: %w", f.empty, err)
	}
	return watcher, nil
}

func (f *follower[T]) see(kind watch.EventType, object T) {
	key := client.ObjectKeyFromObject(object)
	if kind == watch.Deleted {
		delete(f.known, key)
	} else {
		f.known[key] = object
	}
	f.seen(kind, object)
}

// version is an event that a watch did not deliver.
type version[T client.Object] struct {
	kind   watch.EventType
	object T
}

// resume delivers the versions that a watch has missed, and starts a new one. On error it has delivered nothing.
func (f *follower[T]) resume(ctx context.Context) (watch.Interface, error) {
	list := f.newList()
	if err := f.client.List(ctx, list); err != nil {
		return nil, err
	}
	objects, err := itemsOf[T](list)
	if err != nil {
		return nil, err
	}
	var missed []version[T]
	exists := map[client.ObjectKey]bool{}
	for _, object := range objects {
		exists[client.ObjectKeyFromObject(object)] = true
		versions, err := f.missed(ctx, object)
		if err != nil {
			return nil, err
		}
		missed = append(missed, versions...)
	}
	slices.SortFunc(missed, func(a, b version[T]) int { return cmp.Compare(revision(a.object), revision(b.object)) })
	for key, object := range f.known {
		if !exists[key] {
			missed = append(missed, version[T]{Gap, object}, version[T]{watch.Deleted, object})
		}
	}
	watcher, err := f.watch(ctx, list.GetResourceVersion())
	if err != nil {
		return nil, err
	}
	for _, v := range missed {
		f.see(v.kind, v.object)
	}
	return watcher, nil
}

// missed returns the versions of an object since the known one, up to its current version. It reads one after the
// other, each as it was just before the next one.
func (f *follower[T]) missed(ctx context.Context, current T) ([]version[T], error) {
	key := client.ObjectKeyFromObject(current)
	known, isKnown := f.known[key]
	var versions []version[T]
	for {
		if isKnown && current.GetResourceVersion() == known.GetResourceVersion() {
			return versions, nil
		}
		before, err := f.at(ctx, key, revision(current)-1)
		isCompacted := apierrors.IsResourceExpired(err)
		switch {
		case err != nil && !isCompacted:
			return nil, err
		case isCompacted || len(before) == 0 && isKnown || len(before) > 0 && before[0].GetUID() != current.GetUID():
			return append(versions, version[T]{Gap, current}), nil
		case len(before) == 0:
			return append(versions, version[T]{watch.Added, current}), nil
		}
		versions = append(versions, version[T]{watch.Modified, current})
		current = before[0]
	}
}

// at returns an object as it was at a revision of the API server's storage, or nothing if it did not exist.
func (f *follower[T]) at(ctx context.Context, key client.ObjectKey, revision uint64) ([]T, error) {
	list := f.newList()
	if err := f.client.List(ctx, list, &client.ListOptions{
		Namespace: key.Namespace, FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, key.Name),
		Raw: &metav1.ListOptions{ResourceVersion: strconv.FormatUint(revision, 10), ResourceVersionMatch: metav1.ResourceVersionMatchExact},
	}); err != nil {
		return nil, err
	}
	return itemsOf[T](list)
}

// revision returns the revision of the API server's storage at which a version was written.
func revision(object client.Object) uint64 {
	n, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	if err != nil {
		panic(fmt.Sprintf("resource version of %s: %v", object.GetName(), err))
	}
	return n
}

func itemsOf[T client.Object](list client.ObjectList) (items []T, err error) {
	err = meta.EachListItem(list, func(item runtime.Object) error {
		object, ok := item.(T)
		if !ok {
			return fmt.Errorf("%T in %T", item, list)
		}
		items = append(items, object)
		return nil
	})
	return items, err
}
