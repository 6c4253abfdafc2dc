// Package status writes the status of Poolboot's objects. Each reconcile changes its copy of an object and then patches
// the status once, in one request, locked to the version that was read.
package status

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/outlook"
)

// ConflictRetry is how soon a reconcile that conflicted with another writer is repeated. By then, the cache contains
// the other write.
const ConflictRetry = 200 * time.Millisecond

// Patch writes what differs between the status of two versions of an object, and nothing if they are equal. With the
// same patch, it writes the conditions that follow from others. It updates after with the response of the API server.
// The error is a conflict if the object has changed since it was read: the lock protects the lists, which a merge patch
// replaces as a whole, and what the decision of the caller was based on.
func Patch(ctx context.Context, c client.Client, before, after client.Object) error {
	if equality.Semantic.DeepEqual(statusOf(before), statusOf(after)) {
		return nil
	}
	summarize(after)
	if err := c.Status().Patch(ctx, after, Locked(before)); err != nil {
		return fmt.Errorf("status of %s %s: %w", reflect.TypeOf(after).Elem().Name(), client.ObjectKeyFromObject(after), err)
	}
	return nil
}

// statusOf returns the status of one of Poolboot's objects.
func statusOf(object client.Object) any {
	return reflect.ValueOf(object).Elem().FieldByName("Status").Interface()
}

// summarize sets the conditions that follow from others: Ready of a PoolbootConfig, and Stalled. Otherwise another
// patch would follow, and until then, they would contradict the others. The first Ready, and that of another
// generation, is written by the controller which observes the object.
func summarize(object client.Object) {
	switch object := object.(type) {
	case *bootstrapv1.PoolbootConfig:
		if old := conditions.Get(object, clusterv1.ReadyCondition); old != nil && old.ObservedGeneration == object.Generation {
			conditions.Set(object, outlook.Ready(object))
		}
		setStalled(&object.Status.Conditions, object.Generation, outlook.FindNeedsPerson(object))
	case *poolv1.MachineConfigPool:
		degraded := meta.FindStatusCondition(object.Status.Conditions, poolv1.DegradedCondition)
		if degraded != nil && degraded.Status != metav1.ConditionTrue {
			degraded = nil
		}
		setStalled(&object.Status.Conditions, object.Generation, degraded)
	case *poolv1.MachineConfig:
		setStalled(&object.Status.Conditions, object.Generation, findNotReady(object.Status.Conditions))
	case *poolv1.Enrollment:
		setStalled(&object.Status.Conditions, object.Generation, findNotReady(object.Status.Conditions))
	}
}

// findNotReady returns the condition Ready if it is False, or nil. Of a MachineConfig or an Enrollment, that is so
// until a person acts.
func findNotReady(of []metav1.Condition) *metav1.Condition {
	if ready := meta.FindStatusCondition(of, poolv1.ReadyCondition); ready != nil && ready.Status == metav1.ConditionFalse {
		return ready
	}
	return nil
}

// setStalled sets the condition Stalled while a person must act because of another one, and removes it otherwise.
func setStalled(of *[]metav1.Condition, generation int64, because *metav1.Condition) {
	if because == nil {
		meta.RemoveStatusCondition(of, poolv1.StalledCondition)
		return
	}
	meta.SetStatusCondition(of, metav1.Condition{
		Type: poolv1.StalledCondition, Status: metav1.ConditionTrue, Reason: because.Reason, Message: because.Message, ObservedGeneration: generation,
	})
}

// Record records something that was done elsewhere and must not be repeated after a conflict. It applies a change to
// the status of a PoolbootConfig. If the object has changed in the meantime, it applies the change to the current
// version, which it reads live. It returns the new version, or a NotFound error if the PoolbootConfig is being deleted.
func Record(ctx context.Context, c client.Client, live client.Reader, config *bootstrapv1.PoolbootConfig, change func(*bootstrapv1.PoolbootConfig)) (*bootstrapv1.PoolbootConfig, error) {
	key := client.ObjectKeyFromObject(config)
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error {
		if !config.DeletionTimestamp.IsZero() {
			return apierrors.NewNotFound(bootstrapv1.GroupVersion.WithResource("poolbootconfigs").GroupResource(), key.Name)
		}
		changed := config.DeepCopy()
		change(changed)
		conflict := Patch(ctx, c, config, changed)
		switch {
		case conflict == nil:
			config = changed
		case apierrors.IsConflict(conflict):
			current := &bootstrapv1.PoolbootConfig{}
			if err := live.Get(ctx, key, current); err != nil {
				return fmt.Errorf("PoolbootConfig %s: %w", key, err)
			}
			config = current
		}
		return conflict
	})
	return config, err
}

// Locked returns a merge patch from a version of an object. The API server refuses it if the object has changed since
// that version.
func Locked(before client.Object) client.Patch {
	return client.MergeFromWithOptions(before.DeepCopyObject().(client.Object), client.MergeFromWithOptimisticLock{})
}

// RetryConflict turns a conflict into another reconcile after ConflictRetry, because the decisions depend on what
// another writer has changed. Another error that is joined to the conflict stays one.
func RetryConflict(ctx context.Context, result ctrl.Result, err error) (ctrl.Result, error) {
	switch {
	case err == nil:
		return result, nil
	case isConflict(err):
		ctrl.LoggerFrom(ctx).V(4).Info("Another client wrote first, retrying", "error", err.Error())
		return ctrl.Result{RequeueAfter: ConflictRetry}, nil
	}
	return ctrl.Result{}, err
}

// isConflict reports whether an error, or each of those that are joined in it, is a conflict.
func isConflict(err error) bool {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return apierrors.IsConflict(err)
	}
	return !slices.ContainsFunc(joined.Unwrap(), func(err error) bool { return !isConflict(err) })
}
