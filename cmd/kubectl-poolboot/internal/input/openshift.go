package input

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kjson "sigs.k8s.io/json"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

// OpenShift is the group and version of the Machine Config Operator's kinds. They are read as Poolboot's kinds; fields
// that those don't have are listed in Objects.Dropped.
var OpenShift = schema.GroupVersion{Group: "machineconfiguration.openshift.io", Version: "v1"}

// Master is OpenShift's name for the pool of the control plane.
const Master = "master"

// BuiltIn are the names of the two pools that every OpenShift cluster has.
var BuiltIn = []string{poolv1.RoleWorker, Master}

// roleOf returns the role of OpenShift's pool with a name.
func roleOf(name string) string {
	if name == Master {
		return poolv1.RoleControlPlane
	}
	return name
}

// IsOpenShift reports whether an object is of a kind of the Machine Config Operator.
func IsOpenShift(object metav1.TypeMeta) bool {
	return object.GroupVersionKind().Group == OpenShift.Group
}

// readOpenShiftPool reads OpenShift's MachineConfigPool. Its role is its name, or control-plane for master, it counts
// for every cluster, and without a node selector it matches nothing; OpenShift's operator sets those of worker. The
// control plane's pool has no node selector here: see pool.Decide. What Nodes should run is in OpenShift's
// spec.configuration, and in Poolboot's status.configuration.
func (o *Objects) readOpenShiftPool(raw []byte) (client.Object, error) {
	var theirs openShiftObject[struct {
		MachineConfigSelector *metav1.LabelSelector `json:"machineConfigSelector"`
		NodeSelector          *metav1.LabelSelector `json:"nodeSelector"`
		Paused                bool                  `json:"paused"`
		MaxUnavailable        *intstr.IntOrString   `json:"maxUnavailable"`
		Configuration         map[string]any        `json:"configuration"`
	}]
	if err := o.decodeOpenShift(OpenShiftPoolKind, raw, &theirs); err != nil {
		return nil, err
	}
	ours := poolv1.MachineConfigPool{ObjectMeta: theirs.ObjectMeta}
	ours.SetGroupVersionKind(OpenShiftPoolKind)
	ours.Spec.PoolRole = roleOf(theirs.Name)
	// An empty selector selects nothing in OpenShift, and Poolboot refuses it.
	if own := theirs.Spec.MachineConfigSelector; own != nil && len(own.MatchLabels)+len(own.MatchExpressions) > 0 {
		ours.Spec.MachineConfigSelector = own
	}
	ours.Spec.NodeSelector, ours.Spec.MaxUnavailable = theirs.Spec.NodeSelector, theirs.Spec.MaxUnavailable
	if ours.Spec.NodeSelector == nil {
		ours.Spec.NodeSelector = &metav1.LabelSelector{}
	}
	if pool.IsOfControlPlane(ours) {
		o.dropForControlPlane(&ours)
	}
	if theirs.Spec.Paused {
		ours.Spec.Paused = new(true)
	}
	if len(theirs.Spec.Configuration) > 0 {
		ours.Status.Configuration.Name, _ = theirs.Spec.Configuration["name"].(string)
		o.drop(OpenShiftPoolKind, theirs.Name, "spec.configuration", ignition.Mistake{})
	}
	if slices.Contains(BuiltIn, ours.Name) {
		if remark := completeBuiltIn(&ours); remark != "" {
			fmt.Fprintf(o.notes, "note: %v\n", o.LocateText(remark))
		}
	}
	return &ours, nil
}

// dropForControlPlane removes the fields that the pool of the control plane can't have, and lists those that differ
// from what it does without them.
func (o *Objects) dropForControlPlane(p *poolv1.MachineConfigPool) {
	isDefault := isEmptySelector(p) || slices.ContainsFunc([]string{Master, poolv1.RoleControlPlane}, func(role string) bool {
		return reflect.DeepEqual(p.Spec.NodeSelector, &metav1.LabelSelector{MatchLabels: map[string]string{poolv1.NodeRoleLabelPrefix + role: ""}})
	})
	if !isDefault {
		o.drop(OpenShiftPoolKind, p.Name, nodeSelectorField, ignition.Mistake{})
	}
	if limit := p.Spec.MaxUnavailable; limit != nil && *limit != intstr.FromInt32(1) {
		o.drop(OpenShiftPoolKind, p.Name, maxUnavailableField, ignition.Mistake{})
	}
	p.Spec.NodeSelector, p.Spec.MaxUnavailable = nil, nil
}

// readOpenShiftConfig reads OpenShift's MachineConfig, whose fields are those of Poolboot's, without Butane.
func (o *Objects) readOpenShiftConfig(raw []byte) (client.Object, error) {
	config := &poolv1.MachineConfig{}
	if err := o.decodeOpenShift(OpenShiftConfigKind, raw, config); err != nil {
		return nil, err
	}
	config.SetGroupVersionKind(OpenShiftConfigKind)
	if config.Spec.Butane != "" {
		config.Spec.Butane = ""
		o.drop(OpenShiftConfigKind, config.Name, "spec.butane", ignition.Mistake{})
	}
	return config, nil
}

// decodeOpenShift decodes an object and lists its fields that have a value and that object does not have, also if other
// values have a wrong type.
func (o *Objects) decodeOpenShift(kind schema.GroupVersionKind, raw []byte, object client.Object) error {
	var written map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &written); err != nil {
		return err
	}
	of := reflect.TypeOf(object).Elem()
	name, _, _ := unstructured.NestedString(written, "metadata", "name")
	for _, mistake := range findMistakes(written, of) {
		if mistake.Unknown && !IsEmpty(mistake.Value) {
			o.drop(kind, name, mistake.Path, mistake)
		}
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, object); err != nil {
		return explainDecoding(err, raw, of, false)
	}
	if len(object.GetOwnerReferences()) > 0 {
		o.drop(kind, name, ownersField, ignition.Mistake{})
	}
	if len(object.GetFinalizers()) > 0 {
		o.drop(kind, name, finalizersField, ignition.Mistake{})
	}
	return nil
}

// drop lists a field of an object that is not read. The mistake says whether it is misspelled or misplaced.
func (o *Objects) drop(kind schema.GroupVersionKind, name, path string, mistake ignition.Mistake) {
	dropped := DroppedField{Object: kind.Kind + " " + name, Path: path, Why: whyDropped[kind.Kind+" "+path]}
	ofCluster, isOfCluster := whyOfCluster[path]
	switch {
	case isOfCluster:
		dropped.Why, dropped.Expected = ofCluster, true
	case dropped.Why == "" && mistake.Place != "":
		dropped.Why = "Poolboot does not have this field here: " + mistake.Correct()
	case dropped.Why == "" && mistake.Nearest != "":
		dropped.Why = "Poolboot does not have this field: if it is misspelled, correct its name to " + mistake.Nearest
	case dropped.Why == "":
		dropped.Why = "Poolboot does not have this field"
	}
	o.Dropped = append(o.Dropped, dropped)
}

// Fields of the metadata that belong to the cluster from which an object was read.
const ownersField, finalizersField = "metadata.ownerReferences", "metadata.finalizers"

// whyOfCluster are the reasons why these fields are dropped.
var whyOfCluster = map[string]string{
	ownersField:     "the owner is in the OpenShift cluster, and the garbage collector would delete an object whose owner does not exist",
	finalizersField: "controllers of the OpenShift cluster remove finalizers, and without them the object could never be deleted",
}

// onlyOpenShiftAPI is why fields of an Image are dropped that are not for hosts.
const onlyOpenShiftAPI = "it is for the image streams and the image registry of OpenShift's API"

// whyDropped are the reasons why fields are dropped, by kind and path.
var whyDropped = map[string]string{
	OpenShiftPoolKind.Kind + " " + nodeSelectorField:             "the Nodes of this pool are those with the label " + poolv1.NodeRoleLabelPrefix + poolv1.RoleControlPlane,
	OpenShiftPoolKind.Kind + " " + maxUnavailableField:           "hosts of the control plane are updated one at a time",
	OpenShiftConfigKind.Kind + " spec.butane":                    "OpenShift does not have this field, and ignores it: to use it, set the apiVersion " + ConfigKind.GroupVersion().String(),
	OpenShiftImageKind.Kind + " spec.allowedRegistriesForImport": onlyOpenShiftAPI,
	OpenShiftImageKind.Kind + " spec.externalRegistryHostnames":  onlyOpenShiftAPI,
	OpenShiftImageKind.Kind + " spec.imageStreamImportMode":      onlyOpenShiftAPI,
}

// DroppedField is a field of an OpenShift object that has a value and that is not read.
type DroppedField struct {
	// Object is its kind and name.
	Object string
	// Path is the path of the field.
	Path string
	// Why is the reason.
	Why string
	// Expected is true for a field that has no meaning outside of the cluster from which the object was read.
	Expected bool
}

// IsEmpty reports whether a value of a JSON field means the same as a field that is not set.
func IsEmpty(value any) bool {
	switch v := reflect.ValueOf(value); v.Kind() {
	case reflect.String, reflect.Slice, reflect.Map:
		return v.Len() == 0
	default:
		return value == nil
	}
}

// RoleLabel is the label by which OpenShift's pools select MachineConfigs.
const RoleLabel = "machineconfiguration.openshift.io/role"

// NewBuiltIn returns a pool as OpenShift installs it.
func NewBuiltIn(name string) poolv1.MachineConfigPool {
	p := poolv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		"machineconfiguration.openshift.io/mco-built-in":                         "",
		fmt.Sprintf("pools.operator.machineconfiguration.openshift.io/%s", name): "",
	}}}
	p.SetGroupVersionKind(OpenShiftPoolKind)
	p.Spec.PoolRole = roleOf(name)
	p.Spec.MachineConfigSelector = &metav1.LabelSelector{MatchLabels: map[string]string{RoleLabel: name}}
	if !pool.IsOfControlPlane(p) {
		p.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{poolv1.NodeRoleLabelPrefix + name: ""}}
	}
	return p
}

// completeBuiltIn gives a built-in pool what OpenShift's has and the files leave out, as GitOps repositories do: they
// have only labels and spec.paused, and OpenShift's operator sets the selectors. It returns a remark, or "" if nothing
// is missing.
func completeBuiltIn(p *poolv1.MachineConfigPool) string {
	builtIn := NewBuiltIn(p.Name)
	var added []string
	if p.Spec.MachineConfigSelector == nil {
		p.Spec.MachineConfigSelector = builtIn.Spec.MachineConfigSelector
		added = append(added, "spec.machineConfigSelector")
	}
	if SelectsNothing(p) {
		p.Spec.NodeSelector = builtIn.Spec.NodeSelector
		added = append(added, nodeSelectorField)
	}
	if len(added) == 0 {
		return ""
	}
	maps.Copy(builtIn.Labels, p.Labels) // KubeletConfigs select the labels of the built-in pool
	p.Labels = builtIn.Labels
	return fmt.Sprintf("MachineConfigPool %q: the labels and %s of OpenShift's built-in pool are added, which the files do not contain",
		p.Name, strings.Join(added, " and "))
}

// SelectsNothing reports whether a pool of OpenShift's has no node selector or an empty one, with which it selects no
// Node.
func SelectsNothing(p *poolv1.MachineConfigPool) bool {
	return IsOpenShift(p.TypeMeta) && !pool.IsOfControlPlane(*p) && (p.Spec.NodeSelector == nil || isEmptySelector(p))
}

const nodeSelectorField, maxUnavailableField = "spec.nodeSelector", "spec.maxUnavailable"

func isEmptySelector(p *poolv1.MachineConfigPool) bool {
	s := p.Spec.NodeSelector
	return s != nil && len(s.MatchLabels)+len(s.MatchExpressions) == 0
}
