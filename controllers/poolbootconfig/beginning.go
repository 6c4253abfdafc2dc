package poolbootconfig

import (
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
)

// When a MachineDeployment is scaled by a thousand, each write on a new PoolbootConfig is a thousand. What is in this
// file keeps what is said of one that has just begun in the two writes that its data Secret needs anyway.

// isComing says whether a config was just made by a MachineSet, which is about to make its Machine and, if it can't,
// takes the config back: there is nothing to say yet, and whatever is said would be in the way of Cluster API's own
// writes.
func isComing(config *bootstrapv1.PoolbootConfig) bool {
	return config.DeletionTimestamp.IsZero() &&
		util.HasOwner(config.OwnerReferences, clusterv1.GroupVersion.String(), []string{"MachineSet"})
}

// mayLeaveTraces says whether something may stand for a config, or is made next, that does not go with it by itself:
// only then a finalizer is of use. Before its data Secret is on record, which is its own, a host that has to ask gets
// nothing.
func mayLeaveTraces(config *bootstrapv1.PoolbootConfig) bool {
	return config.Spec.IsInline() || record.IsEnrolled(config) || config.Status.DataSecretName != ""
}
