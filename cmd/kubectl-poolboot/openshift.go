package main

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kjson "k8s.io/apimachinery/pkg/util/json"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// openshift is the group and version of the Machine Config Operator's kinds. They are read as Poolboot's; fields that
// Poolboot does not have are passed over.
var openshift = schema.GroupVersion{Group: "machineconfiguration.openshift.io", Version: "v1"}

// isControlPlane says whether a role is that of the control plane, whose machines are in no pool of Poolboot's.
func isControlPlane(role string) bool {
	return slices.Contains([]string{"control-plane", "master"}, role)
}

// addOpenShiftPool adds OpenShift's MachineConfigPool. Its role is its name, it is of whichever cluster is asked about, and
// without a node selector it matches nothing. The control plane's has no hold on a Node: see pool.Decide.
func (o *objects) addOpenShiftPool(raw []byte) error {
	var theirs struct {
		metav1.ObjectMeta `json:"metadata"`
		Spec              struct {
			MachineConfigSelector *metav1.LabelSelector `json:"machineConfigSelector"`
			NodeSelector          *metav1.LabelSelector `json:"nodeSelector"`
		} `json:"spec"`
	}
	if err := kjson.Unmarshal(raw, &theirs); err != nil {
		return err
	}
	ours := poolv1.MachineConfigPool{ObjectMeta: theirs.ObjectMeta}
	ours.Spec.Role = theirs.Name
	ours.Spec.MachineConfigSelector = theirs.Spec.MachineConfigSelector
	ours.Spec.NodeSelector = theirs.Spec.NodeSelector
	if ours.Spec.NodeSelector == nil {
		ours.Spec.NodeSelector = &metav1.LabelSelector{}
	}
	o.pools = append(o.pools, ours)
	return nil
}

// addOpenShiftConfig adds OpenShift's MachineConfig, whose fields are those of Poolboot's, without Butane.
func (o *objects) addOpenShiftConfig(raw []byte) error {
	var config poolv1.MachineConfig
	if err := kjson.Unmarshal(raw, &config); err != nil {
		return err
	}
	config.Spec.Butane = ""
	o.configs = append(o.configs, config)
	return nil
}
