package main

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/server"
)

// askTimeout bounds one write of status.requests, with all of its retries. The hosts that wait for it retry by
// themselves.
const askTimeout = 5 * time.Second

// askPause is the least time between two writes of one Enrollment by one replica. The manager admits hosts under a lock
// on the Enrollment's version: hosts that ask without end must leave it time to.
const askPause = 500 * time.Millisecond

// askRetries is how often a write is tried that loses against another replica or the manager. Every loss is a write of
// theirs, and each of them writes for many hosts at once.
var askRetries = wait.Backoff{Steps: 12, Duration: 10 * time.Millisecond, Factor: 1.6, Jitter: 0.5, Cap: time.Second}

// admissionRecorder writes the requests of hosts into the status of Enrollments. A patch replaces a list as a whole, so
// the list is written as it was just read, under a lock on the Enrollment's version. Hosts that ask while a write is
// under way share the next one: a batch of hundreds costs a few writes, and the replicas do not fight over each host.
type admissionRecorder struct {
	client client.Client // reads live

	mu     sync.Mutex
	queues map[types.NamespacedName]*askQueue
}

// askQueue is what is to be written of one Enrollment; it exists while something is.
type askQueue struct {
	next *askBatch // nil while nobody waits for the next write
}

// askBatch are hosts that share a write.
type askBatch struct {
	requests []poolv1.EnrollmentRequest
	written  chan struct{}    // closed when errs are final
	errs     map[string]error // by name
}

func newAdmissionRecorder(c client.Client) *admissionRecorder {
	return &admissionRecorder{client: c, queues: map[types.NamespacedName]*askQueue{}}
}

func (a *admissionRecorder) Asked(ctx context.Context, enrollment server.Enrollment, name, address string, at time.Time) error {
	batch := a.join(ctx, enrollment.NamespacedName, poolv1.EnrollmentRequest{
		Name: name, RequestedTime: metav1.MicroTime{Time: at}, Address: address, TokenSHA256: enrollment.TokenSHA256,
	})
	select {
	case <-batch.written:
		return batch.errs[name]
	case <-ctx.Done():
		return ctx.Err()
	}
}

// join adds a request to the next write, and has that begin when none is under way. What is written does not end with
// one host's request.
func (a *admissionRecorder) join(ctx context.Context, key types.NamespacedName, request poolv1.EnrollmentRequest) *askBatch {
	a.mu.Lock()
	defer a.mu.Unlock()
	queue, isWriting := a.queues[key]
	if !isWriting {
		queue = &askQueue{}
		a.queues[key] = queue
	}
	if queue.next == nil {
		queue.next = &askBatch{written: make(chan struct{})}
	}
	batch := queue.next
	batch.requests = withRequest(batch.requests, request)
	if !isWriting {
		go a.drain(context.WithoutCancel(ctx), key, queue)
	}
	return batch
}

// drain writes batches, with pauses in which more may join, until nobody waits.
func (a *admissionRecorder) drain(ctx context.Context, key types.NamespacedName, queue *askQueue) {
	for {
		a.mu.Lock()
		batch := queue.next
		queue.next = nil
		if batch == nil {
			delete(a.queues, key)
			a.mu.Unlock()
			return
		}
		a.mu.Unlock()
		batch.errs = a.write(ctx, key, batch.requests)
		close(batch.written)
		<-time.After(askPause)
	}
}

// write adds requests to those of an Enrollment and returns what went wrong, by name.
func (a *admissionRecorder) write(ctx context.Context, key types.NamespacedName, requests []poolv1.EnrollmentRequest) map[string]error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	errs := map[string]error{}
	err := retry.OnError(askRetries, func(err error) bool { return apierrors.IsConflict(err) && ctx.Err() == nil }, func() error {
		clear(errs)
		enrollment := &poolv1.Enrollment{}
		if err := a.client.Get(ctx, key, enrollment); err != nil {
			return err
		}
		all := slices.Clone(enrollment.Status.Requests)
		for _, request := range requests {
			if more := withRequest(all, request); len(more) <= poolv1.MaxEnrollmentRequests {
				all = more
			} else {
				errs[request.Name] = server.ErrEnrollmentFull
			}
		}
		if len(errs) == len(requests) {
			return nil
		}
		patch, err := json.Marshal(map[string]any{
			"metadata": map[string]any{"resourceVersion": enrollment.ResourceVersion}, "status": map[string]any{"requests": all},
		})
		if err != nil {
			return err
		}
		return a.client.Status().Patch(ctx, enrollment, client.RawPatch(types.MergePatchType, patch))
	})
	if err != nil {
		for _, request := range requests {
			errs[request.Name] = err
		}
	}
	return errs
}

// withRequest returns requests with one of a name in the place of an earlier one of that name, or at the end.
func withRequest(requests []poolv1.EnrollmentRequest, request poolv1.EnrollmentRequest) []poolv1.EnrollmentRequest {
	at := slices.IndexFunc(requests, func(r poolv1.EnrollmentRequest) bool { return r.Name == request.Name })
	if at < 0 {
		return append(requests, request)
	}
	requests[at] = request
	return requests
}
