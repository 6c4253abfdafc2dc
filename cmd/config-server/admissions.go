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

// writeTimeout limits one write of status.requests, including its retries. The hosts that wait for the write retry on
// their own.
const writeTimeout = 5 * time.Second

// writeInterval is the minimum time between two writes of one Enrollment by one replica. The manager admits hosts with
// a lock on the version of the Enrollment, so hosts that retry continuously must leave it time for that.
const writeInterval = 500 * time.Millisecond

// conflictBackoff is the backoff after conflicts with another replica or the manager. With every conflict, one of them
// has written, and each of their writes is for many hosts.
var conflictBackoff = wait.Backoff{Steps: 12, Duration: 10 * time.Millisecond, Factor: 1.6, Jitter: 0.5, Cap: time.Second}

// admissionRecorder records the requests of hosts in the status of Enrollments. A patch replaces the whole list, so
// each write starts from the list that was just read, with a lock on the version of the Enrollment. Hosts that send
// requests during a write share the next one. So hundreds of hosts cost a few writes, and replicas do not conflict for
// each host.
type admissionRecorder struct {
	client client.Client // without a cache

	mu sync.Mutex
	// next has the requests for the next write of each Enrollment. A nil value means that a write is in progress, and
	// no host waits for the next one.
	next map[types.NamespacedName]*requestBatch
}

// requestBatch has the requests that share a write.
type requestBatch struct {
	requests []poolv1.EnrollmentRequest
	written  chan struct{}    // closed when errs is final
	errs     map[string]error // by name
}

func newAdmissionRecorder(c client.Client) *admissionRecorder {
	return &admissionRecorder{client: c, next: map[types.NamespacedName]*requestBatch{}}
}

func (a *admissionRecorder) RecordAdmissionRequest(ctx context.Context, enrollment server.Enrollment, name, address string, at time.Time) error {
	batch := a.enqueue(ctx, enrollment.NamespacedName, poolv1.EnrollmentRequest{
		Name: name, RequestedTime: metav1.MicroTime{Time: at}, Address: address, TokenSHA256: enrollment.TokenSHA256,
	})
	select {
	case <-batch.written:
		return batch.errs[name]
	case <-ctx.Done():
		return ctx.Err()
	}
}

// enqueue adds a request to the next write, and starts it if none is in progress. The write continues if a host
// disconnects.
func (a *admissionRecorder) enqueue(ctx context.Context, key types.NamespacedName, request poolv1.EnrollmentRequest) *requestBatch {
	a.mu.Lock()
	defer a.mu.Unlock()
	batch, isWriting := a.next[key]
	if batch == nil {
		batch = &requestBatch{written: make(chan struct{})}
		a.next[key] = batch
	}
	batch.requests = upsertRequest(batch.requests, request)
	if !isWriting {
		go a.drain(context.WithoutCancel(ctx), key)
	}
	return batch
}

// drain writes batches until no host waits. In the pause after each batch, hosts can join the next one.
func (a *admissionRecorder) drain(ctx context.Context, key types.NamespacedName) {
	for {
		a.mu.Lock()
		batch := a.next[key]
		if batch == nil {
			delete(a.next, key)
			a.mu.Unlock()
			return
		}
		a.next[key] = nil
		a.mu.Unlock()
		batch.errs = a.write(ctx, key, batch.requests)
		close(batch.written)
		<-time.After(writeInterval)
	}
}

// write adds requests to those of an Enrollment and returns the errors, by name.
func (a *admissionRecorder) write(ctx context.Context, key types.NamespacedName, requests []poolv1.EnrollmentRequest) map[string]error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	errs := map[string]error{}
	err := retry.OnError(conflictBackoff, func(err error) bool { return apierrors.IsConflict(err) && ctx.Err() == nil }, func() error {
		clear(errs)
		enrollment := &poolv1.Enrollment{}
		if err := a.client.Get(ctx, key, enrollment); err != nil {
			return err
		}
		all := slices.Clone(enrollment.Status.Requests)
		for _, request := range requests {
			if more := upsertRequest(all, request); len(more) <= poolv1.MaxEnrollmentRequests {
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

// upsertRequest returns requests with one more, which replaces the earlier one with the same name.
func upsertRequest(requests []poolv1.EnrollmentRequest, request poolv1.EnrollmentRequest) []poolv1.EnrollmentRequest {
	at := slices.IndexFunc(requests, func(r poolv1.EnrollmentRequest) bool { return r.Name == request.Name })
	if at < 0 {
		return append(requests, request)
	}
	requests[at] = request
	return requests
}
