package node

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/status"
)

// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=metal3machines,verbs=get;list;watch
// +kubebuilder:rbac:groups=metal3.io,resources=baremetalhosts,verbs=get;list;watch;patch

// keepOnHost records the pool of a Node that has joined on its BareMetalHost, for the next Machine that boots there.
// The lock prevents a write to a host that belongs to another Machine in the meantime.
func (r *Reconciler) keepOnHost(ctx context.Context, f facts, j judgement) error {
	if !pool.IsRetainedOnHost(&f.config.Spec.BootSpec) || j.record == nil || f.machine == nil || !f.machine.DeletionTimestamp.IsZero() ||
		!record.HasJoined(f.config) {
		return nil
	}
	on, err := host.ForMachine(ctx, r.Client, f.machine)
	if _, none := errors.AsType[*host.NotReadyError](err); none {
		return nil
	}
	if err != nil || on == nil {
		return err
	}
	kept := pool.Retention(j.record.pool, f.pools)
	if kept == "" || on.Object.Annotations[poolv1.HostRetainedPoolAnnotation] == kept {
		return nil
	}
	marked := on.Object.DeepCopy()
	metav1.SetMetaDataAnnotation(&marked.ObjectMeta, poolv1.HostRetainedPoolAnnotation, kept)
	if err := r.Client.Patch(ctx, marked, status.Locked(on.Object)); err != nil {
		return fmt.Errorf("pool of Node %s on BareMetalHost %s/%s: %w", f.node.Name, on.Namespace, on.Name, err)
	}
	return nil
}
