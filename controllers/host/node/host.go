package node

import (
	corev1 "k8s.io/api/core/v1"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
)

// currentHost returns the host of a config that has joined if it is not recorded, or recorded with another UID:
// clusterctl move and the restore of a backup drop the record, and create the BareMetalHost again. It returns nil if
// the record is right. The phases of the boot record the host of a boot.
func currentHost(f facts) *bootstrapv1.HostReference {
	recorded := f.config.Status.HostRef
	if f.host == nil || f.host.UID == "" || !record.HasJoined(f.config) || recorded.IsDefined() && recorded.Name != f.host.Name {
		return nil
	}
	current := bootstrapv1.HostReference{Name: f.host.Name, Namespace: f.host.Namespace, UID: f.host.UID}
	if recorded == current {
		return nil
	}
	return &current
}

// followHost keeps the label with the host's UID current. clusterctl move creates the BareMetalHost again, with another
// UID, and while the Metal3Machine has no providerID, the Metal3 provider finds the Node only by this label. The label
// belongs to Metal3, not to users.
func followHost(node *corev1.Node, h *host.Host) {
	if h != nil && (node.Spec.ProviderID == "" || node.Spec.ProviderID == h.ProviderID) {
		node.Labels[poolv1.NodeMetal3UUIDLabel] = h.UID
	}
}
