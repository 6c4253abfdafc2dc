package input

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
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

type (
	// KubeletConfig is an object of OpenShift with settings of kubelets.
	KubeletConfig = openShiftObject[kubeletSpec]
	// MachineConfiguration is the object of OpenShift with disruption policies.
	MachineConfiguration = openShiftObject[policySpec]
	// ContainerRuntimeConfig is an object of OpenShift with settings of CRI-O.
	ContainerRuntimeConfig = openShiftObject[runtimeSpec]
	// MirrorSet is an ImageDigestMirrorSet, an ImageTagMirrorSet or an ImageContentSourcePolicy.
	MirrorSet = openShiftObject[mirrorSpec]
	// ImageConfig is an Image, the configuration of the registries of a cluster.
	ImageConfig = openShiftObject[imageSpec]
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

// policySpec is the spec of a MachineConfiguration. Of its fields, Poolboot has the node disruption policies.
type policySpec struct {
	NodeDisruptionPolicy struct {
		Files []struct {
			Path    string            `json:"path"`
			Actions []openShiftAction `json:"actions"`
		} `json:"files"`
		Units []struct {
			Name    poolv1.UnitName   `json:"name"`
			Actions []openShiftAction `json:"actions"`
		} `json:"units"`
		SSHKey struct {
			Actions []openShiftAction `json:"actions"`
		} `json:"sshkey"`
	} `json:"nodeDisruptionPolicy"`
	IrreconcilableValidationOverrides struct {
		Storage []string `json:"storage"`
	} `json:"irreconcilableValidationOverrides"`
}

type openShiftAction struct {
	Type    poolv1.ActionType `json:"type"`
	Reload  openShiftService  `json:"reload"`
	Restart openShiftService  `json:"restart"`
}

type openShiftService struct {
	ServiceName poolv1.UnitName `json:"serviceName"`
}

// DiskPolicy returns the overrides of OpenShift for disks as Poolboot's policy. The remark says what else that allows,
// or is "".
func DiskPolicy(c *MachineConfiguration) (policy poolv1.DiskPolicy, remark string) {
	allowed := c.Spec.IrreconcilableValidationOverrides.Storage
	if len(allowed) == 0 {
		return "", ""
	}
	if len(allowed) < 3 { // of Disks, FileSystems and Raid
		remark = fmt.Sprintf("MachineConfiguration %q: spec.irreconcilableValidationOverrides.storage has only %s, and spec.updates.diskPolicy %s is for disks, RAID, LUKS and file systems together",
			c.Name, strings.Join(allowed, " and "), poolv1.DiskNewHostsOnly)
	}
	return poolv1.DiskNewHostsOnly, remark
}

// DisruptionPolicy returns the node disruption policies of OpenShift as Poolboot's. The remarks name those that match
// no file in OpenShift and are left out. An empty list of actions means None for files and units, and the default for
// SSH keys. The errors have the paths of OpenShift's fields.
func DisruptionPolicy(c *MachineConfiguration) (policy poolv1.DisruptionPolicy, remarks []string, errs field.ErrorList) {
	from, at := c.Spec.NodeDisruptionPolicy, field.NewPath("spec", "nodeDisruptionPolicy")
	none := poolv1.DisruptionActions{{Type: poolv1.ActionNone}}
	var kept []int // the indices of the files in OpenShift's list
	for i, file := range from.Files {
		clean := path.Clean(file.Path)
		if !path.IsAbs(clean) || clean == "/" {
			remarks = append(remarks, fmt.Sprintf("MachineConfiguration %q: %s is left out: OpenShift compares it with the paths of files, and %q matches none: "+
				"set the absolute path of a file, or remove it", c.Name, at.Child("files").Index(i).Child("path"), file.Path))
			continue
		}
		actions := convertActions(file.Actions)
		if len(actions) == 0 {
			actions = none
		}
		policy.Files = append(policy.Files, poolv1.PathDisruptionPolicy{Path: clean, Actions: actions})
		kept = append(kept, i)
	}
	for _, unit := range from.Units {
		actions := convertActions(unit.Actions)
		if len(actions) == 0 {
			actions = none
		}
		policy.Units = append(policy.Units, poolv1.UnitDisruptionPolicy{Name: unit.Name, Actions: actions})
	}
	policy.SSHKeys.Actions = convertActions(from.SSHKey.Actions)
	errs = pool.CheckDisruption(policy, at)
	for _, err := range errs {
		err.Field = pathOf(c, err.Field, kept)
	}
	return policy, remarks, errs
}

var (
	fileIndex  = regexp.MustCompile(`\.files\[(\d+)\]`)
	unitAction = regexp.MustCompile(`\.(files|units|sshkey)(?:\[(\d+)\])?\.actions\[(\d+)\]\.unit$`)
)

// pathOf returns the path of OpenShift's field for one in the policy of Poolboot's, in which the files with some
// indices are kept.
func pathOf(c *MachineConfiguration, path string, kept []int) string {
	path = strings.Replace(path, ".sshKeys.", ".sshkey.", 1)
	path = fileIndex.ReplaceAllStringFunc(path, func(index string) string {
		i, _ := strconv.Atoi(fileIndex.FindStringSubmatch(index)[1])
		return fmt.Sprintf(".files[%d]", kept[i])
	})
	match := unitAction.FindStringSubmatch(path)
	if match == nil {
		return path
	}
	i, _ := strconv.Atoi(match[2])
	j, _ := strconv.Atoi(match[3])
	from := c.Spec.NodeDisruptionPolicy
	actions := from.SSHKey.Actions
	switch match[1] {
	case "files":
		actions = from.Files[i].Actions
	case "units":
		actions = from.Units[i].Actions
	}
	service := "restart.serviceName"
	if actions[j].Type == poolv1.ActionReload {
		service = "reload.serviceName"
	}
	return strings.TrimSuffix(path, "unit") + service
}

func convertActions(actions []openShiftAction) (converted poolv1.DisruptionActions) {
	for _, action := range actions {
		converted = append(converted, poolv1.DisruptionAction{Type: action.Type, Unit: cmp.Or(action.Reload.ServiceName, action.Restart.ServiceName)})
	}
	return converted
}
