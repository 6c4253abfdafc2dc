package boot

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
)

// A PoolbootConfig belongs to a Machine, or to a host without a Machine. This file contains what differs between the
// two.

// newScope returns a scope with the Cluster of a config, and with its Machine if it has one. It returns nil while there
// is nothing to boot: the Machine or host does not exist yet, the Machine is being deleted, or it belongs to the
// control plane.
func (r *Reconciler) newScope(ctx context.Context, config *bootstrapv1.PoolbootConfig) (*scope, error) {
	s := &scope{config: config, cluster: &clusterv1.Cluster{}}
	machine, err := util.GetOwnerMachine(ctx, r.Client, config.ObjectMeta)
	if err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	name, source := record.ClusterName(config), "label "+clusterv1.ClusterNameLabel
	switch {
	case machine != nil && (!machine.DeletionTimestamp.IsZero() || util.IsControlPlaneMachine(machine)):
		return nil, nil
	case machine != nil:
		s.machine = machine
		name, source = machine.Spec.ClusterName, "spec.clusterName of Machine "+machine.Name
	case !record.IsMachineless(config):
		return nil, nil
	}
	if err := r.Client.Get(ctx, client.ObjectKey{Namespace: config.Namespace, Name: name}, s.cluster); err != nil {
		return nil, fmt.Errorf("%s: Cluster %s/%s: %w", source, config.Namespace, name, err)
	}
	return s, nil
}

// findHost sets the host that boots. Of a host that enrolled, only the name is known. Of a host of another
// infrastructure provider, only what its Machine contains is known.
func (r *Reconciler) findHost(ctx context.Context, s *scope) (err error) {
	s.host, err = host.ForConfig(ctx, r.Client, s.config, s.machine)
	switch {
	case err != nil || s.host != nil:
		return err
	case s.machine == nil:
		s.host = &host.Host{Name: s.config.Spec.Host.NodeName}
	case registration.NamedAfterHost(s.config):
		return &failure{reason: bootstrapv1.BootFailedReason, waits: true, err: fmt.Errorf("spec.nodeNameSource is Host, but Machine %s has the infrastructure "+
			"provider of %s, so the name of its host is not known: set spec.nodeNameSource to Machine", s.machine.Name, s.machine.Spec.InfrastructureRef.Kind)}
	default:
		s.host = &host.Host{Name: s.machine.Name, ProviderID: s.machine.Spec.ProviderID}
	}
	return nil
}

// related returns the second object of events about the config: the Machine, or nil without one.
func (s *scope) related() runtime.Object {
	if s.machine == nil {
		return nil
	}
	return s.machine
}
