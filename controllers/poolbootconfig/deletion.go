package poolbootconfig

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
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/status"
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

// delete deletes what exists for the PoolbootConfig elsewhere, and then removes its finalizer. The data Secret is
// deleted with its owner.
func (r *Reconciler) delete(ctx context.Context, s *scope) (ctrl.Result, error) {
	boot := teardown.Boot{
		Config:           s.config,
		Management:       r.Client,
		OverlayNamespace: r.OverlayNamespace,
		CredentialID:     s.config.Status.Boot.CredentialID,
		NodeName:         registration.Name(registration.Naming{Config: s.config, Machine: s.machine}), // also if the Node is not recorded
		IsUnused:         s.hasNeverJoined,
		KeepsHost:        s.machine == nil || s.machine.DeletionTimestamp.IsZero(), // else Cluster API deletes its Node
	}
	if s.cluster != nil && s.cluster.DeletionTimestamp.IsZero() {
		boot.Workload = func(ctx context.Context) (client.Client, error) {
			return workload.LiveClient(ctx, r.ClusterCache, client.ObjectKeyFromObject(s.cluster))
		}
	}
	err := boot.Delete(ctx)
	leftover, onlyLeftovers := errors.AsType[*teardown.LeftoverError](err)
	isPatient := time.Since(s.config.DeletionTimestamp.Time) < cleanupPatience
	switch {
	case err == nil:
	case onlyLeftovers && isPatient && workload.IsUnreachable(err):
		return ctrl.Result{RequeueAfter: unreachableRetry}, nil
	case onlyLeftovers && !isPatient:
		r.reportLeftovers(s, leftover)
	default:
		return ctrl.Result{}, err
	}
	if s.machine != nil { // nothing else ends a pause of its health checks after this
		if _, err := remediation.Pause(ctx, r.Client, s.machine, false); err != nil {
			return ctrl.Result{}, err
		}
	}
	before := s.config.DeepCopy()
	controllerutil.RemoveFinalizer(s.config, bootstrapv1.Finalizer)
	return ctrl.Result{}, client.IgnoreNotFound(r.Client.Patch(ctx, s.config, status.Locked(before)))
}

// reportLeftovers creates events on the config and its Machine that name what can remain in the workload cluster.
func (r *Reconciler) reportLeftovers(s *scope, leftover *teardown.LeftoverError) {
	note := fmt.Sprintf("%s can remain in workload cluster %s, because the deletion failed: %s. Delete it there, unless the Node is Ready",
		strings.Join(leftover.Objects, " and "), klog.KObj(s.cluster), leftover.Err)
	r.event(s.config, corev1.EventTypeWarning, bootstrapv1.EventLeftInWorkloadCluster, "Delete", "%s", note)
	if s.machine != nil {
		r.Recorder.Eventf(s.machine, s.config, corev1.EventTypeWarning, bootstrapv1.EventLeftInWorkloadCluster, "Delete", "%s", note)
	}
}

// hasNeverJoined reports whether a Node was pre-registered for the PoolbootConfig and was never Ready, or its Machine
// is deleted before Cluster API has found the Node. Cluster API drains and deletes the other Nodes of Machines. A user
// deletes the Node of a host without a Machine.
func (s *scope) hasNeverJoined(node *corev1.Node) bool {
	if !record.IsNodeOf(node, s.config) {
		return false
	}
	if record.IsMachineless(s.config) && !record.HasNode(s.config) && record.HasKubelet(node) {
		return false // the Node of a host that was installed before
	}
	if m := s.machine; m != nil && !m.DeletionTimestamp.IsZero() && m.Spec.ProviderID == "" && !m.Status.NodeRef.IsDefined() {
		return true
	}
	return !record.HasJoined(s.config) && !util.IsNodeReady(node)
}
