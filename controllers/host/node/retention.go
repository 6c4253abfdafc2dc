package node

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/scope"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/status"
)

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=metal3machines,verbs=get;list;watch
// +kubebuilder:rbac:groups=metal3.io,resources=baremetalhosts,verbs=get;list;watch;patch

// retainPool records the pool of a Node that has joined on its BareMetalHost, for the next Machine that boots there.
// The lock prevents a write to a host that belongs to another Machine in the meantime.
func (r *Phases) retainPool(ctx context.Context, s *scope.Scope, f facts, d *decision) error {
	if !pool.IsRetainedOnHost(&f.config.Spec.BootSpec) || d.record == nil || !record.HasJoined(f.config) ||
		f.machine == nil || !f.machine.DeletionTimestamp.IsZero() {
		return nil
	}
	h, err := s.Host(ctx, r.Client)
	if err != nil || h == nil {
		return err
	}
	role := pool.Retention(d.record.pool, f.pools)
	if role == "" || h.Object.Annotations[poolv1.HostRetainedPoolAnnotation] == role {
		return nil
	}
	desired := h.Object.DeepCopy()
	metav1.SetMetaDataAnnotation(&desired.ObjectMeta, poolv1.HostRetainedPoolAnnotation, role)
	if err := r.Client.Patch(ctx, desired, status.Locked(h.Object)); err != nil {
		return fmt.Errorf("retain the pool of Node %s on BareMetalHost %s/%s: %w", f.node.Name, h.Namespace, h.Name, err)
	}
	return nil
}
