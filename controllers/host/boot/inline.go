package boot

import (
	"context"
	"fmt"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	ctrl "sigs.k8s.io/controller-runtime"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
)

// reconcileInline handles a host that boots from its data Secret alone. It ensures the rights of the join credential in
// that Secret immediately, renews the credential until the Node is in its pool, and pre-registers the Node as soon as
// the host is being provisioned.
func (r *Phases) reconcileInline(ctx context.Context, s *state) (ctrl.Result, error) {
	if err := r.refresh(inlineRenewal)(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	why, err := s.findHostLoss(ctx, r.Client)
	if err != nil {
		return ctrl.Result{}, err
	}
	phases := []phase{r.connect, r.remote(r.ensureRights), r.remote(r.extendCredential)}
	if why != "" && record.IsCredentialUsed(s.Config) { // the next host has the same credential and another key
		phases = append(phases, r.forgetCertificate)
	}
	if !record.IsPrepared(s.Config) || record.IsNodeMissing(s.Config) || why != "" {
		phases = append(phases, r.choosePool, r.findProvisioningHost, r.register, r.remote(r.ensureNode), r.record)
	}
	result, err := r.reportResult(ctx, s, s.run(ctx, phases...))
	return requeueForExtension(s, result), err
}

// forgetCertificate allows the join credential in a data Secret to obtain another certificate. The Secret is written
// once, so the credential cannot be replaced.
func (r *Phases) forgetCertificate(ctx context.Context, s *state) error {
	return s.recordStatus(ctx, func(config *bootstrapv1.PoolbootConfig) {
		config.Status.Certificate = bootstrapv1.GrantedCertificate{}
	})
}

// findProvisioningHost sets the host of the Machine once it can boot from the data Secret. Until then, it returns a
// failure that is not an error. A host of another infrastructure provider can boot at any time.
func (r *Phases) findProvisioningHost(ctx context.Context, s *state) error {
	err := r.findHost(ctx, s)
	if err == nil {
		err = checkUserData(s.host)
	}
	if is[*host.NotReadyError](err) {
		return waiting(err)
	}
	if err != nil || s.host.Object == nil {
		return err
	}
	switch s.host.State {
	case bmov1alpha1.StateProvisioning, bmov1alpha1.StateProvisioned, bmov1alpha1.StateExternallyProvisioned:
		return nil
	default:
		return waiting(fmt.Errorf("BareMetalHost %s is not being provisioned yet", s.host.Name))
	}
}
