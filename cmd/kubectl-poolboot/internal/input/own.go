package input

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kjson "sigs.k8s.io/json"
)

// Own is an object of Poolboot's in files.
type Own struct {
	// Object is the object, and Kind is its kind.
	Object client.Object
	Kind   schema.GroupVersionKind
	raw    []byte
}

// Own returns Poolboot's objects, in their order.
func (o *Objects) Own() []Own { return o.own }

// Written returns the object as it is written.
func (w Own) Written() *unstructured.Unstructured {
	written := &unstructured.Unstructured{}
	utilruntime.Must(kjson.UnmarshalCaseSensitivePreserveInts(w.raw, &written.Object)) // it was decoded
	written.SetGroupVersionKind(w.Kind)                                                // items of lists leave it out
	return written
}

// Validate returns what the API server would refuse in the object, and the webhook in a MachineConfig.
func (w Own) Validate() field.ErrorList {
	return validateWritten(w.Kind, w.Written().Object, w.Object)
}
