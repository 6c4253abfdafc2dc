// Package admission holds the webhooks of Poolboot's four kinds. They refuse at once what would fail hours later on a
// host, and name the object, the field and the cure. What is right or wrong is decided in bootstrap/; here it becomes
// field errors. Rules that one field's schema or CEL can say are in the CRDs, not here.
//
// A write that leaves a spec as it is passes: an object that was stored under older rules can still be labelled, moved
// and deleted.
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

// SetupWithManager registers the webhooks of all kinds. They read live, so that two pools made in one breath are seen.
func SetupWithManager(mgr ctrl.Manager) error {
	pools := &MachineConfigPool{Reader: mgr.GetAPIReader()}
	return errors.Join(
		ctrl.NewWebhookManagedBy(mgr, &poolv1.MachineConfig{}).WithValidator(&MachineConfig{Reader: mgr.GetAPIReader()}).Complete(),
		ctrl.NewWebhookManagedBy(mgr, &poolv1.MachineConfigPool{}).WithValidator(pools).Complete(),
		ctrl.NewWebhookManagedBy(mgr, &bootstrapv1.PoolbootConfig{}).WithValidator(&PoolbootConfig{}).Complete(),
		ctrl.NewWebhookManagedBy(mgr, &bootstrapv1.PoolbootConfigTemplate{}).WithValidator(&PoolbootConfigTemplate{}).Complete(),
	)
}

// invalid is the answer to a write with errors; nil without any.
func invalid(kind schema.GroupVersionKind, o client.Object, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(kind.GroupKind(), o.GetName(), errs)
}

// settled says that an update needs no look: the object is going, or its spec stays as it is.
func settled(o client.Object, oldSpec, newSpec any) bool {
	return !o.GetDeletionTimestamp().IsZero() || equality.Semantic.DeepEqual(oldSpec, newSpec)
}
