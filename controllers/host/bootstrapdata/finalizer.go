package bootstrapdata

import (
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
)

// When a MachineDeployment is scaled up by a thousand, each write to a new PoolbootConfig happens a thousand times. The
// functions in this file avoid all writes except the two that its data Secret needs anyway.

// IsAwaitingMachine reports whether a MachineSet has just created a config and is about to create its Machine. If it
// cannot, it deletes the config again. There is nothing to report yet, and a write could conflict with those of Cluster
// API.
func IsAwaitingMachine(config *bootstrapv1.PoolbootConfig) bool {
	return config.DeletionTimestamp.IsZero() &&
		util.HasOwner(config.OwnerReferences, clusterv1.GroupVersion.String(), []string{"MachineSet"})
}

// NeedsFinalizer reports whether something exists for a config, or is created next, that is not deleted with it
// automatically. Only then is a finalizer useful. Before the data Secret is recorded, which the config owns, a host
// that must send a request gets nothing.
func NeedsFinalizer(config *bootstrapv1.PoolbootConfig) bool {
	return config.Spec.IsInline() || record.IsEnrolled(config) || config.Status.DataSecretName != ""
}
