package host

import (
	"context"
	"fmt"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
)

// ForConfig returns the host of a PoolbootConfig: the host of its Machine or, if machine is nil, the BareMetalHost that
// the PoolbootConfig names. It returns nil if the host is not a BareMetalHost: it enrolled, or its Machine is from
// another infrastructure provider. The errors are those of ForMachine and WithoutMachine.
func ForConfig(ctx context.Context, c client.Reader, config *bootstrapv1.PoolbootConfig, machine *clusterv1.Machine) (*Host, error) {
	switch {
	case machine != nil:
		return ForMachine(ctx, c, machine)
	case record.HostKindOf(config) == record.BareMetalHost:
		return WithoutMachine(ctx, c, client.ObjectKey{Namespace: config.Namespace, Name: config.Spec.Host.BareMetalHostName})
	}
	return nil, nil
}

// WithoutMachine returns a BareMetalHost that no Machine uses, while it is being provisioned and afterwards. It has no
// providerID, because that of Metal3 contains the name of a Metal3Machine. The error is a *NotReadyError if the host is
// in another state or has a consumer.
func WithoutMachine(ctx context.Context, c client.Reader, key client.ObjectKey) (*Host, error) {
	bmh := &bmov1alpha1.BareMetalHost{}
	if err := c.Get(ctx, key, bmh); IsAbsent(err) {
		return nil, notReady("BareMetalHost %s does not exist", key)
	} else if err != nil {
		return nil, fmt.Errorf("BareMetalHost %s: %w", key, err)
	}
	if consumer := bmh.Spec.ConsumerRef; consumer != nil {
		return nil, notReady("BareMetalHost %s belongs to %s %s by its spec.consumerRef", klog.KObj(bmh), consumer.Kind, consumer.Name)
	}
	state := bmh.Status.Provisioning.State
	if !bmh.DeletionTimestamp.IsZero() || state != bmov1alpha1.StateProvisioning && state != bmov1alpha1.StateProvisioned {
		return nil, notReady("BareMetalHost %s is not being provisioned, its state is %q", klog.KObj(bmh), state)
	}
	return newHost(bmh), nil
}
