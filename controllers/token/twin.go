package token

import (
	"cmp"
	"context"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
)

// pointerIndex finds PoolbootConfigs by the id in their pointer.
const pointerIndex = "metadata.annotations.pointer-id"

// maxTwins bounds how many pairs are remembered. One that is forgotten is reported with again.
const maxTwins = 10000

func pointerOf(config client.Object) []string {
	if id := config.GetAnnotations()[bootstrapv1.PointerIDAnnotation]; id != "" {
		return []string{id}
	}
	return nil
}

// twins remembers which PoolbootConfigs were reported with each other. The zero value is ready to use.
type twins struct {
	once     sync.Once
	reported *lru.Cache
}

// isNew says whether a pair was not reported with before, and remembers it.
func (t *twins) isNew(pair [2]types.UID) bool {
	t.once.Do(func() { t.reported = lru.New(maxTwins) })
	_, known := t.reported.Get(pair)
	t.reported.Add(pair, nil)
	return !known
}

// reportTwins reports, once, two PoolbootConfigs with one pointer id: one of them is a copy. Each is paired with the
// eldest only, so that many copies make as many events. Nothing goes wrong by them: hosts ask by namespace and name,
// and a copied hash accepts no token.
func (r *Reconciler) reportTwins(ctx context.Context, config *bootstrapv1.PoolbootConfig) error {
	ids := pointerOf(config)
	if ids == nil || !config.DeletionTimestamp.IsZero() {
		return nil
	}
	same := &bootstrapv1.PoolbootConfigList{}
	if err := r.Client.List(ctx, same, client.MatchingFields{pointerIndex: ids[0]}, client.UnsafeDisableDeepCopy); err != nil || len(same.Items) < 2 {
		return err
	}
	eldest := slices.MinFunc(same.Items, func(a, b bootstrapv1.PoolbootConfig) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.UID, b.UID))
	})
	if eldest.UID == config.UID || !r.twins.isNew([2]types.UID{eldest.UID, config.UID}) {
		return nil
	}
	for _, pair := range [][2]*bootstrapv1.PoolbootConfig{{config, &eldest}, {&eldest, config}} {
		r.Recorder.Eventf(pair[0], pair[1], corev1.EventTypeWarning, bootstrapv1.EventPointerIDNotUnique, action,
			"PoolbootConfig %s has the same pointer id in its annotation %s. Only the one that the URL in the host's user data names is served to the host; "+
				"the other is a copy: delete it", client.ObjectKeyFromObject(pair[1]), bootstrapv1.PointerIDAnnotation)
	}
	return nil
}
