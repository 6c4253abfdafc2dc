package update

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// maxStrangers is how many Nodes of places without a host are read one by one. If there are more, all Nodes are listed:
// the owner of the workload cluster can write any number of places.
const maxStrangers = 50

// resolveStrangers reads the Nodes of the places that are not those of hosts of the pool. Usually there is none.
func (r rollouts) resolveStrangers(ctx context.Context, s *poolScope) error {
	nodesOf, err := r.strangerNodes(ctx, s)
	if err != nil {
		return fmt.Errorf("read the Nodes of taken places: %w", err)
	}
	hasLeft := make([]bool, len(s.strangers))
	err = inParallel(indexes(s.strangers), r.parallel, func(i int) (err error) {
		hasLeft[i], err = r.hasLeft(ctx, s, nodesOf[s.strangers[i]], s.strangers[i])
		return err
	})
	if err != nil {
		return fmt.Errorf("read the Nodes of taken places: %w", err)
	}
	if slices.Contains(hasLeft, true) {
		left := map[string]bool{}
		maps.Copy(left, s.places.left)
		for i, name := range s.strangers {
			left[name] = hasLeft[i]
		}
		resolved := *s.places
		resolved.left = left
		s.places = &resolved
		r.places.set(client.ObjectKeyFromObject(s.pool), s.places)
		s.strangers = slices.DeleteFunc(s.strangers, func(name string) bool { return left[name] })
	}
	return nil
}

// strangerNodes reads the metadata of those Nodes that have places and are no Nodes of hosts, by their names.
func (r rollouts) strangerNodes(ctx context.Context, s *poolScope) (map[string]*metav1.PartialObjectMetadata, error) {
	found := make([]*metav1.PartialObjectMetadata, len(s.strangers))
	if len(s.strangers) > maxStrangers {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
		if err := s.liveNodes.List(ctx, list); err != nil {
			return nil, err
		}
		found = nil
		for i := range list.Items {
			found = append(found, &list.Items[i])
		}
	}
	err := inParallel(indexes(found), r.parallel, func(i int) error {
		if found[i] != nil {
			return nil
		}
		node := &metav1.PartialObjectMetadata{}
		node.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
		err := s.liveNodes.Get(ctx, client.ObjectKey{Name: s.strangers[i]}, node)
		if err == nil {
			found[i] = node
		}
		return client.IgnoreNotFound(err)
	})
	named := map[string]*metav1.PartialObjectMetadata{}
	for _, node := range found {
		if node != nil {
			named[node.Name] = node
		}
	}
	return named, err
}

// hasLeft reports whether the Node of a place does not exist any more, or is not in this pool, and can't be told to
// begin an update at the version of the place.
func (r rollouts) hasLeft(ctx context.Context, s *poolScope, node *metav1.PartialObjectMetadata, name string) (bool, error) {
	if node == nil {
		return true, nil
	}
	if node.ResourceVersion == s.places.taken[name] {
		return false, r.withdraw(ctx, s, node)
	}
	if byLabels, err := pool.Decide(node.Labels, s.pools); err != nil || byLabels.Role != s.pool.Spec.PoolRole {
		return true, nil //nolint:nilerr // it is in no pool
	}
	key, ok := record.ConfigOfNode(node)
	if !ok {
		return true, nil
	}
	config, err := workload.GetIfExists[bootstrapv1.PoolbootConfig](ctx, r.Client, key)
	return err == nil && (config == nil || record.ClusterKey(config) != workload.ClusterOfPool(s.pool)), err
}
