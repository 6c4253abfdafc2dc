package boot

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
)

// A PoolbootConfig belongs to a Machine, or to a host without a Machine. This file contains what differs between the
// two.

// findHost sets the host that boots. Of a host that enrolled, only the name is known. Of a host of another
// infrastructure provider, only what its Machine contains is known.
func (r *Phases) findHost(ctx context.Context, s *state) (err error) {
	s.host, err = host.ForConfig(ctx, r.Client, s.Config, s.Machine)
	switch {
	case err != nil || s.host != nil:
		return err
	case s.Machine == nil:
		s.host = &host.Host{Name: s.Config.Spec.Host.NodeName}
	case registration.NamedAfterHost(s.Config):
		return &failure{reason: bootstrapv1.BootFailedReason, waits: true, err: fmt.Errorf("spec.nodeNameSource is Host, but Machine %s has the infrastructure "+
			"provider of %s, so the name of its host is not known: set spec.nodeNameSource to Machine", s.Machine.Name, s.Machine.Spec.InfrastructureRef.Kind)}
	default:
		s.host = &host.Host{Name: s.Machine.Name, ProviderID: s.Machine.Spec.ProviderID}
	}
	return nil
}

// related returns the second object of events about the config: the Machine, or nil without one.
func (s *state) related() runtime.Object {
	if s.Machine == nil {
		return nil
	}
	return s.Machine
}
