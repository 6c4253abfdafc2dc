// Package v1alpha1 holds the types about Nodes that Poolboot's API groups share. It is not an API group and has no
// kinds.
//
// +kubebuilder:object:generate=true
package v1alpha1
