// Package v1alpha1 holds the types about Nodes that the API groups of Poolboot share. It is no API group: nothing here
// is an object of its own.
//
// +kubebuilder:object:generate=true
package v1alpha1
