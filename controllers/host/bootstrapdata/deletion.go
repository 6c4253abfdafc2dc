package bootstrapdata

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/cluster-api/util"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/remediation"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/scope"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/teardown"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// A workload cluster that is unreachable, or refuses requests, delays a deletion for cleanupPatience. An unreachable
// cluster is tried every unreachableRetry, which gives a manager that has just started the time to connect. After that,
// the join credential expires on its own, and an event reports what remains: a Machine must not stay forever because of
// a cluster to which nothing can be written.
const (
	cleanupPatience  = time.Minute
	unreachableRetry = 10 * time.Second
)

// Delete deletes what exists for the PoolbootConfig elsewhere, and then removes its finalizer. The data Secret is
// deleted with its owner.
func (r *Phases) Delete(ctx context.Context, of *scope.Scope) (ctrl.Result, error) {
	s := &state{Scope: of}
	boot := teardown.Boot{
		Config:           s.Config,
		Management:       r.Client,
		OverlayNamespace: r.OverlayNamespace,
		CredentialID:     s.Config.Status.Boot.CredentialID,
		NodeName:         registration.Name(registration.Naming{Config: s.Config, Machine: s.Machine}), // also if the Node is not recorded
		IsUnused:         s.hasNeverJoined,
		KeepsHost:        s.Machine == nil || s.Machine.DeletionTimestamp.IsZero(), // else Cluster API deletes its Node
	}
	if s.Cluster != nil && s.Cluster.DeletionTimestamp.IsZero() {
		boot.Workload = func(ctx context.Context) (client.Client, error) {
			return workload.LiveClient(ctx, r.ClusterCache, client.ObjectKeyFromObject(s.Cluster))
		}
	}
	err := boot.Delete(ctx)
	leftover, onlyLeftovers := errors.AsType[*teardown.LeftoverError](err)
	isPatient := time.Since(s.Config.DeletionTimestamp.Time) < cleanupPatience
	switch {
	case err == nil:
	case onlyLeftovers && isPatient && workload.IsUnreachable(err):
		return ctrl.Result{RequeueAfter: unreachableRetry}, nil
	case onlyLeftovers && !isPatient:
		r.reportLeftovers(s, leftover)
	default:
		return ctrl.Result{}, err
	}
	if s.Machine != nil { // nothing else ends a pause of its health checks after this
		if _, err := remediation.End(ctx, r.Client, s.Machine, s.Config); err != nil {
			return ctrl.Result{}, err
		}
	}
	err = s.PatchMetadata(ctx, func(config *bootstrapv1.PoolbootConfig) {
		controllerutil.RemoveFinalizer(config, bootstrapv1.Finalizer)
	})
	return ctrl.Result{}, client.IgnoreNotFound(err)
}

// reportLeftovers creates events on the config and its Machine that name what can remain in the workload cluster.
func (r *Phases) reportLeftovers(s *state, leftover *teardown.LeftoverError) {
	note := fmt.Sprintf("%s can remain in workload cluster %s, because the deletion failed: %s. Delete it there, unless the Node is Ready",
		strings.Join(leftover.Objects, " and "), klog.KObj(s.Cluster), leftover.Err)
	r.event(s.Config, corev1.EventTypeWarning, bootstrapv1.EventLeftInWorkloadCluster, "Delete", "%s", note)
	if s.Machine != nil {
		r.Recorder.Eventf(s.Machine, s.Config, corev1.EventTypeWarning, bootstrapv1.EventLeftInWorkloadCluster, "Delete", "%s", note)
	}
}

// hasNeverJoined reports whether a Node was pre-registered for the PoolbootConfig and was never Ready, or its Machine
// is deleted before Cluster API has found the Node. Cluster API drains and deletes the other Nodes of Machines. A user
// deletes the Node of a host without a Machine.
func (s *state) hasNeverJoined(node *corev1.Node) bool {
	if !record.IsNodeOf(node, s.Config) || record.IsAdopted(s.Config) {
		return false
	}
	if record.IsMachineless(s.Config) && !record.HasNode(s.Config) && record.HasKubelet(node) {
		return false // the Node of a host that was installed before
	}
	if m := s.Machine; m != nil && !m.DeletionTimestamp.IsZero() && m.Spec.ProviderID == "" && !m.Status.NodeRef.IsDefined() {
		return true
	}
	return !record.HasJoined(s.Config) && !util.IsNodeReady(node)
}
