package controllertest

import (
	"context"
	"math/rand/v2"

	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// NewCache returns a cache that reads from a client. It has no informers.
func NewCache(reader client.Reader) cache.Cache {
	return struct {
		client.Reader
		cache.Informers
	}{Reader: reader}
}

// ListInAnyOrder lists objects as the cache of a manager does, for interceptor.Funcs.
func ListInAnyOrder(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
	if err := c.List(ctx, list, opts...); err != nil {
		return err
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return err
	}
	rand.Shuffle(len(items), func(i, j int) { items[i], items[j] = items[j], items[i] })
	return meta.SetList(list, items)
}
