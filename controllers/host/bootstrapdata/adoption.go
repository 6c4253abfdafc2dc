package bootstrapdata

import (
	"context"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
)

// recordAdoption records that an adopted host has joined and has no token, and which path it has at the config server.
// All of it survives clusterctl move, as the owner does: the Machine of the Node or, without one, the Cluster.
func (r *Phases) recordAdoption(ctx context.Context, s *state) error {
	owner, err := r.ownerOfAdopted(ctx, s)
	if err != nil {
		return err
	}
	ca, err := r.ServerCA()
	if err != nil {
		return err
	}
	s.Config.Status.ConfigServer = bootstrapv1.ConfigServerReference{URL: r.ServerURL, CertificateAuthority: string(ca)}
	return s.PatchMetadata(ctx, func(config *bootstrapv1.PoolbootConfig) {
		record.RevokeToken(config)
		metav1.SetMetaDataAnnotation(&config.ObjectMeta, bootstrapv1.PointerIDAnnotation, bootstrapv1.AdoptedPointerID)
		// The PoolbootConfig can be older than the Node, or than what Cluster API knows of it.
		owners := slices.DeleteFunc(config.OwnerReferences, func(o metav1.OwnerReference) bool { return o.UID == s.Cluster.UID && owner.UID != o.UID })
		if len(owners) == 0 {
			owners = []metav1.OwnerReference{owner}
		}
		config.OwnerReferences = owners
	})
}

// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=machines,verbs=list;watch

// ownerOfAdopted returns the owner of a PoolbootConfig that adopts a Node.
func (r *Phases) ownerOfAdopted(ctx context.Context, s *state) (metav1.OwnerReference, error) {
	machines := &clusterv1.MachineList{}
	if err := r.Client.List(ctx, machines, client.InNamespace(s.Config.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: s.Cluster.Name},
		client.UnsafeDisableDeepCopy); err != nil {
		return metav1.OwnerReference{}, err
	}
	for i := range machines.Items {
		if m := &machines.Items[i]; m.Status.NodeRef.Name == s.Config.Spec.Host.NodeName {
			return record.AdoptionOwner(m), nil
		}
	}
	return metav1.OwnerReference{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: s.Cluster.Name, UID: s.Cluster.UID}, nil
}
