// Package admission has the validating webhooks of Poolboot's kinds. They refuse objects that would otherwise fail
// hours later on a host, and name the object, the field and the remedy. The decisions are in bootstrap/; this package
// converts them to field errors. Rules that a schema or CEL can express are in the CRDs.
//
// An update that does not change the spec is always allowed. So an object that was stored under older rules can still
// be labeled, moved and deleted.
package admission

import (
	"errors"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// SetupWithManager registers the webhooks of all kinds. They read from the API server, because the cache can lack a
// pool that was created a moment before.
func SetupWithManager(mgr ctrl.Manager) error {
	pools := &MachineConfigPool{Reader: mgr.GetAPIReader()}
	return errors.Join(
		ctrl.NewWebhookManagedBy(mgr, &poolv1.MachineConfig{}).WithValidator(&MachineConfig{Reader: mgr.GetAPIReader()}).Complete(),
		ctrl.NewWebhookManagedBy(mgr, &poolv1.MachineConfigPool{}).WithValidator(pools).Complete(),
		ctrl.NewWebhookManagedBy(mgr, &bootstrapv1.PoolbootConfig{}).WithValidator(&PoolbootConfig{}).Complete(),
		ctrl.NewWebhookManagedBy(mgr, &bootstrapv1.PoolbootConfigTemplate{}).WithValidator(&PoolbootConfigTemplate{}).Complete(),
	)
}

// invalid returns the error for an object with field errors, and nil if there are none.
func invalid(kind schema.GroupVersionKind, o client.Object, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(kind.GroupKind(), o.GetName(), errs)
}

// isUnchanged reports whether an update needs no validation: the object is being deleted, or its spec does not change.
func isUnchanged(o client.Object, oldSpec, newSpec any) bool {
	return !o.GetDeletionTimestamp().IsZero() || equality.Semantic.DeepEqual(oldSpec, newSpec)
}
