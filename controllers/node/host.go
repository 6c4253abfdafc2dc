package node

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
)

// findHost returns the host of a config, or nil if there is none now.
func (r *Reconciler) findHost(ctx context.Context, f facts) (*host.Host, error) {
	found, err := host.ForConfig(ctx, r.Client, f.config, f.machine)
	if _, ok := errors.AsType[*host.NotReadyError](err); ok {
		return nil, nil
	}
	return found, err
}

// followHost keeps the label with the host's UID current. clusterctl move creates the BareMetalHost again, with another
// UID, and while the Metal3Machine has no providerID, the Metal3 provider finds the Node only by this label. The label
// belongs to Metal3, not to users.
func followHost(node *corev1.Node, h *host.Host) {
	if h != nil && (node.Spec.ProviderID == "" || node.Spec.ProviderID == h.ProviderID) {
		node.Labels[poolv1.NodeMetal3UUIDLabel] = h.UID
	}
}
