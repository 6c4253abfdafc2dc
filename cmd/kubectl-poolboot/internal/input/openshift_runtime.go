package input

import (
	"encoding/json"
	"errors"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// OpenShift's kinds about container runtimes and registries.
var (
	OpenShiftRuntimeKind       = OpenShift.WithKind("ContainerRuntimeConfig")
	OpenShiftDigestMirrorsKind = schema.GroupVersionKind{Group: "config.openshift.io", Version: "v1", Kind: "ImageDigestMirrorSet"}
	OpenShiftTagMirrorsKind    = schema.GroupVersionKind{Group: "config.openshift.io", Version: "v1", Kind: "ImageTagMirrorSet"}
	OpenShiftImageKind         = schema.GroupVersionKind{Group: "config.openshift.io", Version: "v1", Kind: "Image"}
	OpenShiftSourcePolicyKind  = schema.GroupVersionKind{Group: "operator.openshift.io", Version: "v1alpha1", Kind: "ImageContentSourcePolicy"}

	runtimeKinds = []schema.GroupVersionKind{OpenShiftRuntimeKind, OpenShiftDigestMirrorsKind, OpenShiftTagMirrorsKind,
		OpenShiftImageKind, OpenShiftSourcePolicyKind}
)

// ContainerRuntimeConfig is OpenShift's ContainerRuntimeConfig.
type ContainerRuntimeConfig struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		MachineConfigPoolSelector *metav1.LabelSelector `json:"machineConfigPoolSelector"`
		ContainerRuntimeConfig    RuntimeSettings       `json:"containerRuntimeConfig"`
	} `json:"spec"`
	Status json.RawMessage `json:"status"`
}

// RuntimeSettings are the settings of a ContainerRuntimeConfig. OpenShift ignores zero values.
type RuntimeSettings struct {
	PidsLimit      int64              `json:"pidsLimit"`
	LogLevel       string             `json:"logLevel"`
	LogSizeMax     *resource.Quantity `json:"logSizeMax"`
	OverlaySize    *resource.Quantity `json:"overlaySize"`
	DefaultRuntime string             `json:"defaultRuntime"`
}

// Mirrors are the mirrors of one source in an object of OpenShift.
type Mirrors struct {
	Source             string   `json:"source"`
	Mirrors            []string `json:"mirrors"`
	MirrorSourcePolicy string   `json:"mirrorSourcePolicy"`
}

// MirrorSet is an ImageDigestMirrorSet, an ImageTagMirrorSet or an ImageContentSourcePolicy of OpenShift.
type MirrorSet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		ImageDigestMirrors []Mirrors `json:"imageDigestMirrors"`
		ImageTagMirrors    []Mirrors `json:"imageTagMirrors"`
		// RepositoryDigestMirrors are those of an ImageContentSourcePolicy, which has no MirrorSourcePolicy.
		RepositoryDigestMirrors []Mirrors `json:"repositoryDigestMirrors"`
	} `json:"spec"`
	Status json.RawMessage `json:"status"`
}

// ImageConfig is OpenShift's Image, the configuration of the registries of a cluster. Of its fields, those for the
// container runtimes of hosts are read.
type ImageConfig struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		RegistrySources struct {
			InsecureRegistries               []string `json:"insecureRegistries"`
			BlockedRegistries                []string `json:"blockedRegistries"`
			AllowedRegistries                []string `json:"allowedRegistries"`
			ContainerRuntimeSearchRegistries []string `json:"containerRuntimeSearchRegistries"`
		} `json:"registrySources"`
		AdditionalTrustedCA struct {
			Name string `json:"name"`
		} `json:"additionalTrustedCA"`
	} `json:"spec"`
	Status json.RawMessage `json:"status"`
}

// addOpenShiftRuntime adds an object of one of the runtimeKinds.
func (o *Objects) addOpenShiftRuntime(kind schema.GroupVersionKind, raw []byte) error {
	switch kind {
	case OpenShiftRuntimeKind:
		var config ContainerRuntimeConfig
		if err := o.decodeOpenShift(kind, raw, &config); err != nil {
			return err
		}
		o.RuntimeConfigs = append(o.RuntimeConfigs, config)
	case OpenShiftImageKind:
		var config ImageConfig
		if err := o.decodeOpenShift(kind, raw, &config); err != nil {
			return err
		}
		if len(o.ImageConfigs) > 0 {
			return errors.New("the files contain several, and OpenShift has only one: remove the others")
		}
		o.ImageConfigs = append(o.ImageConfigs, config)
	default:
		var set MirrorSet
		if err := o.decodeOpenShift(kind, raw, &set); err != nil {
			return err
		}
		set.SetGroupVersionKind(kind) // items of lists leave it out
		o.MirrorSets = append(o.MirrorSets, set)
	}
	return nil
}
