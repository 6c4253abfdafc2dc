package input

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	kjson "k8s.io/apimachinery/pkg/util/json"
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
	items []client.Object

	// KubeletConfigs are OpenShift's. They are read when Files.ReadKubeletConfigs is set.
	KubeletConfigs     []KubeletConfig
	readKubeletConfigs bool

	// MachineConfigurations are OpenShift's. They are read when Files.ReadPolicies is set.
	MachineConfigurations []MachineConfiguration
	readPolicies          bool

	// RuntimeConfigs, MirrorSets and ImageConfigs are OpenShift's. They are read when Files.ReadRuntimeConfigs is set.
	RuntimeConfigs     []ContainerRuntimeConfig
	MirrorSets         []MirrorSet
	ImageConfigs       []ImageConfig
	readRuntimeConfigs bool

	// Dropped are the fields of OpenShift's objects that are not read.
	Dropped []DroppedField

	// Refused are the errors of the documents and items that can't be read. Files.Read returns them as its error unless
	// Files.SkipRefused is set.
	Refused []error

	// own are Poolboot's objects, in their order.
	own []Own

	// misread are OpenShift's objects with values of a wrong type.
	misread []refusedObject

	// files are those that were read, and objects is the number of objects in them, with those of other kinds.
	files   []string
	objects int

	// places are where the objects were read, by kind and name.
	places map[string]place

	// given are where the objects were read first, by group, version, kind and name.
	given map[string]place

	// essences are what counts of each object in given, of OpenShift's kinds.
	essences map[string]string

	// placeOfItem is where each of items was read.
	placeOfItem map[client.Object]place

	// validate has Poolboot's objects refused that the API server or a webhook would refuse.
	validate bool

	// inDirectory is true while the files of a directory are read, which may contain something else than objects.
	inDirectory bool

	// documents is how many documents were read.
	documents int

	// notes is where objects that are not read are mentioned.
	notes io.Writer
}

// Kinds of MachineConfigPools and MachineConfigs, and OpenShift's kinds that are read.
var (
	PoolKind             = poolv1.GroupVersion.WithKind("MachineConfigPool")
	ConfigKind           = poolv1.GroupVersion.WithKind("MachineConfig")
	OpenShiftPoolKind    = OpenShift.WithKind("MachineConfigPool")
	OpenShiftConfigKind  = OpenShift.WithKind("MachineConfig")
	OpenShiftKubeletKind = OpenShift.WithKind("KubeletConfig")
	OpenShiftPolicyKind  = schema.GroupVersionKind{Group: "operator.openshift.io", Version: "v1", Kind: "MachineConfiguration"}
)

var (
	// namedKinds are the kinds whose names count: in the order of a render, or as a role.
	namedKinds = []schema.GroupVersionKind{PoolKind, ConfigKind, OpenShiftPoolKind, OpenShiftConfigKind, OpenShiftKubeletKind, OpenShiftPolicyKind}
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
	if o.places == nil {
		o.places, o.placeOfItem, o.given, o.essences = map[string]place{}, map[client.Object]place{}, map[string]place{}, map[string]string{}
	}
	key, what := givenKey(kind, head.Metadata.Name), essence(kind, raw)
	switch first, isCopy := o.given[key]; {
	case !isCopy:
		o.given[key], o.essences[key] = at, what
	case o.readKubeletConfigs && head.Metadata.Name != "" && what != "" && what == o.essences[key]: // of a conversion
		_, err := fmt.Fprintf(o.notes, "note: %s: %s %q is left out: it is the same as in %s\n", at.of("metadata"), kind.Kind, head.Metadata.Name, first.of("metadata"))
		return err
	case o.readsOnce(kind) && head.Metadata.Name != "":
		return copyError(kind.Kind, head.Metadata.Name, at, first)
	}
	o.places[kind.Kind+" "+head.Metadata.Name] = at
	if head.Items == nil {
		o.objects++
	}
	before := len(o.items)
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
	case head.Metadata.Name == "" && (slices.Contains(namedKinds, kind) || o.readRuntimeConfigs && slices.Contains(runtimeKinds, kind)):
		return at.of("metadata.name").errorf("%s: metadata.name: is missing: set it", kind.Kind)
	case slices.Contains(ownKinds, kind):
		err = o.decode(strict, kind, raw)
	case kind == OpenShiftPoolKind:
		err = o.addOpenShiftPool(raw)
	case kind == OpenShiftConfigKind:
		err = o.addOpenShiftConfig(raw)
	case kind == OpenShiftKubeletKind && o.readKubeletConfigs:
		err = o.addOpenShiftKubelet(raw)
	case kind == OpenShiftPolicyKind && o.readPolicies:
		err = o.addOpenShiftPolicy(raw)
	case slices.Contains(runtimeKinds, kind) && o.readRuntimeConfigs:
		err = o.addOpenShiftRuntime(kind, raw)
	case slices.Contains(foreignKinds, kind):
		err = o.decode(lenient, kind, raw)
	default:
		return o.noteIgnored(kind, head.Metadata.Name, at, raw)
	}
	for _, item := range o.items[before:] {
		o.placeOfItem[item] = at
		if slices.Contains(ownKinds, kind) {
			o.own = append(o.own, Own{Object: item, Kind: kind, raw: raw})
		}
	}
	var fields *fieldsError
	switch {
	case errors.As(err, &fields) && head.Metadata.Name != "":
		if o.validate && slices.Contains(ownKinds, kind) {
			fields.errs = append(fields.errs, fields.findOthers(kind, raw)...)
		}
		if kind.Group != poolv1.GroupVersion.Group && fields.mistakes != nil {
			o.misread = append(o.misread, refusedObject{kind: kind, name: head.Metadata.Name, at: at, raw: raw, why: fields})
		}
		return o.Refuse(kind.Kind, head.Metadata.Name, fields.errs)
	case err != nil:
		return at.locate(fmt.Errorf("%s %q: %w", kind.Kind, head.Metadata.Name, err))
	case o.validate && slices.Contains(ownKinds, kind):
		return o.validateObject(kind, raw, o.items[len(o.items)-1])
	}
	return nil
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

// decode adds an object of a kind of the scheme.
func (o *Objects) decode(decoder runtime.Decoder, kind schema.GroupVersionKind, raw []byte) error {
	decoded, _, err := decoder.Decode(raw, &kind, nil)
	if err != nil {
		typed, unknown := Scheme().New(kind)
		if unknown != nil {
			return err
		}
		return explainDecoding(err, raw, reflect.TypeOf(typed).Elem(), decoder == strict)
	}
	if p, ok := decoded.(*poolv1.MachineConfigPool); ok {
		if errs := checkPool(p); len(errs) > 0 {
			return &fieldsError{errs: errs}
		}
	}
	o.items = append(o.items, decoded.(client.Object))
	return nil
}

// checkPool returns what is wrong with a pool of Poolboot's that no command can answer for.
func checkPool(p *poolv1.MachineConfigPool) (errs field.ErrorList) {
	spec := field.NewPath("spec")
	if p.Spec.ClusterName == "" {
		errs = append(errs, field.Required(spec.Child("clusterName"), "name the Cluster that the pool is for"))
	}
	if p.Spec.PoolRole == "" {
		errs = append(errs, field.Required(spec.Child("poolRole"), "set the role in node-role.kubernetes.io/<role>"))
	}
	if IsControlPlane(p.Spec.PoolRole) {
		errs = append(errs, field.Forbidden(spec.Child("poolRole"), fmt.Sprintf("control plane machines can't be in a pool: set another role than %q", p.Spec.PoolRole)))
	}
	return append(errs, pool.CheckDisruption(p.Spec.Updates.DisruptionPolicy, spec.Child("updates", "disruptionPolicy"))...)
}
