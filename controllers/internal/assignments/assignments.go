// Package assignments stores the assignments of hosts as Secrets in the namespace of the config server, which reads
// them there. The host controller stores the first one of a host, before the host gets its overlay. The update
// controller stores the later ones.
package assignments

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/utils/lru"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
)

// fieldOwner is the field manager of server-side apply.
const fieldOwner = client.FieldOwner("poolboot")

// Secrets are the assignment Secrets in a namespace.
type Secrets struct {
	// Client writes them.
	Client client.Client
	// Namespace is that of the config server.
	Namespace string
}

// Key returns the key of the assignment Secret of the PoolbootConfig with a UID.
func (s Secrets) Key(config types.UID) client.ObjectKey {
	return client.ObjectKey{Namespace: s.Namespace, Name: record.AssignmentName(config)}
}

// Store creates or replaces the assignment of a PoolbootConfig, and returns the resource version of the Secret.
// clientCA is the PEM bundle that verifies the client certificates of the kubelets of its Cluster. The same
// assignment can be stored again.
func (s Secrets) Store(ctx context.Context, config types.UID, document, clientCA []byte) (version string, err error) {
	key := s.Key(config)
	secret := corev1apply.Secret(key.Name, key.Namespace).
		WithType(corev1.SecretTypeOpaque).
		WithLabels(map[string]string{bootstrapv1.AssignmentLabel: string(config)}).
		WithData(map[string][]byte{bootstrapv1.AssignmentKey: document, bootstrapv1.AssignmentClientCAKey: clientCA})
	if err := s.Client.Apply(ctx, secret, fieldOwner, client.ForceOwnership); err != nil {
		return "", fmt.Errorf("assignment Secret %s: %w", key, err)
	}
	return ptr.Deref(secret.ResourceVersion, ""), nil
}

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
