package controllertest

import (
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
