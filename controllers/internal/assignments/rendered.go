package assignments

import (
	"context"

	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
)

// maxRendered limits the rendered configs that are remembered. One that is forgotten is read again.
const maxRendered = 1000

// RenderedConfigs remembers the references to rendered configs, because the hash needs the whole config. A rendered
// config never changes.
type RenderedConfigs struct {
	reader client.Reader
	known  *lru.Cache // client.ObjectKey → assignment.RenderedConfig
}

// NewRenderedConfigs returns RenderedConfigs that reads MachineConfigs with a reader.
func NewRenderedConfigs(reader client.Reader) *RenderedConfigs {
	return &RenderedConfigs{reader: reader, known: lru.New(maxRendered)}
}

// Get returns the reference to a rendered config. The error is NotFound if it does not exist.
func (r *RenderedConfigs) Get(ctx context.Context, key client.ObjectKey) (assignment.RenderedConfig, error) {
	if known, ok := r.known.Get(key); ok {
		return known.(assignment.RenderedConfig), nil
	}
	config := &poolv1.MachineConfig{}
	if err := r.reader.Get(ctx, key, config); err != nil {
		return assignment.RenderedConfig{}, err
	}
	reference, err := join.RenderedOf(config)
	if err == nil {
		r.known.Add(key, reference)
	}
	return reference, err
}
