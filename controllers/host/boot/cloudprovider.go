package boot

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// findCloudProvider returns the field that starts the kubelet of the host with --cloud-provider=external, or "" if
// there is none. A host with an inline data Secret does not need its rendered config, so it can be gone.
func (r *Phases) findCloudProvider(ctx context.Context, s *state) (string, error) {
	source, err := s.ExternalCloudProvider(ctx, s.configuration)
	switch {
	case apierrors.IsNotFound(err) && s.Config.Spec.IsInline():
		return "", nil
	case apierrors.IsNotFound(err):
		return "", notRendered(client.ObjectKey{Namespace: s.pool.Namespace, Name: s.configuration}, &s.pool)
	}
	return source, err
}

// notRendered returns the failure of a host whose rendered config does not exist. Its pool creates it again.
func notRendered(key client.ObjectKey, p *poolv1.MachineConfigPool) error {
	return fault(bootstrapv1.PoolNotRenderedReason, "MachineConfig %s, the rendered config of MachineConfigPool %s, does not exist: see the conditions of the pool", key, p.Name)
}
