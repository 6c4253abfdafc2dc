package bootstrapdata

import (
	"cmp"
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
)

// pointerIndex is the index of PoolbootConfigs by the id in their pointer.
const pointerIndex = "metadata.annotations.pointer-id"

// maxDuplicates is the maximum number of remembered pairs. A pair that is evicted is reported again.
const maxDuplicates = 10000

// pointerOf returns the values of pointerIndex for a PoolbootConfig.
func pointerOf(config client.Object) []string {
	if id := config.GetAnnotations()[bootstrapv1.PointerIDAnnotation]; id != "" {
		return []string{id}
	}
	return nil
}

// ReportDuplicates reports once that two PoolbootConfigs have the same pointer id: one of them is a copy. It pairs each
// only with the oldest, so the number of events is linear. A copy does no harm: hosts send namespace and name, and a
// copied hash accepts no token.
func (r *Phases) ReportDuplicates(ctx context.Context, config *bootstrapv1.PoolbootConfig) error {
	ids := pointerOf(config)
	if ids == nil || !config.DeletionTimestamp.IsZero() {
		return nil
	}
	same := &bootstrapv1.PoolbootConfigList{}
	if err := r.Client.List(ctx, same, client.MatchingFields{pointerIndex: ids[0]}, client.UnsafeDisableDeepCopy); err != nil || len(same.Items) < 2 {
		return err
	}
	oldest := slices.MinFunc(same.Items, func(a, b bootstrapv1.PoolbootConfig) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.UID, b.UID))
	})
	reported := [2]types.UID{oldest.UID, config.UID}
	if _, ok := r.duplicates.Get(reported); ok || oldest.UID == config.UID {
		return nil
	}
	r.duplicates.Add(reported, nil)
	for _, pair := range [][2]*bootstrapv1.PoolbootConfig{{config, &oldest}, {&oldest, config}} {
		r.Recorder.Eventf(pair[0], pair[1], corev1.EventTypeWarning, bootstrapv1.EventPointerIDNotUnique, guardTokenAction,
			"PoolbootConfig %s has the same pointer id in its annotation %s. The config server serves only the one in the URL in the user data of the host; "+
				"the other one is a copy: delete it", client.ObjectKeyFromObject(pair[1]), bootstrapv1.PointerIDAnnotation)
	}
	return nil
}
