package input

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Kinds of OpenShift with settings of pools and of their hosts.
var (
	OpenShiftKubeletKind       = OpenShift.WithKind("KubeletConfig")
	OpenShiftPolicyKind        = schema.GroupVersionKind{Group: "operator.openshift.io", Version: "v1", Kind: "MachineConfiguration"}
	OpenShiftRuntimeKind       = OpenShift.WithKind("ContainerRuntimeConfig")
	OpenShiftDigestMirrorsKind = schema.GroupVersionKind{Group: "config.openshift.io", Version: "v1", Kind: "ImageDigestMirrorSet"}
	OpenShiftTagMirrorsKind    = schema.GroupVersionKind{Group: "config.openshift.io", Version: "v1", Kind: "ImageTagMirrorSet"}
	OpenShiftImageKind         = schema.GroupVersionKind{Group: "config.openshift.io", Version: "v1", Kind: "Image"}
	OpenShiftSourcePolicyKind  = schema.GroupVersionKind{Group: "operator.openshift.io", Version: "v1alpha1", Kind: "ImageContentSourcePolicy"}

	// SettingsKinds are all of them.
	SettingsKinds = []schema.GroupVersionKind{OpenShiftKubeletKind, OpenShiftPolicyKind, OpenShiftRuntimeKind, OpenShiftDigestMirrorsKind,
		OpenShiftTagMirrorsKind, OpenShiftImageKind, OpenShiftSourcePolicyKind}
)

// openShiftObject is an object of OpenShift's with a spec. Its status is not read.
type openShiftObject[Spec any] struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              Spec            `json:"spec"`
	Status            json.RawMessage `json:"status"`
}

// DeepCopyObject returns the object itself, which does not change.
func (o *openShiftObject[Spec]) DeepCopyObject() runtime.Object { return o }

// Objects of OpenShift with settings. A MirrorSet is an ImageDigestMirrorSet, an ImageTagMirrorSet or an
// ImageContentSourcePolicy, and an ImageConfig is an Image, the configuration of the registries of a cluster.
type (
	KubeletConfig          = openShiftObject[kubeletSpec]
	MachineConfiguration   = openShiftObject[policySpec]
	ContainerRuntimeConfig = openShiftObject[runtimeSpec]
	MirrorSet              = openShiftObject[mirrorSpec]
	ImageConfig            = openShiftObject[imageSpec]
)

type kubeletSpec struct {
	AutoSizingReserved        *bool                 `json:"autoSizingReserved"`
	LogLevel                  *int32                `json:"logLevel"`
	MachineConfigPoolSelector *metav1.LabelSelector `json:"machineConfigPoolSelector"`
	KubeletConfig             map[string]any        `json:"kubeletConfig"`
	TLSSecurityProfile        map[string]any        `json:"tlsSecurityProfile"`
}

type runtimeSpec struct {
	MachineConfigPoolSelector *metav1.LabelSelector `json:"machineConfigPoolSelector"`
	ContainerRuntimeConfig    RuntimeSettings       `json:"containerRuntimeConfig"`
}

// RuntimeSettings are the settings of a ContainerRuntimeConfig. OpenShift ignores zero values.
type RuntimeSettings struct {
	PidsLimit      int64              `json:"pidsLimit"`
	LogLevel       string             `json:"logLevel"`
	LogSizeMax     *resource.Quantity `json:"logSizeMax"`
	OverlaySize    *resource.Quantity `json:"overlaySize"`
	DefaultRuntime string             `json:"defaultRuntime"`
}

type mirrorSpec struct {
	ImageDigestMirrors []Mirrors `json:"imageDigestMirrors"`
	ImageTagMirrors    []Mirrors `json:"imageTagMirrors"`
	// RepositoryDigestMirrors are those of an ImageContentSourcePolicy, which has no MirrorSourcePolicy.
	RepositoryDigestMirrors []Mirrors `json:"repositoryDigestMirrors"`
}

// Mirrors are the mirrors of one source in an object of OpenShift.
type Mirrors struct {
	Source             string   `json:"source"`
	Mirrors            []string `json:"mirrors"`
	MirrorSourcePolicy string   `json:"mirrorSourcePolicy"`
}

// imageSpec has the fields of an Image for the container runtimes of hosts.
type imageSpec struct {
	RegistrySources struct {
		InsecureRegistries               []string `json:"insecureRegistries"`
		BlockedRegistries                []string `json:"blockedRegistries"`
		AllowedRegistries                []string `json:"allowedRegistries"`
		ContainerRuntimeSearchRegistries []string `json:"containerRuntimeSearchRegistries"`
	} `json:"registrySources"`
	AdditionalTrustedCA struct {
		Name string `json:"name"`
	} `json:"additionalTrustedCA"`
}

// readSettings reads an object of one of SettingsKinds. Of a kind of which OpenShift has one object, it refuses others.
func (o *Objects) readSettings(kind schema.GroupVersionKind, raw []byte) (object client.Object, err error) {
	switch kind {
	case OpenShiftKubeletKind:
		object = &KubeletConfig{}
	case OpenShiftPolicyKind:
		object = &MachineConfiguration{}
	case OpenShiftRuntimeKind:
		object = &ContainerRuntimeConfig{}
	case OpenShiftImageKind:
		object = &ImageConfig{}
	default:
		object = &MirrorSet{}
	}
	if err := o.decodeOpenShift(kind, raw, object); err != nil {
		return nil, err
	}
	object.GetObjectKind().SetGroupVersionKind(kind) // items of lists leave it out
	isOfType := func(item Item) bool { return reflect.TypeOf(item.Object) == reflect.TypeOf(object) }
	if (kind == OpenShiftPolicyKind || kind == OpenShiftImageKind) && slices.ContainsFunc(o.items, isOfType) {
		return nil, errors.New("the files contain several, and OpenShift has only one: remove the others")
	}
	return object, nil
}
