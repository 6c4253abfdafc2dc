package pool

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// A host keeps a pool for the Machines of one Cluster. Cluster API knows a Cluster by its name and its UID, and neither
// will do: a Cluster that is made again after it was deleted has the same name, and one that clusterctl moves gets
// another UID. What is moved with a Cluster, with its annotations, and goes when it goes, are its pools: they carry the
// UID that it had first.

// ClusterIdentity returns what a pool's annotation poolv1.ClusterIdentityAnnotation is to be for a Cluster of this UID:
// what the pools that the Cluster owns have, the pool itself first; while none has any, the Cluster's UID. What a pool
// brings along from another Cluster, which may have had the same name, counts for nothing.
func ClusterIdentity(p *poolv1.MachineConfigPool, cluster types.UID, pools []poolv1.MachineConfigPool) string {
	if id := p.Annotations[poolv1.ClusterIdentityAnnotation]; id != "" && isOwned(p, cluster) {
		return id
	}
	for i := range pools {
		if id := pools[i].Annotations[poolv1.ClusterIdentityAnnotation]; id != "" && isOwned(&pools[i], cluster) {
			return id
		}
	}
	return string(cluster)
}

func isOwned(p *poolv1.MachineConfigPool, cluster types.UID) bool {
	return slices.ContainsFunc(p.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == cluster })
}

// identity is the one that the pools of a Cluster carry; empty while they carry none, or not the same.
func identity(pools []poolv1.MachineConfigPool) (id string) {
	for i := range pools {
		switch is := pools[i].Annotations[poolv1.ClusterIdentityAnnotation]; {
		case is == "" || is == id:
		case id != "":
			return ""
		default:
			id = is
		}
	}
	return id
}

// StaysOnHost says whether a BareMetalHost keeps the pool for its next Machine.
func StaysOnHost(spec *bootstrapv1.BootSpec) bool {
	return spec.PoolRetention == bootstrapv1.PoolRetentionHost
}

// Retention returns the value of poolv1.HostRetainedPoolAnnotation by which a host keeps the pool of a role for the
// Cluster that has these pools; "" while the Cluster's identity is not known.
func Retention(role string, pools []poolv1.MachineConfigPool) string {
	id := identity(pools)
	if id == "" {
		return ""
	}
	return strings.Join([]string{pools[0].Spec.ClusterName, role, id}, "/")
}

// retained returns the role of the pool that a host keeps for Machines of the Cluster that has these pools; "" when it
// keeps none, or one for another Cluster, be it one that had the same name before.
func retained(host metav1.Object, pools []poolv1.MachineConfigPool) string {
	kept := host.GetAnnotations()[poolv1.HostRetainedPoolAnnotation]
	if parts := strings.Split(kept, "/"); len(parts) == 3 && parts[1] != "" && kept == Retention(parts[1], pools) {
		return parts[1]
	}
	return ""
}
