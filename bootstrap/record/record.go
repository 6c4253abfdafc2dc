// Package record reads the record of a boot from a PoolbootConfig and its pre-registered Node: the state of the token,
// whether the host has joined, the kind of host, the stage of the boot, and the names of the objects that belong to it.
// Each of these questions has one function here, and a test fails when other code reads the fields that the answer
// depends on. The package is pure: no client, no I/O.
package record

import (
	"strings"

	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
)

// Key returns the key of a PoolbootConfig. As text, <namespace>/<name>, it names the PoolbootConfig in the workload
// cluster: in an annotation of its Node and in its join credentials.
func Key(config *bootstrapv1.PoolbootConfig) types.NamespacedName {
	return types.NamespacedName{Namespace: config.Namespace, Name: config.Name}
}

// MachineName returns the name of the Machine that owns a PoolbootConfig. It is empty if no Machine does.
func MachineName(config *bootstrapv1.PoolbootConfig) string {
	for _, owner := range config.OwnerReferences {
		if owner.Kind == "Machine" {
			return owner.Name
		}
	}
	return ""
}

// ClusterName returns the name of a PoolbootConfig's Cluster, from the label that Cluster API's contract requires. It
// is empty while the label is not set.
func ClusterName(config *bootstrapv1.PoolbootConfig) string {
	return config.Labels[clusterv1.ClusterNameLabel]
}

// ClusterKey returns the key of a PoolbootConfig's Cluster.
func ClusterKey(config *bootstrapv1.PoolbootConfig) types.NamespacedName {
	return types.NamespacedName{Namespace: config.Namespace, Name: ClusterName(config)}
}

// OverlayName returns the name of the overlay Secret of the PoolbootConfig with a UID.
func OverlayName(config types.UID) string { return bootstrapv1.OverlayNamePrefix + string(config) }

// OverlayOwner returns the UID of the PoolbootConfig that the overlay Secret with a name belongs to.
func OverlayOwner(name string) types.UID {
	return types.UID(strings.TrimPrefix(name, bootstrapv1.OverlayNamePrefix))
}

// AssignmentName returns the name of the assignment Secret of the PoolbootConfig with a UID.
func AssignmentName(config types.UID) string {
	return bootstrapv1.AssignmentNamePrefix + string(config)
}

// AssignmentOwner returns the UID of the PoolbootConfig that the assignment Secret with a name belongs to.
func AssignmentOwner(name string) types.UID {
	return types.UID(strings.TrimPrefix(name, bootstrapv1.AssignmentNamePrefix))
}

// HostKind is the kind of host that a PoolbootConfig is for.
type HostKind string

const (
	// MachineHost is the host of a Machine.
	MachineHost HostKind = "Machine"
	// BareMetalHost is a BareMetalHost without a Machine, with an annotation that requests a pool.
	BareMetalHost HostKind = "BareMetalHost"
	// EnrolledHost is a host without a Machine that enrolled with a token.
	EnrolledHost HostKind = "Enrolled"
)

// HostKindOf returns the kind of host that a PoolbootConfig is for. It also returns MachineHost for a PoolbootConfig
// that no Machine owns yet, unless it names its host.
func HostKindOf(config *bootstrapv1.PoolbootConfig) HostKind {
	switch config.Spec.Host.Type {
	case "":
		return MachineHost
	case bootstrapv1.HostTypeBareMetalHost:
		return BareMetalHost
	default:
		return EnrolledHost
	}
}

// IsMachineless reports whether the host of a PoolbootConfig belongs to no Machine.
func IsMachineless(config *bootstrapv1.PoolbootConfig) bool { return HostKindOf(config) != MachineHost }

// IsEnrolled reports whether the host of a PoolbootConfig enrolled with a token. Such a host needs no data Secret.
func IsEnrolled(config *bootstrapv1.PoolbootConfig) bool { return HostKindOf(config) == EnrolledHost }
