package main

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "sigs.k8s.io/json"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// openshift is the group and version of the Machine Config Operator's kinds. They are read as Poolboot's; which of
// their fields Poolboot does not have is remembered.
var openshift = schema.GroupVersion{Group: "machineconfiguration.openshift.io", Version: "v1"}

// isControlPlane says whether a role is that of the control plane, whose machines are in no pool of Poolboot's.
func isControlPlane(role string) bool {
	return slices.Contains([]string{"control-plane", "master"}, role)
}

// isOpenShift says whether an object that was read is OpenShift's.
func isOpenShift(object metav1.TypeMeta) bool {
	return object.GroupVersionKind().Group == openshift.Group
}

// addOpenShiftPool adds OpenShift's MachineConfigPool. Its role is its name, it is of whichever cluster is asked about,
// and without a node selector it matches nothing. The control plane's has no hold on a Node: see pool.Decide.
func (o *objects) addOpenShiftPool(raw []byte) error {
	var theirs struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Spec              struct {
			MachineConfigSelector *metav1.LabelSelector `json:"machineConfigSelector"`
			NodeSelector          *metav1.LabelSelector `json:"nodeSelector"`
			Paused                bool                  `json:"paused"`
		} `json:"spec"`
		Status json.RawMessage `json:"status"`
	}
	if err := o.decodeOpenShift(openshiftPoolKind, raw, &theirs); err != nil {
		return err
	}
	ours := poolv1.MachineConfigPool{ObjectMeta: theirs.ObjectMeta}
	ours.SetGroupVersionKind(openshiftPoolKind)
	ours.Spec.PoolRole = theirs.Name
	if own := theirs.Spec.MachineConfigSelector; own != nil && len(own.MatchLabels)+len(own.MatchExpressions) > 0 { // an empty one selects nothing there, and is refused here
		ours.Spec.MachineConfigSelector = own
	}
	ours.Spec.NodeSelector = theirs.Spec.NodeSelector
	if ours.Spec.NodeSelector == nil {
		ours.Spec.NodeSelector = &metav1.LabelSelector{}
	}
	if theirs.Spec.Paused {
		ours.Spec.Paused = new(true)
	}
	o.pools = append(o.pools, ours)
	return nil
}

// addOpenShiftConfig adds OpenShift's MachineConfig, whose fields are those of Poolboot's, without Butane.
func (o *objects) addOpenShiftConfig(raw []byte) error {
	var config poolv1.MachineConfig
	if err := o.decodeOpenShift(openshiftConfigKind, raw, &config); err != nil {
		return err
	}
	config.SetGroupVersionKind(openshiftConfigKind)
	if config.Spec.Butane != "" {
		config.Spec.Butane = ""
		o.drop(openshiftConfigKind, config.Name, "spec.butane")
	}
	o.configs = append(o.configs, config)
	return nil
}

// decodeOpenShift decodes an object and remembers its fields that have a value and that object has no place for.
func (o *objects) decodeOpenShift(kind schema.GroupVersionKind, raw []byte, object metav1.Object) error {
	unknown, err := kjson.UnmarshalStrict(raw, object, kjson.DisallowUnknownFields)
	if err != nil {
		return err
	}
	if len(object.GetOwnerReferences()) > 0 {
		o.drop(kind, object.GetName(), "metadata.ownerReferences")
	}
	if len(object.GetFinalizers()) > 0 {
		o.drop(kind, object.GetName(), "metadata.finalizers")
	}
	if len(unknown) == 0 {
		return nil
	}
	var whole map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &whole); err != nil {
		return err
	}
	for _, strict := range unknown {
		var field kjson.FieldError
		if !errors.As(strict, &field) {
			return strict
		}
		value, found, err := unstructured.NestedFieldNoCopy(whole, strings.Split(field.FieldPath(), ".")...)
		if err != nil || !found || !isEmpty(value) {
			o.drop(kind, object.GetName(), field.FieldPath())
		}
	}
	return nil
}

func (o *objects) drop(kind schema.GroupVersionKind, name, path string) {
	o.dropped = append(o.dropped, droppedField{object: kind.Kind + " " + name, path: path})
}

// droppedField is a field of OpenShift's that has a value and no place in Poolboot.
type droppedField struct {
	object string // kind and name
	path   string
}

// isEmpty says whether a field that is left out would mean the same.
func isEmpty(value any) bool {
	switch value := value.(type) {
	case nil:
		return true
	case string:
		return value == ""
	case []any:
		return len(value) == 0
	case map[string]any:
		return len(value) == 0
	}
	return false
}
