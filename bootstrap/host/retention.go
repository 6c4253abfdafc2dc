package host

import (
	"strings"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// RetainedPool returns the role of the pool that the host keeps for a Machine of a Cluster; "" when it keeps none, or one of
// another Cluster's.
func (h *Host) RetainedPool(cluster string) string {
	if h.Object == nil {
		return ""
	}
	of, role, _ := strings.Cut(h.Object.Annotations[poolv1.HostRetainedPoolAnnotation], "/")
	if of != cluster {
		return ""
	}
	return role
}

// Retention is the value of poolv1.HostRetainedPoolAnnotation that keeps a pool of a Cluster.
func Retention(cluster, role string) string { return cluster + "/" + role }
