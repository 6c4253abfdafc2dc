package boot

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
)

// maxCloudProviders limits the rendered configs that are remembered. One that is forgotten is searched again.
const maxCloudProviders = 1000

// findCloudProvider returns the field that starts the kubelet of the host with --cloud-provider=external, or "" if
// there is none.
func (r *Phases) findCloudProvider(ctx context.Context, s *state) (string, error) {
	source, err := join.FindExternalCloudProvider(s.Config)
	if err != nil || source != "" {
		return source, err
	}
	return r.findRenderedCloudProvider(ctx, s)
}

// findRenderedCloudProvider is findCloudProvider for the rendered config, which is read from the cache and searched
// once. A rendered config never changes. A host with an inline data Secret does not need the rendered config, so it can
// be gone.
func (r *Phases) findRenderedCloudProvider(ctx context.Context, s *state) (string, error) {
	key := client.ObjectKey{Namespace: s.pool.Namespace, Name: s.configuration}
	if source, known := r.cloudProviders.Get(key); known {
		return source.(string), nil
	}
	rendered := &poolv1.MachineConfig{}
	err := r.Client.Get(ctx, key, rendered)
	switch {
	case apierrors.IsNotFound(err) && s.Config.Spec.IsInline():
		return "", nil
	case apierrors.IsNotFound(err):
		return "", notRendered(key, &s.pool)
	case err != nil:
		return "", err
	}
	source, err := pool.FindExternalCloudProvider(rendered)
	if err != nil {
		return "", err
	}
	r.cloudProviders.Add(key, source)
	return source, nil
}

// notRendered returns the failure of a host whose rendered config does not exist. Its pool creates it again.
func notRendered(key client.ObjectKey, p *poolv1.MachineConfigPool) error {
	return fault(bootstrapv1.PoolNotRenderedReason, "MachineConfig %s, the rendered config of MachineConfigPool %s, does not exist: see the conditions of the pool", key, p.Name)
}
