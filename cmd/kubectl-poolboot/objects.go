package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	kjson "k8s.io/apimachinery/pkg/util/json"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// objects are what files hold.
type objects struct {
	// where they are, with its verb, such as "namespace edge holds"; empty for files.
	where string

	pools   []poolv1.MachineConfigPool
	configs []poolv1.MachineConfig
	nodes   []corev1.Node
	about   hostObjects

	// kubelets are OpenShift's KubeletConfigs. They are read when takesKubelets is set.
	kubelets      []kubeletConfig
	takesKubelets bool

	// dropped are the fields of OpenShift's objects that Poolboot has no place for.
	dropped []droppedField

	// notes is where objects that are not read are mentioned.
	notes io.Writer
}

// place is where an object was read.
type place struct {
	file     string
	document int // counted from 1
	item     int // of a list, counted from 1; 0 when the object is the document
}

func (p place) String() string {
	if p.item == 0 {
		return fmt.Sprintf("%s: document %d", p.file, p.document)
	}
	return fmt.Sprintf("%s: document %d: item %d", p.file, p.document, p.item)
}

// Kinds that are read.
var (
	poolKind             = poolv1.GroupVersion.WithKind("MachineConfigPool")
	configKind           = poolv1.GroupVersion.WithKind("MachineConfig")
	openshiftPoolKind    = openshift.WithKind("MachineConfigPool")
	openshiftConfigKind  = openshift.WithKind("MachineConfig")
	openshiftKubeletKind = openshift.WithKind("KubeletConfig")
	nodeKind             = corev1.SchemeGroupVersion.WithKind("Node")

	// named are the kinds whose names count: in the order of a render, or as a role.
	named = []schema.GroupVersionKind{poolKind, configKind, openshiftPoolKind, openshiftConfigKind, openshiftKubeletKind}
)

// strict decodes Poolboot's own kinds and takes no field that they don't have.
var strict = func() runtime.Decoder {
	scheme := runtime.NewScheme()
	must(poolv1.AddToScheme(scheme))
	must(bootstrapv1.AddToScheme(scheme))
	return serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDeserializer()
}()

// add adds the object that a JSON document is, or the objects that it lists.
func (o *objects) add(at place, raw []byte) error {
	return o.addOf(schema.GroupVersionKind{}, at, raw)
}

// addOf is add for an object that may leave out its own kind, as the items of a list of one kind do.
func (o *objects) addOf(kind schema.GroupVersionKind, at place, raw []byte) error {
	var head struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        struct {
			Name string `json:"name"`
		} `json:"metadata"`
		Items []json.RawMessage `json:"items"`
	}
	if err := kjson.Unmarshal(raw, &head); err != nil {
		return fmt.Errorf("%s: is no Kubernetes object: %w", at, err)
	}
	if head.Kind != "" {
		kind = head.GroupVersionKind()
	}
	var err error
	switch {
	case kind.Kind == "" || kind.Version == "":
		err = errors.New("is no Kubernetes object: apiVersion or kind is missing")
	case strings.HasSuffix(kind.Kind, "List") && head.Items != nil:
		return o.addItems(kind, at, head.Items)
	case head.Metadata.Name == "" && slices.Contains(named, kind):
		err = fmt.Errorf("%s: metadata.name: is missing", kind.Kind)
	case kind == poolKind, kind == configKind:
		err = o.addOwn(kind, raw)
	case kind == openshiftPoolKind:
		err = o.addOpenShiftPool(raw)
	case kind == openshiftConfigKind:
		err = o.addOpenShiftConfig(raw)
	case kind == openshiftKubeletKind && o.takesKubelets:
		err = o.addOpenShiftKubelet(raw)
	case kind == nodeKind:
		var node corev1.Node
		err = kjson.Unmarshal(raw, &node)
		o.nodes = append(o.nodes, node)
	case o.about.adder(kind) != nil:
		err = o.about.adder(kind)(raw)
	default:
		_, err := fmt.Fprintf(o.notes, "note: %s: %s %q of %s is ignored\n", at, kind.Kind, head.Metadata.Name, kind.GroupVersion())
		return err
	}
	switch {
	case err != nil && head.Metadata.Name != "":
		return fmt.Errorf("%s: %s %q: %w", at, kind.Kind, head.Metadata.Name, err)
	case err != nil:
		return fmt.Errorf("%s: %w", at, err)
	}
	return nil
}

// addItems adds the items of a list. Those of a list of one kind may leave it out.
func (o *objects) addItems(list schema.GroupVersionKind, at place, items []json.RawMessage) error {
	kind := list.GroupVersion().WithKind(strings.TrimSuffix(list.Kind, "List"))
	for i, item := range items {
		at.item = i + 1
		if err := o.addOf(kind, at, item); err != nil {
			return err
		}
	}
	return nil
}

// addOwn adds an object of one of Poolboot's own kinds.
func (o *objects) addOwn(kind schema.GroupVersionKind, raw []byte) error {
	object, _, err := strict.Decode(raw, &kind, nil)
	if err != nil {
		return err
	}
	switch object := object.(type) {
	case *poolv1.MachineConfig:
		o.configs = append(o.configs, *object)
	case *poolv1.MachineConfigPool:
		switch {
		case object.Spec.ClusterName == "":
			return errors.New("spec.clusterName: is missing: name the Cluster that the pool is for")
		case object.Spec.PoolRole == "":
			return errors.New("spec.poolRole: is missing: give the word in node-role.kubernetes.io/<role>")
		case isControlPlane(object.Spec.PoolRole):
			return fmt.Errorf("spec.poolRole: control plane machines can't be in a pool: %q is no role for one", object.Spec.PoolRole)
		}
		o.pools = append(o.pools, *object)
	}
	return nil
}
