package input

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/disruption"
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

	// Dropped are the fields of OpenShift's objects that Poolboot's kinds don't have.
	Dropped []DroppedField

	// Refused are the errors of the documents and items that can't be read, if Files.SkipRefused is set.
	Refused     []error
	skipRefused bool

	// places are where the objects were read, by kind and name.
	places map[string]place

	// placeOfItem is where each of items was read.
	placeOfItem map[client.Object]place

	// validate has Poolboot's objects refused that the API server or a webhook would refuse.
	validate bool

	// inDirectory is true while the files of a directory are read, which may contain something else than objects.
	inDirectory bool

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

// errNoObject is the error for a document that is no Kubernetes object.
var errNoObject = errors.New("is no Kubernetes object")

// add adds the object in a JSON document, or the objects in its list. Kind is that of an object that leaves out its
// own, as the items of a list of one kind do. In directories, what is no object is only noted, such as the values of a
// Helm chart.
func (o *Objects) add(kind schema.GroupVersionKind, at place, raw []byte) error {
	err := o.addObject(kind, at, raw)
	switch {
	case errors.Is(err, errNoObject) && o.inDirectory:
		fmt.Fprintf(o.notes, "note: %v: it is left out\n", err)
	case err != nil && o.skipRefused:
		o.Refused = append(o.Refused, err)
	default:
		return err
	}
	return nil
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
		return fmt.Errorf("%s: %w: %w", at, errNoObject, describeTypes(err))
	}
	if head.Kind != "" {
		kind = head.GroupVersionKind()
	}
	if o.places == nil {
		o.places, o.placeOfItem = map[string]place{}, map[client.Object]place{}
	}
	o.places[kind.Kind+" "+head.Metadata.Name] = at
	before := len(o.items)
	var err error
	switch {
	case head.Kind == "" && head.Variant != "":
		err = fmt.Errorf("%w: it is Butane: convert it with kubectl poolboot convert --butane", errNoObject)
	case head.Kind == "" && head.Ignition.Version != "":
		err = fmt.Errorf("%w: it is Ignition: convert it with kubectl poolboot convert --ignition", errNoObject)
	case kind.Kind == "" || kind.Version == "":
		err = fmt.Errorf("%w: apiVersion or kind is missing", errNoObject)
	case o.inDirectory && strings.Contains(head.Metadata.Name, templateMark):
		_, err := fmt.Fprintf(o.notes, "note: %s: %s %q is left out: it is a template: render it, and convert the result\n", at, kind.Kind, head.Metadata.Name)
		return err
	case strings.Contains(head.Metadata.Name, templateMark):
		err = errors.New("it is a template: render it, and convert the result")
	case strings.HasSuffix(kind.Kind, "List") && head.Items != nil:
		return o.addItems(kind, at, head.Items)
	case head.Metadata.Name == "" && (slices.Contains(namedKinds, kind) || o.readRuntimeConfigs && slices.Contains(runtimeKinds, kind)):
		err = fmt.Errorf("%s: metadata.name: is missing", kind.Kind)
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
		_, err := fmt.Fprintf(o.notes, "note: %s: %s %q of %s is ignored\n", at, kind.Kind, head.Metadata.Name, kind.GroupVersion())
		return err
	}
	for _, item := range o.items[before:] {
		o.placeOfItem[item] = at
	}
	switch {
	case err != nil && head.Metadata.Name != "":
		return at.locate(fmt.Errorf("%s %q: %w", kind.Kind, head.Metadata.Name, describeTypes(err)))
	case err != nil:
		return fmt.Errorf("%s: %w", at, err)
	case o.validate && slices.Contains(ownKinds, kind):
		return o.validateObject(kind, raw, o.items[len(o.items)-1])
	}
	return nil
}

// maxLists is how many lists an object can be in. Each level takes as long to read as all levels in it.
const maxLists = 16

// addItems adds the items of a list. Those of a list of one kind may leave it out.
func (o *Objects) addItems(list schema.GroupVersionKind, at place, items []json.RawMessage) error {
	if len(at.items) == maxLists {
		return fmt.Errorf("%s: is a list in more than %d lists: write fewer levels", at, maxLists)
	}
	kind, within := list.GroupVersion().WithKind(strings.TrimSuffix(list.Kind, "List")), at.items
	for i, item := range items {
		at.items = append(slices.Clip(within), i+1)
		if err := o.add(kind, at, item); err != nil {
			return err
		}
	}
	return nil
}

// decode adds an object of a kind of the scheme.
func (o *Objects) decode(decoder runtime.Decoder, kind schema.GroupVersionKind, raw []byte) error {
	decoded, _, err := decoder.Decode(raw, &kind, nil)
	if err != nil {
		return err
	}
	if p, ok := decoded.(*poolv1.MachineConfigPool); ok {
		switch {
		case p.Spec.ClusterName == "":
			return errors.New("spec.clusterName: is missing: name the Cluster that the pool is for")
		case p.Spec.PoolRole == "":
			return errors.New("spec.poolRole: is missing: set the role in node-role.kubernetes.io/<role>")
		case IsControlPlane(p.Spec.PoolRole):
			return fmt.Errorf("spec.poolRole: control plane machines can't be in a pool: set another role than %q", p.Spec.PoolRole)
		}
		if errs := disruption.Check(p.Spec.DisruptionPolicy, field.NewPath("spec", "disruptionPolicy")); len(errs) > 0 {
			return errs.ToAggregate()
		}
	}
	o.items = append(o.items, decoded.(client.Object))
	return nil
}
