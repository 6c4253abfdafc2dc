package metal3

import (
	"cmp"
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	infrav1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/metal3/v1beta2"
)

// waitForData claims the data of a Metal3Machine's host, and fails until the data is rendered. The Metal3Machine names
// it in the status, from which the host gets it. The Secrets of the user in the spec reach the host only together with
// a data template: without one, the host is deployed before (AssociateM3Metadata and WaitForM3Metadata in
// metal3machine_manager.go of the provider).
func (r *machineReconciler) waitForData(ctx context.Context, s *machineScope) error {
	m := s.metal3Machine
	if m.Spec.MetaData != nil {
		m.Status.MetaData = m.Spec.MetaData
	}
	if m.Spec.NetworkData != nil {
		m.Status.NetworkData = m.Spec.NetworkData
	}
	if m.Status.RenderedData == nil {
		if m.Spec.DataTemplate == nil {
			return nil
		}
		claim, err := r.claimData(ctx, m)
		if err != nil {
			return err
		}
		if claim.Status.RenderedData == nil {
			return fmt.Errorf("waiting for Metal3DataTemplate to be available: %w", errRetry)
		}
		m.Status.RenderedData = claim.Status.RenderedData
	}
	data := &infrav1.Metal3Data{}
	if err := r.live.Get(ctx, client.ObjectKey{Namespace: m.Namespace, Name: m.Status.RenderedData.Name}, data); err != nil {
		return fmt.Errorf("%w: %w", err, errRetry)
	}
	if !ptr.Deref(data.Status.Ready, false) {
		s.set(infrav1.Metal3DataReadyCondition, metav1.ConditionFalse, infrav1.WaitingForMetal3DataReason, "")
		return fmt.Errorf("waiting for Metal3Data to become ready: %w", errRetry)
	}
	s.set(infrav1.Metal3DataReadyCondition, metav1.ConditionTrue, infrav1.Metal3DataSecretsReadyReason, "")
	m.Status.MetaData, m.Status.NetworkData = cmp.Or(m.Status.MetaData, data.Spec.MetaData), cmp.Or(m.Status.NetworkData, data.Spec.NetworkData)
	return nil
}

// claimData returns the Metal3DataClaim of a Metal3Machine, which it creates.
func (r *machineReconciler) claimData(ctx context.Context, m *infrav1.Metal3Machine) (*infrav1.Metal3DataClaim, error) {
	claim := &infrav1.Metal3DataClaim{ObjectMeta: metav1.ObjectMeta{Namespace: m.Namespace, Name: m.Name}}
	err := r.live.Get(ctx, client.ObjectKeyFromObject(claim), claim)
	if !apierrors.IsNotFound(err) {
		return claim, err
	}
	claim.Labels, claim.Finalizers = m.Labels, []string{infrav1.MachineFinalizer}
	claim.Spec.Template = infrav1.ObjectReference{Namespace: m.Namespace, Name: m.Spec.DataTemplate.Name}
	if err := controllerutil.SetControllerReference(m, claim, r.Scheme()); err != nil {
		return nil, err
	}
	return claim, r.Create(ctx, claim)
}

// dropData deletes the Metal3DataClaim of a Metal3Machine that is being deleted. The status does not name rendered data
// from then on, therefore the host keeps it when it is released (DissociateM3Metadata of the provider).
func (r *machineReconciler) dropData(ctx context.Context, m *infrav1.Metal3Machine) error {
	if m.Spec.MetaData == nil {
		m.Status.MetaData = nil
	}
	if m.Spec.NetworkData == nil {
		m.Status.NetworkData = nil
	}
	m.Status.RenderedData = nil
	claim := &infrav1.Metal3DataClaim{}
	if err := r.live.Get(ctx, client.ObjectKeyFromObject(m), claim); err != nil {
		return client.IgnoreNotFound(err)
	}
	return deleteWithoutFinalizer(ctx, r.Client, claim, infrav1.MachineFinalizer)
}
