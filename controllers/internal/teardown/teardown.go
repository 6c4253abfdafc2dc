// Package teardown deletes what a boot has outside of its PoolbootConfig when the boot ends: because its host joined,
// because it was withdrawn, or because the PoolbootConfig is deleted.
package teardown

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstraputil "k8s.io/cluster-bootstrap/token/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/status"
)

// Boot describes a boot that ends, and what is deleted with it.
type Boot struct {
	// Config is the PoolbootConfig of the boot.
	Config *bootstrapv1.PoolbootConfig
	// HasJoined is true if the host has joined and continues to run. Its token is revoked then, and its assignment
	// stays.
	HasJoined bool

	// Management writes to the management cluster.
	Management client.Client
	// OverlayNamespace is the namespace of overlay Secrets and assignment Secrets.
	OverlayNamespace string

	// Workload connects to the workload cluster. It is nil if the cluster no longer exists.
	Workload func(context.Context) (client.Client, error)
	// CredentialID is the ID of the join credential, or empty if there is none.
	CredentialID string
	// NodeName is the name of the Node to delete, or empty to delete no Node.
	NodeName string
	// IsUnused reports whether the Node with that name belongs to this boot, and no kubelet uses it. Other Nodes stay.
	IsUnused func(*corev1.Node) bool
	// KeepsHost is true if the host stays in the cluster: then its Node is not left cordoned for an update.
	KeepsHost bool
}

// LeftoverError is the error of a boot whose objects are deleted, except objects in the workload cluster.
type LeftoverError struct {
	// Objects are the objects that can remain.
	Objects []string
	// Err is why they could not be deleted.
	Err error
}

// Error implements error.
func (e *LeftoverError) Error() string {
	return fmt.Sprintf("%s can remain in the workload cluster: %s", strings.Join(e.Objects, " and "), e.Err)
}

// Unwrap returns why the objects could not be deleted.
func (e *LeftoverError) Unwrap() error { return e.Err }

// Delete revokes the token, if the host has joined, and deletes the overlay, the assignment of a host that has not
// joined, the join credential and the Node, in this order. What lets a host continue is first: no controller extends a
// credential whose token is revoked, and no host receives an overlay whose credential is deleted. If the token cannot
// be revoked, nothing is deleted. After that, an object that cannot be deleted does not prevent the deletion of the
// others.
//
// Delete can be repeated after every failure. So the caller removes the ID of the credential from the record, or the
// finalizer, only if Delete succeeded. The error is a *LeftoverError if only objects in the workload cluster remain.
func (b Boot) Delete(ctx context.Context) error {
	if b.HasJoined {
		if err := b.revokeToken(ctx); err != nil {
			return err
		}
	}
	err := b.deleteSecret(ctx, "overlay", record.OverlayName(b.Config.UID))
	if !b.HasJoined {
		err = errors.Join(err, b.deleteSecret(ctx, "assignment", record.AssignmentName(b.Config.UID)))
	}
	leftover := b.deleteInWorkloadCluster(ctx)
	switch {
	case leftover == nil:
		return err
	case err == nil:
		return leftover
	}
	return errors.Join(err, leftover.Err)
}

// revokeToken revokes the token of the host, unless it is already revoked. The lock protects annotations that another
// writer has changed.
func (b Boot) revokeToken(ctx context.Context) error {
	if record.HasJoined(b.Config) {
		return nil
	}
	revoked := b.Config.DeepCopy()
	record.RevokeToken(revoked)
	if err := b.Management.Patch(ctx, revoked, status.Locked(b.Config)); err != nil {
		return err
	}
	*b.Config = *revoked
	return nil
}

// deleteSecret deletes a Secret in the namespace of the config server.
func (b Boot) deleteSecret(ctx context.Context, kind, name string) error {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: b.OverlayNamespace, Name: name}}
	if err := b.Management.Delete(ctx, secret); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("%s Secret %s/%s: %w", kind, secret.Namespace, secret.Name, err)
	}
	return nil
}

// deleteInWorkloadCluster deletes the join credential and the Node. It returns nil if neither remains.
func (b Boot) deleteInWorkloadCluster(ctx context.Context) *LeftoverError {
	if b.Workload == nil || b.CredentialID == "" && b.NodeName == "" {
		return nil
	}
	w, connectErr := b.Workload(ctx)
	leftover := &LeftoverError{Err: connectErr}
	deleteOne := func(object string, deleteIn func(context.Context, client.Client) error) {
		if connectErr == nil {
			err := deleteIn(ctx, w)
			if err == nil {
				return
			}
			leftover.Err = errors.Join(leftover.Err, err)
		}
		leftover.Objects = append(leftover.Objects, object)
	}
	if b.CredentialID != "" {
		secret := bootstraputil.BootstrapTokenSecretName(b.CredentialID)
		deleteOne("Secret "+metav1.NamespaceSystem+"/"+secret, func(ctx context.Context, w client.Client) error {
			return join.DeleteCredential(ctx, w, b.CredentialID)
		})
	}
	if b.NodeName != "" {
		deleteOne("Node "+b.NodeName, b.deleteNode)
	}
	if leftover.Err == nil {
		return nil
	}
	return leftover
}

// endDrain undoes what an update did to the Node of a host that stays. Nothing follows this update any more. The Node
// of an adopted host names no PoolbootConfig and no pool any more, and keeps its other labels and taints.
func (b Boot) endDrain(ctx context.Context, w client.Client, node *corev1.Node) error {
	ended := node.DeepCopy()
	rollout.EndUpdate(ended)
	if record.IsAdopted(b.Config) {
		delete(ended.Labels, poolv1.NodePoolLabel)
		maps.DeleteFunc(ended.Annotations, func(key, _ string) bool { return strings.HasPrefix(key, poolv1.GroupVersion.Group+"/") })
	}
	if !b.KeepsHost || !record.IsNodeOf(node, b.Config) || maps.Equal(ended.Annotations, node.Annotations) {
		return nil
	}
	return client.IgnoreNotFound(w.Patch(ctx, ended, status.Locked(node)))
}

// deleteNode deletes the Node if it is unused. The preconditions protect a Node that a kubelet starts to use in the
// meantime.
func (b Boot) deleteNode(ctx context.Context, w client.Client) error {
	node := &corev1.Node{}
	if err := w.Get(ctx, client.ObjectKey{Name: b.NodeName}, node); err != nil {
		return client.IgnoreNotFound(err)
	}
	if !b.IsUnused(node) {
		return b.endDrain(ctx, w, node)
	}
	return client.IgnoreNotFound(w.Delete(ctx, node, client.Preconditions{UID: &node.UID, ResourceVersion: &node.ResourceVersion}))
}
