package pool

import (
	"cmp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// A pool is retained on a host for the Machines of one Cluster. Neither the Cluster's name nor its UID identifies it: a
// Cluster that is deleted and created again has the same name, and clusterctl move changes the UID. But the pools of a
// Cluster are moved with it, with their annotations, and deleted with it. So the pools carry the first UID of the
// Cluster.

// ClusterIdentity returns the value of a pool's annotation poolv1.ClusterIdentityAnnotation for a Cluster with this
// UID: the value of the pools that the Cluster owns, first of the pool itself. If none has a value, it is the Cluster's
// UID. The value of a pool that another Cluster owns is ignored, also if that Cluster had the same name.
func ClusterIdentity(p *poolv1.MachineConfigPool, cluster types.UID, pools []poolv1.MachineConfigPool) string {
	for _, p := range slices.Concat([]poolv1.MachineConfigPool{*p}, pools) {
		isOwned := slices.ContainsFunc(p.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == cluster })
		if id := p.Annotations[poolv1.ClusterIdentityAnnotation]; id != "" && isOwned {
			return id
		}
	}
	return string(cluster)
}

// identity returns the identity that the pools of a Cluster have in their annotations, or "" if they have none or
// different ones.
func identity(pools []poolv1.MachineConfigPool) (id string) {
	for i := range pools {
		of := pools[i].Annotations[poolv1.ClusterIdentityAnnotation]
		if of != "" && id != "" && of != id {
			return ""
		}
		id = cmp.Or(id, of)
	}
	return id
}

// IsRetainedOnHost reports whether the pool is retained on the BareMetalHost for its next Machine.
func IsRetainedOnHost(spec *bootstrapv1.BootSpec) bool {
	return spec.PoolRetention == bootstrapv1.PoolRetentionHost
}

// Retention returns the value of poolv1.HostRetainedPoolAnnotation that retains the pool of a role on a host, for the
// Cluster with these pools. It returns "" while the Cluster's identity is unknown.
func Retention(role string, pools []poolv1.MachineConfigPool) string {
	id := identity(pools)
	if id == "" {
		return ""
	}
	return strings.Join([]string{pools[0].Spec.ClusterName, role, id}, "/")
}

// retainedRole returns the role of the pool that is retained on a host for Machines of the Cluster with these pools. It
// returns "" if none is, or if it is retained for another Cluster, including an earlier one with the same name.
func retainedRole(host metav1.Object, pools []poolv1.MachineConfigPool) string {
	value := host.GetAnnotations()[poolv1.HostRetainedPoolAnnotation]
	if parts := strings.Split(value, "/"); len(parts) == 3 && parts[1] != "" && value == Retention(parts[1], pools) {
		return parts[1]
	}
	return ""
}
