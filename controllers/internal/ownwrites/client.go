package ownwrites

import (
	"context"
	"errors"
	"hash/maphash"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// NewClient returns a client that sends the status patches of one object one after the other, and only those that can
// succeed. Several controllers of a process write the status of one object, and one event often triggers two of them.
// Each patch must name the version that it was made from, so the API server would refuse all but the first. A patch of
// a version that is older than the last one that this client wrote gets the conflict without a request.
//
// A version counts as older only for MaxLag, so that the API server has the last word.
func NewClient(c client.Client) client.Client {
	return &serialized{Client: c, seed: maphash.MakeSeed()}
}

type serialized struct {
	client.Client
	written Tracker
	// locks are those of the objects. Objects can share one: a reconcile waits then for at most one more request.
	seed  maphash.Seed
	locks [1024]sync.Mutex
}

func (s *serialized) Status() client.SubResourceWriter { return statusWriter{s.Client.Status(), s} }

type statusWriter struct {
	client.SubResourceWriter
	of *serialized
}

var errOlder = errors.New("another controller of this process has changed the object")

// Patch patches the status of an object, which has the resource version that the patch was made from.
func (w statusWriter) Patch(ctx context.Context, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
	lock := &w.of.locks[maphash.Comparable(w.of.seed, identityOf(object))%uint64(len(w.of.locks))]
	lock.Lock()
	defer lock.Unlock()
	if w.of.written.IsStale(object) {
		return apierrors.NewConflict(schema.GroupResource{}, object.GetName(), errOlder)
	}
	err := w.SubResourceWriter.Patch(ctx, object, patch, options...)
	if err == nil {
		w.of.written.Record(object)
	}
	return err
}
