package poolbootconfig

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstraputil "k8s.io/cluster-bootstrap/token/util"
	"k8s.io/klog/v2"
	"sigs.k8s.io/cluster-api/util"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/status"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// A workload cluster that can't be reached, or refuses, holds a deletion up for cleanupPatience, and one that can't be
// reached is looked at every unreachableRetry: long enough for a manager that has just started to connect. After that
// the credential ends by itself, and whatever else is left is told: a Machine must not stay for ever because of a
// cluster that nobody can write to.
const (
	cleanupPatience  = time.Minute
	unreachableRetry = 10 * time.Second
)

// delete removes what the config left elsewhere and then its finalizer. The data Secret goes with its owner.
func (r *Reconciler) delete(ctx context.Context, s *scope) (ctrl.Result, error) {
	overlay := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: r.OverlayNamespace, Name: record.OverlayName(s.config.UID)}}
	if err := r.Client.Delete(ctx, overlay); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("overlay Secret %s/%s: %w", overlay.Namespace, overlay.Name, err)
	}
	if s.cluster != nil && s.cluster.DeletionTimestamp.IsZero() {
		left, err := r.cleanWorkloadCluster(ctx, s)
		patient := time.Since(s.config.DeletionTimestamp.Time) < cleanupPatience
		switch {
		case err != nil && patient && workload.IsUnreachable(err):
			return ctrl.Result{RequeueAfter: unreachableRetry}, nil
		case err != nil && patient:
			return ctrl.Result{}, err
		case err != nil:
			r.reportLeft(s, left, err)
		}
	}
	before := s.config.DeepCopy()
	controllerutil.RemoveFinalizer(s.config, bootstrapv1.Finalizer)
	return ctrl.Result{}, client.IgnoreNotFound(r.Client.Patch(ctx, s.config, status.Locked(before)))
}

// reportLeft sends the event about what may be left in the workload cluster, about the config and its Machine.
func (r *Reconciler) reportLeft(s *scope, left []string, why error) {
	note := fmt.Sprintf("%s may be left in workload cluster %s, which does not let it be deleted: %s. Delete it there, unless the Node is Ready",
		strings.Join(left, " and "), klog.KObj(s.cluster), why)
	r.event(s.config, corev1.EventTypeWarning, bootstrapv1.EventLeftInWorkloadCluster, "Delete", "%s", note)
	if s.machine != nil {
		r.Recorder.Eventf(s.machine, s.config, corev1.EventTypeWarning, bootstrapv1.EventLeftInWorkloadCluster, "Delete", "%s", note)
	}
}

// cleanWorkloadCluster deletes the join credential, and a Node whose kubelet never came, each whatever becomes of the
// other. With an error it returns what may be left.
func (r *Reconciler) cleanWorkloadCluster(ctx context.Context, s *scope) ([]string, error) {
	id := s.config.Status.Boot.CredentialID
	name := registration.Name(registration.Naming{Config: s.config, Machine: s.machine}) // also of a Node that was made and is not on record
	var (
		left   []string
		failed []error
	)
	w, unreachable := workload.LiveClient(ctx, r.ClusterCache, client.ObjectKeyFromObject(s.cluster))
	clean := func(what string, do func() error) {
		err := unreachable
		if err == nil {
			err = do()
		}
		if err != nil {
			left, failed = append(left, what), append(failed, err)
		}
	}
	if id != "" {
		clean("Secret "+metav1.NamespaceSystem+"/"+bootstraputil.BootstrapTokenSecretName(id), func() error { return join.DeleteCredential(ctx, w, id) })
	}
	if name != "" {
		clean("Node "+name, func() error { return deleteNode(ctx, w, s, name) })
	}
	if unreachable != nil && len(left) > 0 {
		return left, unreachable
	}
	return left, errors.Join(failed...)
}

// deleteNode deletes the Node of a config if its kubelet never came.
func deleteNode(ctx context.Context, w client.Client, s *scope, name string) error {
	made := &corev1.Node{}
	if err := w.Get(ctx, client.ObjectKey{Name: name}, made); err != nil {
		return client.IgnoreNotFound(err)
	}
	if !neverJoined(s, made) {
		return nil
	}
	return client.IgnoreNotFound(w.Delete(ctx, made, client.Preconditions{UID: &made.UID, ResourceVersion: &made.ResourceVersion}))
}

// neverJoined says whether a Node was made for a config and its kubelet never came, or never became Ready, or its
// Machine goes before Cluster API has heard of it. Any other Node is Cluster API's to drain and delete, and that of a
// host without a Machine a person's.
func neverJoined(s *scope, node *corev1.Node) bool {
	if !record.IsNodeOf(node, s.config) {
		return false
	}
	if record.IsMachineless(s.config) && !record.HasNode(s.config) && record.HasKubelet(node) {
		return false // of a host that was installed before
	}
	if m := s.machine; m != nil && !m.DeletionTimestamp.IsZero() && m.Spec.ProviderID == "" && !m.Status.NodeRef.IsDefined() {
		return true
	}
	return !record.HasJoined(s.config) && !util.IsNodeReady(node)
}
