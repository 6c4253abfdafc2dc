package update

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/metrics"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// isRegistrationRequested reports whether a host that starts again waits for its Node.
func isRegistrationRequested(config *bootstrapv1.PoolbootConfig) bool {
	requested := config.Status.Requests.RegistrationRequestedTime
	return requested != nil && !requested.Equal(config.Status.Update.RegisteredTime)
}

// register answers the request of a host that starts again: the Node exists, with the labels and taints of the
// recorded pool, before its kubelet starts. Most of the time it exists, and only the time is recorded. A Node that was
// deleted is created as for the first boot. The host controller records its UID.
//
// The answer is for the request that was known before the Node was read, and for no later one: the Node can have been
// deleted in between, while the host was off. So the recorded time is that of the request.
func (r *Updates) register(ctx context.Context, h *host, in poolContext) error {
	requested := *h.Config.Status.Requests.RegistrationRequestedTime
	w, err := workload.LiveClient(ctx, r.ClusterCache, record.ClusterKey(h.Config))
	if err != nil {
		return err
	}
	key := client.ObjectKey{Name: h.Config.Status.NodeRef.Name}
	node, err := workload.GetIfExists[corev1.Node](ctx, w, key)
	switch {
	case err != nil:
		return fmt.Errorf("read Node %s: %w", key.Name, err)
	case node != nil && !node.DeletionTimestamp.IsZero():
		return errNodeDeleting
	case node != nil:
		if owner, found := record.ConfigOfNode(node); found && !record.IsNodeOf(node, h.Config) {
			return fmt.Errorf("the Node %s belongs to PoolbootConfig %s: delete it", key.Name, owner)
		}
	default:
		if err := r.createNode(ctx, w, h, in); err != nil {
			return fmt.Errorf("pre-register Node %s again: %w", key.Name, err)
		}
	}
	err = h.scope.Record(ctx, func(config *bootstrapv1.PoolbootConfig) {
		config.Status.Update.RegisteredTime = &requested
	})
	h.Config = h.scope.Config
	return client.IgnoreNotFound(err)
}

// errNodeDeleting means that a Node is being deleted. It is created again when it is gone.
var errNodeDeleting = errors.New("the Node is being deleted")

// errNodeAppeared means that a Node was created by someone else at the same time.
var errNodeAppeared = errors.New("the Node was created at the same time: retrying")

// createNode pre-registers the Node of a host that has joined before.
func (r *Updates) createNode(ctx context.Context, w client.Client, h *host, in poolContext) error {
	source, err := h.scope.ExternalCloudProvider(ctx, h.Config.Status.Boot.ServedConfiguration.Name)
	if client.IgnoreNotFound(err) != nil { // the rendered config can be gone, because the host has it already
		return err
	}
	sources, err := r.sourcesOf(ctx, h, in, source)
	if err != nil {
		return err
	}
	registered, err := registration.Register(sources)
	if err != nil {
		return err
	}
	rules, err := r.readinessRules.List(ctx, w, in.cluster.UID)
	if err != nil {
		return err
	}
	node := registered.Node()
	registration.AddTaints(node, registration.ReadinessTaints(rules, node))
	err = w.Create(ctx, node)
	if apierrors.IsAlreadyExists(err) { // its kubelet was first, or it is another Node: it is read again
		return errNodeAppeared
	}
	if err == nil {
		metrics.PreRegistered(h.Config, in.pool.Spec.PoolRole, metrics.NodeCreated)
	}
	return err
}
