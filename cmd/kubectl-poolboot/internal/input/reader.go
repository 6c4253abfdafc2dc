package input

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The reader is not controller-runtime's fake client: that one takes no two objects of one name, which files may have
// and pool.Render reports, and none without a namespace, and it links a test framework into the program.
var _ client.Reader = &Objects{}

// Of returns the objects of one type, as T = *corev1.Node, in the order of the files. They are not copies.
func Of[T client.Object](o *Objects) (found []T) {
	for _, item := range o.items {
		if object, ok := item.Object.(T); ok {
			found = append(found, object)
		}
	}
	return found
}

// Get returns a copy of the last object with the name, as the last one that kubectl applies counts. A key without a
// namespace is that of an object in any namespace.
func (o *Objects) Get(_ context.Context, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	for _, item := range slices.Backward(o.items) {
		if reflect.TypeOf(item.Object) == reflect.TypeOf(object) && item.GetName() == key.Name && inNamespace(item, key.Namespace) {
			reflect.ValueOf(object).Elem().Set(reflect.ValueOf(item.DeepCopyObject()).Elem())
			return nil
		}
	}
	kind := reflect.TypeOf(object).Elem().Name()
	err := apierrors.NewNotFound(schema.GroupResource{Resource: kind}, key.Name)
	err.ErrStatus.Message = fmt.Sprintf("the files contain no %s %q: correct the name, or add the file with it", kind, key.Name)
	return err
}

// List lists copies of the objects of a kind in the order of the files. Of the options, the namespace and the label
// selector count.
func (o *Objects) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	var wanted client.ListOptions
	wanted.ApplyOptions(options)
	if wanted.LabelSelector == nil {
		wanted.LabelSelector = labels.Everything()
	}
	items, err := meta.GetItemsPtr(list)
	if err != nil {
		return err
	}
	kind := reflect.PointerTo(reflect.TypeOf(items).Elem().Elem())
	var found []runtime.Object
	for _, item := range o.items {
		if reflect.TypeOf(item.Object) == kind && inNamespace(item, wanted.Namespace) && wanted.LabelSelector.Matches(labels.Set(item.GetLabels())) {
			found = append(found, item.DeepCopyObject())
		}
	}
	return meta.SetList(list, found)
}

// inNamespace reports whether an object is in a namespace; empty for all.
func inNamespace(object client.Object, namespace string) bool {
	return namespace == "" || object.GetNamespace() == "" || object.GetNamespace() == namespace
}
