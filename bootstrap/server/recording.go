package server

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/lru"
)

const (
	// requestInterval is how long a recorded boot request also counts for later requests of the host. So retries, and
	// parallel connections of one host, cause one write.
	requestInterval = 5 * time.Second

	// busyInterval applies instead while the manager has not prepared the boot yet and reports no failure: the
	// manager is only busy, and another write would make it busier.
	busyInterval = time.Minute

	// maxConcurrentWrites is the maximum number of concurrent writes. When a whole site is switched on, the others wait
	// here, instead of timing out in a busy API server and being retried.
	maxConcurrentWrites = 20

	// maxRememberedMachines is the maximum number of machines whose writes are remembered. A machine that is forgotten
	// costs one more write.
	maxRememberedMachines = 10000

	// recordTimeout limits one write, without the time that it waits for others.
	recordTimeout = 5 * time.Second
)

// recording records boots in PoolbootConfigs, with as few writes as possible. Its memory only saves writes while the
// cached records do not show them yet. A new server starts without it.
type recording struct {
	boots      BootRecorder
	admissions AdmissionRecorder
	now        func() time.Time
	writeSlots chan struct{} // has a value for each write in progress

	mu            sync.Mutex
	requested     *lru.Cache // types.UID, or the key of a host that enrolls, → time.Time
	failed        *lru.Cache // types.UID → time.Time
	served        *lru.Cache // types.UID → serving
	addresses     *lru.Cache // types.UID → []tokenUse, which must not be modified
	registrations *lru.Cache // types.UID → registration
}

func newRecording(boots BootRecorder, admissions AdmissionRecorder, now func() time.Time) *recording {
	return &recording{boots: boots, admissions: admissions, now: now, writeSlots: make(chan struct{}, maxConcurrentWrites),
		requested: lru.New(maxRememberedMachines), failed: lru.New(maxRememberedMachines), served: lru.New(maxRememberedMachines), addresses: lru.New(maxRememberedMachines),
		registrations: lru.New(maxRememberedMachines)}
}

// recordRequest records that a host requested its configuration while it was not complete, unless that was recorded
// moments ago. The same write records the address from which the token was used, if it is not recorded yet.
func (r *recording) recordRequest(ctx context.Context, record Record, from netip.Addr) error {
	now := r.now()
	interval := requestInterval
	if record.isPending() && !record.PreparationFailed {
		interval = busyInterval
	}
	recent := func(at time.Time) bool { return now.Sub(at).Abs() < interval }
	if recent(record.RequestedTime) || !r.claimWrite(r.requested, record.UID, now, func(last any) bool { return recent(last.(time.Time)) }) {
		return nil
	}
	at := now
	if !at.After(record.RequestedTime) { // the clock of another server is ahead, but this request is later
		at = record.RequestedTime.Add(time.Microsecond)
	}
	if !r.claimAddress(&record, from) {
		from = netip.Addr{}
	}
	err := r.write(ctx, func(ctx context.Context) error { return r.boots.RecordRequest(ctx, record, from, at) })
	if err != nil {
		r.requested.Remove(record.UID)
		r.unclaimAddress(&record, from)
	}
	return err
}

// serving identifies what is recorded once: a version of an overlay that was served, for the first time or for the
// first time after Ignition failed.
type serving struct {
	overlay string
	failed  time.Time
}

// recordServed records that an overlay was served for the first time, or again after Ignition failed. It retries a
// failed write for some seconds, because a host rarely sends another request after it got its configuration.
func (r *recording) recordServed(ctx context.Context, record Record, overlay *Overlay) error {
	current := serving{overlay: overlay.Version, failed: record.FailedTime}
	if !r.claimWrite(r.served, record.UID, current, func(last any) bool { return last == current }) {
		return nil
	}
	at := r.now()
	var err error
	backoff := wait.Backoff{Duration: 250 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 5}
	_ = wait.ExponentialBackoffWithContext(ctx, backoff, func(ctx context.Context) (bool, error) {
		err = r.write(ctx, func(ctx context.Context) error { return r.boots.RecordServed(ctx, record, at) })
		return err == nil, nil
	})
	if err != nil {
		r.served.Remove(record.UID)
	}
	return err
}

// write calls the function as soon as fewer than maxConcurrentWrites writes are in progress.
func (r *recording) write(ctx context.Context, call func(context.Context) error) error {
	select {
	case r.writeSlots <- struct{}{}:
		defer func() { <-r.writeSlots }()
	case <-ctx.Done():
		return fmt.Errorf("waiting for %d other writes: %w", maxConcurrentWrites, ctx.Err())
	}
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	return call(ctx)
}

// claimWrite remembers a value for a machine and returns true, unless the remembered value is sufficient.
func (r *recording) claimWrite(memory *lru.Cache, uid types.UID, value any, isSufficient func(last any) bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if last, ok := memory.Get(uid); ok && isSufficient(last) {
		return false
	}
	memory.Add(uid, value)
	return true
}

// isPending reports whether a recorded request is not answered.
func (r Record) isPending() bool { return !r.RequestedTime.Equal(r.AnsweredTime) }

// IsFirstRequest reports whether a request is the first one for a configuration: all recorded requests are answered, or
// used an earlier token.
func (r Record) IsFirstRequest() bool {
	return !r.isPending() || len(r.Addresses) == 0 && len(r.OldAddresses) > 0
}

// isServed reports whether the record shows that the current configuration was served, by another replica or by
// this one before a restart, and that Ignition has not failed since.
func (r Record) isServed() bool { return r.ServedTime.After(r.FailedTime) }
