package update

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	barehost "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
)

// +kubebuilder:rbac:groups=poolboot.io,resources=machineconfigs,verbs=get;list;watch
// +kubebuilder:rbac:groups=infrastructure.cluster.x-k8s.io,resources=metal3machines,verbs=get;list;watch
// +kubebuilder:rbac:groups=metal3.io,resources=baremetalhosts,verbs=get;list;watch

// errNoAgent means that the manager offers no agent, so it can't say which one hosts should run.
var errNoAgent = errors.New("the manager offers no agent: start it with --agent-directory")

// newDocument builds the assignment of a host in its pool.
func (r *Updates) newDocument(ctx context.Context, h *host, in poolContext) ([]byte, error) {
	if len(in.offer.Agent.SHA512) == 0 {
		return nil, errNoAgent
	}
	key := client.ObjectKey{Namespace: in.pool.Namespace, Name: in.pool.Status.Configuration.Name}
	rendered, err := r.rendered.Get(ctx, key)
	if err != nil {
		return nil, fmt.Errorf("MachineConfig %s, the rendered config of MachineConfigPool %s: %w", key, in.pool.Name, err)
	}
	registered, err := r.registrationOf(ctx, h, in, "")
	if err != nil {
		return nil, err
	}
	return join.Document(join.Input{
		Config: h.Config, Pool: in.pool, Pools: in.pools, Rendered: rendered, Registration: registered, Cluster: in.facts, Offer: in.offer,
	})
}

// registrationOf returns what the Node of a host is registered with in its pool: what the host has recorded, and what
// its pool and its Machine declare now.
func (r *Updates) registrationOf(ctx context.Context, h *host, in poolContext, cloudProviderSource string) (registration.Registration, error) {
	input := registration.Sources{
		NodeName:       h.Config.Status.NodeRef.Name,
		Cluster:        in.identity,
		HostUID:        h.Config.Status.HostRef.UID,
		Pool:           *in.pool,
		Pools:          in.pools,
		Config:         h.Config,
		RenderedConfig: cmp.Or(h.Config.Status.Boot.ServedConfiguration.Name, in.pool.Status.Configuration.Name),
		SyncedLabels:   r.SyncedLabels,

		CloudProviderSource: cloudProviderSource,
	}
	if name := record.MachineName(h.Config); name != "" && h.Machine == nil {
		return registration.Registration{}, fmt.Errorf("the Machine %s/%s does not exist, and it owns PoolbootConfig %s: the Node has labels of the Machine",
			h.Config.Namespace, name, h.Config.Name)
	}
	if h.Machine != nil {
		input.MachineLabels = h.Machine.Labels
	}
	for _, key := range slices.Sorted(maps.Keys(h.Config.Status.DerivedNodeLabels)) {
		input.DerivedLabels = append(input.DerivedLabels, registration.DerivedLabel{
			Key: key, Value: h.Config.Status.DerivedNodeLabels[key], Source: "the derivedNodeLabels in the status of PoolbootConfig " + h.Config.Name,
		})
	}
	found, err := barehost.ForConfig(ctx, r.Client, h.Config, h.Machine)
	_, isNotReady := errors.AsType[*barehost.NotReadyError](err)
	switch {
	case err != nil && !isNotReady:
		return registration.Registration{}, err
	case found != nil:
		input.ProviderID = found.ProviderID
		input.HostUID = cmp.Or(input.HostUID, found.UID) // clusterctl move drops the record
	}
	if (found != nil || isNotReady) && h.Machine != nil && h.Node != nil && h.Node.Spec.ProviderID != "" {
		input.ProviderID = h.Node.Spec.ProviderID // it never changes, and the kubelet was started with it
	}
	return registration.Register(input)
}
