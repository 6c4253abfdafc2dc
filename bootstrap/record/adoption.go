package record

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
)

// NewAdoption returns the PoolbootConfig with a key that adopts a Node of a Cluster for the pool with a role.
func NewAdoption(key types.NamespacedName, cluster, node, role string, policy bootstrapv1.AdoptionPolicy) *bootstrapv1.PoolbootConfig {
	return &bootstrapv1.PoolbootConfig{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Labels: map[string]string{clusterv1.ClusterNameLabel: cluster}},
		Spec: bootstrapv1.PoolbootConfigSpec{
			BootSpec: bootstrapv1.BootSpec{PoolRole: role},
			Host:     bootstrapv1.HostWithoutMachine{Type: bootstrapv1.HostTypeNode, NodeName: node, Adoption: policy},
		},
	}
}

// AdoptionOwner returns the owner reference to a Machine in the PoolbootConfig that adopts its Node, which is deleted
// with the Machine.
func AdoptionOwner(machine *clusterv1.Machine) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: machine.Name, UID: machine.UID}
}

// IsBootedByOther reports whether another bootstrap provider boots the host of a Machine.
func IsBootedByOther(machine *clusterv1.Machine) bool {
	ref := machine.Spec.Bootstrap.ConfigRef
	return ref.APIGroup != bootstrapv1.GroupVersion.Group || ref.Kind != "PoolbootConfig"
}
