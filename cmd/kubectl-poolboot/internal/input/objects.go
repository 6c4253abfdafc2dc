package input

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	kjson "k8s.io/apimachinery/pkg/util/json"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

// Objects are the objects in files, in their order. As a client.Reader they answer as an API server does, except that
// an object without a namespace is in every namespace.
type Objects struct {
	items []Item

	// Dropped are the fields of OpenShift's objects that are not read.
	Dropped []DroppedField

	// Refused are the errors of the documents and items that can't be read. Files.Read returns them as its error unless
	// Files.SkipRefused is set.
	Refused []error

	// files are those that were read, and objects is the number of objects in them, with those of other kinds.
	files   []string
	objects int

	// places are where the objects were read, by kind and name.
	places map[string]place

	// given are the objects that were read first of each group, version, kind and name.
	given map[string]firstCopy

	// settings are the kinds of Files.Settings.
	settings []schema.GroupVersionKind

	// skipCopies has an object left out that is the same as one before.
	skipCopies bool

	// validate has Poolboot's objects refused that the API server or a webhook would refuse.
	validate bool

	// inDirectory is true while the files of a directory are read, which may contain something else than objects.
	inDirectory bool

	// documents is how many documents were read.
	documents int

	// notes is where objects that are not read are mentioned.
	notes io.Writer
}

// Item is an object in a file. Those of OpenShift's pools and MachineConfigs are objects of Poolboot's types.
type Item struct {
	client.Object
	Kind schema.GroupVersionKind
	at   place
	raw  []byte
}

// Kinds of MachineConfigPools and MachineConfigs, and OpenShift's kinds that are read.
var (
	PoolKind            = poolv1.GroupVersion.WithKind("MachineConfigPool")
	ConfigKind          = poolv1.GroupVersion.WithKind("MachineConfig")
	OpenShiftPoolKind   = OpenShift.WithKind("MachineConfigPool")
	OpenShiftConfigKind = OpenShift.WithKind("MachineConfig")
)

var (
	// namedKinds are the kinds whose names count: in the order of a render, or as a role.
	namedKinds = []schema.GroupVersionKind{PoolKind, ConfigKind, OpenShiftPoolKind, OpenShiftConfigKind}
	// ownKinds are Poolboot's kinds, in which a field that does not exist is an error.
	ownKinds = []schema.GroupVersionKind{PoolKind, ConfigKind,
		bootstrapv1.GroupVersion.WithKind("PoolbootConfig"), bootstrapv1.GroupVersion.WithKind("PoolbootConfigTemplate")}
	// foreignKinds are kinds of other projects, in which a field that is newer than this program is ignored.
	foreignKinds = []schema.GroupVersionKind{corev1.SchemeGroupVersion.WithKind("Node"),
		clusterv1.GroupVersion.WithKind("Machine"), clusterv1.GroupVersion.WithKind("Cluster"),
		bmov1alpha1.GroupVersion.WithKind("BareMetalHost"), bmov1alpha1.GroupVersion.WithKind("HardwareData")}
)

// Decoders of Poolboot's kinds, which refuses unknown fields, and of other projects' kinds.
var (
	strict  = serializer.NewCodecFactory(Scheme(), serializer.EnableStrict).UniversalDeserializer()
	lenient = serializer.NewCodecFactory(Scheme()).UniversalDeserializer()
)

var (
	// errNoObject is the error for a document that is no Kubernetes object.
	errNoObject = errors.New("is no Kubernetes object")
	// errTemplate is the error for a template of an object.
	errTemplate = errors.New("it is a template: render it, and convert the result")
)

// add adds the object in a JSON document, or the objects in its list. Kind is that of an object that leaves out its
// own, as the items of a list of one kind do. In directories, what is no object is only noted, such as the values of a
// Helm chart.
func (o *Objects) add(kind schema.GroupVersionKind, at place, raw []byte) {
	err := o.addObject(kind, at, raw)
	switch {
	case o.inDirectory && (errors.Is(err, errNoObject) || errors.Is(err, errTemplate)):
		fmt.Fprintf(o.notes, "note: %v: it is left out\n", err)
	case err != nil:
		o.Refused = append(o.Refused, err)
	}
}

func (o *Objects) addObject(kind schema.GroupVersionKind, at place, raw []byte) error {
	var head struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        struct {
			Name string `json:"name"`
		} `json:"metadata"`
		Name     string            `json:"name"`
		Items    []json.RawMessage `json:"items"`
		Variant  string            `json:"variant"`
		Ignition struct {
			Version string `json:"version"`
		} `json:"ignition"`
	}
	if err := kjson.Unmarshal(raw, &head); err != nil {
		return at.explainHead(err, raw, reflect.TypeOf(head))
	}
	if head.Kind != "" {
		kind = head.GroupVersionKind()
	}
	if head.Kind == "" && pool.IsRenderedName(head.Name) {
		return o.addObject(ConfigKind, at, renderedConfig(head.Name, raw))
	}
	if isFirst, err := o.give(kind, head.Metadata.Name, at, raw); !isFirst {
		return err
	}
	if head.Items == nil {
		o.objects++
	}
	var object client.Object
	var err error
	switch {
	case head.Kind == "" && head.Variant != "":
		return at.of("variant").errorf("%w: it is Butane: convert it with kubectl poolboot convert --butane", errNoObject)
	case head.Kind == "" && head.Ignition.Version != "":
		return at.of("ignition").errorf("%w: it is Ignition: convert it with kubectl poolboot convert --ignition", errNoObject)
	case head.Kind == "" && isKustomization(at):
		return o.noteIgnored(kustomizationKind.WithVersion("v1beta1"), "", at, raw)
	case kind.Kind == "" || kind.Version == "":
		return at.of("").errorf("%w: set apiVersion and kind", errNoObject)
	case strings.Contains(head.Metadata.Name, templateMark):
		return at.of("metadata.name").errorf("%s %q: %w", kind.Kind, head.Metadata.Name, errTemplate)
	case strings.HasSuffix(kind.Kind, "List") && head.Items != nil:
		return o.addItems(kind, at, head.Items)
	case head.Metadata.Name == "" && (slices.Contains(namedKinds, kind) || slices.Contains(o.settings, kind)):
		return at.of("metadata.name").errorf("%s: metadata.name: is missing: set it", kind.Kind)
	case slices.Contains(ownKinds, kind):
		object, err = decode(strict, kind, raw)
	case slices.Contains(foreignKinds, kind):
		object, err = decode(lenient, kind, raw)
	case kind == OpenShiftPoolKind:
		object, err = o.readOpenShiftPool(raw)
	case kind == OpenShiftConfigKind:
		object, err = o.readOpenShiftConfig(raw)
	case slices.Contains(o.settings, kind):
		object, err = o.readSettings(kind, raw)
	default:
		return o.noteIgnored(kind, head.Metadata.Name, at, raw)
	}
	item, fields := Item{Object: object, Kind: kind, at: at, raw: raw}, &fieldsError{}
	switch {
	case err == nil:
		o.items = append(o.items, item)
	case !errors.As(err, &fields) || head.Metadata.Name == "":
		return at.locate(fmt.Errorf("%s %q: %w", kind.Kind, head.Metadata.Name, err))
	}
	if o.validate && object != nil && item.isOwn() {
		isMisspelled := func(other *field.Error) bool { return err != nil && other.Type == field.ErrorTypeRequired }
		fields.errs = append(fields.errs, slices.DeleteFunc(item.Validate(), isMisspelled)...)
	}
	return o.Refuse(kind.Kind, head.Metadata.Name, fields.errs)
}

// renderedConfig returns the MachineConfig for what kubectl poolboot render prints: the fields of its spec, with
// ignition in place of config.
func renderedConfig(name string, raw []byte) []byte {
	spec := map[string]any{}
	utilruntime.Must(json.Unmarshal(raw, &spec)) // it was read before
	spec["config"] = spec["ignition"]
	delete(spec, "ignition")
	delete(spec, "name")
	version, kind := ConfigKind.ToAPIVersionAndKind()
	config, err := json.Marshal(map[string]any{"apiVersion": version, "kind": kind, "metadata": map[string]any{"name": name}, "spec": spec})
	utilruntime.Must(err) // as above
	return config
}

// explainHead returns what is wrong with a document whose kind and name can't be read.
func (p place) explainHead(err error, raw []byte, head reflect.Type) error {
	var wrong *fieldsError
	if !errors.As(explainDecoding(err, raw, head, false), &wrong) {
		return p.of("").errorf("%w: %w", errNoObject, err)
	}
	var all []error
	for _, err := range wrong.errs {
		about := strings.TrimPrefix(strings.TrimPrefix(err.Field+": ", "<nil>: "), "[]: ")
		all = append(all, p.of(err.Field).errorf("%w: %s%s", errNoObject, about, err.Detail))
	}
	return errors.Join(all...)
}

// maxLists is how many lists an object can be in. Each level takes as long to read as all levels in it.
const maxLists = 16

// addItems adds the items of a list. Those of a list of one kind may leave it out.
func (o *Objects) addItems(list schema.GroupVersionKind, at place, items []json.RawMessage) error {
	if len(at.items) == maxLists {
		return at.of("").errorf("is a list in more than %d lists: write fewer levels", maxLists)
	}
	kind, within := list.GroupVersion().WithKind(strings.TrimSuffix(list.Kind, "List")), at.items
	for i, item := range items {
		at.items = append(slices.Clip(within), i+1)
		o.add(kind, at, item)
	}
	return nil
}

// decode returns an object of a kind of the scheme, also if its only mistakes are fields that do not exist.
func decode(decoder runtime.Decoder, kind schema.GroupVersionKind, raw []byte) (client.Object, error) {
	decoded, _, err := decoder.Decode(raw, &kind, nil)
	if err != nil {
		typed, unknown := Scheme().New(kind)
		if unknown != nil {
			return nil, err
		}
		object, _ := decoded.(client.Object)
		return object, explainDecoding(err, raw, reflect.TypeOf(typed).Elem(), decoder == strict)
	}
	if p, ok := decoded.(*poolv1.MachineConfigPool); ok {
		if errs := checkPool(p); len(errs) > 0 {
			return nil, &fieldsError{errs: errs}
		}
	}
	return decoded.(client.Object), nil
}

// useControlPlane is what is wrong with the role master.
const useControlPlane = "the role of the control plane's pool is " + poolv1.RoleControlPlane + ": set it"

// checkPool returns what is wrong with a pool of Poolboot's that no command can answer for.
func checkPool(p *poolv1.MachineConfigPool) (errs field.ErrorList) {
	spec := field.NewPath("spec")
	if p.Spec.ClusterName == "" {
		errs = append(errs, field.Required(spec.Child("clusterName"), "name the Cluster that the pool is for"))
	}
	if p.Spec.PoolRole == "" {
		errs = append(errs, field.Required(spec.Child("poolRole"), "set the role in node-role.kubernetes.io/<role>"))
	}
	if p.Spec.PoolRole == Master {
		errs = append(errs, field.Invalid(spec.Child("poolRole"), field.OmitValueType{}, useControlPlane))
	}
	return append(errs, pool.CheckDisruption(p.Spec.Updates.DisruptionPolicy, spec.Child("updates", "disruptionPolicy"))...)
}

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
