package workload

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
)

const (
	// approvedTTL is how long a positive result is cached: that the cluster does not approve requests automatically.
	approvedTTL = time.Minute
	// autoApprovedTTL is how long a negative result is cached. It is short, because an administrator is to correct the
	// cluster.
	autoApprovedTTL = 10 * time.Second
)

// ApprovalChecker checks, before a join credential is created, that the workload cluster does not automatically approve
// the certificate signing requests of the credential. It caches the results. The zero value is ready to use.
type ApprovalChecker struct {
	// perCluster contains a nil error for a cluster that leaves the approval to Poolboot.
	perCluster[*join.AutoApprovedError]
}

// Check returns the result of join.CheckApproval for the Cluster with this UID.
func (a *ApprovalChecker) Check(ctx context.Context, w client.Client, cluster types.UID) error {
	autoApproved, err := a.get(cluster, approvalTTL, func() (*join.AutoApprovedError, error) {
		err := join.CheckApproval(ctx, w)
		if autoApproved, ok := errors.AsType[*join.AutoApprovedError](err); ok {
			return autoApproved, nil
		}
		return nil, err
	})
	if err != nil {
		return err
	}
	if autoApproved != nil {
		return autoApproved
	}
	return nil
}

func approvalTTL(autoApproved *join.AutoApprovedError) time.Duration {
	if autoApproved != nil {
		return autoApprovedTTL
	}
	return approvedTTL
}
