// Package v1alpha1 holds the kinds of the group poolboot.io: machine configs and the pools that collect them,
// as OpenShift's Machine Config Operator knows them, for any Cluster API cluster, and enrollments, by which pools admit
// hosts that Cluster API does not manage. It holds types and constants only: what they mean is decided in
// bootstrap/pool, what they cause in controllers.
//
// A spec is its author's: no controller changes one. What a controller records is in the status or, if it must survive
// clusterctl move, which drops status, in an annotation of the object.
//
// +kubebuilder:object:generate=true
// +groupName=poolboot.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	// GroupVersion is the group and version of the kinds in this package.
	GroupVersion = schema.GroupVersion{Group: "poolboot.io", Version: "v1alpha1"}

	schemeBuilder = runtime.NewSchemeBuilder(addKnownTypes)

	// AddToScheme adds the kinds of this package to a scheme.
	AddToScheme = schemeBuilder.AddToScheme
)

func addKnownTypes(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&MachineConfig{}, &MachineConfigList{},
		&MachineConfigPool{}, &MachineConfigPoolList{},
		&Enrollment{}, &EnrollmentList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
