package boot

import (
	"context"
	"errors"
	"fmt"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
)

// keepInline looks after a host that boots from its data Secret alone: the credential in it is kept alive until the Node is
// in its pool, and the Node is made beforehand as soon as the host is being provisioned.
func (r *Reconciler) keepInline(ctx context.Context, s *scope) (ctrl.Result, error) {
	phases := []phase{remote(r.connect), remote(r.extendCredential)}
	if !conditions.IsTrue(s.config, bootstrapv1.BootPreparedCondition) {
		phases = append(phases,
			r.choosePool,
			r.findProvisioningHost,
			r.register,
			remote(r.ensureRights),
			remote(r.ensureNode),
			r.record,
			r.finish,
		)
	}
	result, err := r.settle(ctx, s, s.run(ctx, phases))
	if err != nil || s.config.Status.Boot.CredentialExpirationTime == nil {
		return result, err
	}
	if next := time.Until(extensionDue(s.config)); result.RequeueAfter == 0 || next < result.RequeueAfter {
		result.RequeueAfter = max(next, retryInterval)
	}
	return result, nil
}

// extensionDue is when the credential's life has to be extended: when half of it is over.
func extensionDue(config *bootstrapv1.PoolbootConfig) time.Time {
	return config.Status.Boot.CredentialExpirationTime.Add(-credentialTTL / 2)
}

// extendCredential keeps the credential in the data Secret alive.
func (r *Reconciler) extendCredential(ctx context.Context, s *scope) error {
	boot := s.config.Status.Boot
	if boot.CredentialExpirationTime != nil && time.Now().Before(extensionDue(s.config)) {
		return nil
	}
	expires, err := join.ExtendCredential(ctx, s.workload, boot.CredentialID, credentialTTL)
	if apierrors.IsNotFound(err) {
		return fault(bootstrapv1.BootFailedReason, "the join credential %s in Secret %s/%s has ended: delete Machine %s, so that another one takes its place",
			boot.CredentialID, s.config.Namespace, s.config.Status.DataSecretName, s.machine.Name)
	}
	if err != nil {
		return fmt.Errorf("join credential %s: %w", boot.CredentialID, err)
	}
	return r.patchStatus(ctx, s, func(config *bootstrapv1.PoolbootConfig) {
		config.Status.Boot.CredentialExpirationTime = &metav1.Time{Time: expires}
	})
}

// findProvisioningHost finds the host behind the Machine once it may boot from the data Secret. Until then there is
// nothing wrong.
func (r *Reconciler) findProvisioningHost(ctx context.Context, s *scope) error {
	err := r.findHost(ctx, s)
	if is[*host.NotReadyError](err) {
		return waiting(err)
	}
	if err != nil {
		return err
	}
	switch s.host.State {
	case bmov1alpha1.StateProvisioning, bmov1alpha1.StateProvisioned, bmov1alpha1.StateExternallyProvisioned:
		return nil
	default:
		return waiting(errors.New("BareMetalHost " + s.host.Name + " is not being provisioned yet"))
	}
}
