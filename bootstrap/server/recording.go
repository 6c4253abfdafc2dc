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
	// requestInterval is how long a recorded boot request stands for those that follow: a host that tries again, or
	// several connections of one host, make one write.
	requestInterval = 5 * time.Second

	// patientInterval is how long one stands that nothing is known to be wrong with: the manager has it before it, and
	// is only busy. Telling it once more would make it busier.
	patientInterval = time.Minute

	// maxWriting is how many writes are under way at once. When a whole site is switched on, the others wait for their
	// turn here rather than time out in a busy API server and be tried again.
	maxWriting = 20

	// maxRemembered bounds how many machines' writes are remembered. One that is forgotten costs one write more.
	maxRemembered = 10000

	// recordTimeout bounds one write, from its turn on.
	recordTimeout = 5 * time.Second
)

// recording writes boots into PoolbootConfigs, as seldom as will do. What it remembers only saves writes while the
// records that it is shown lag behind them; a new server begins with none of it.
type recording struct {
	to         BootRecorder
	admissions AdmissionRecorder
	now        func() time.Time
	writing    chan struct{} // has a value for each write under way

	mu        sync.Mutex
	requested *lru.Cache // types.UID, or a host that wants to be admitted, → time.Time
	served    *lru.Cache // types.UID → the Overlay's Version
	addresses *lru.Cache // types.UID → []tokenUse, which nobody may change
}

func newRecording(to BootRecorder, admissions AdmissionRecorder, now func() time.Time) *recording {
	return &recording{to: to, admissions: admissions, now: now, writing: make(chan struct{}, maxWriting),
		requested: lru.New(maxRemembered), served: lru.New(maxRemembered), addresses: lru.New(maxRemembered)}
}

// request records that a host asked while no fresh overlay stood, unless that was recorded moments ago; with it, in the
// same write, where its token came from, if that is not noted.
func (r *recording) request(ctx context.Context, record Record, from netip.Addr) error {
	now := r.now()
	interval := requestInterval
	if record.RequestedTime.After(record.PreparedTime) && !record.Troubled {
		interval = patientInterval
	}
	recent := func(at time.Time) bool { return now.Sub(at).Abs() < interval }
	if recent(record.RequestedTime) || !r.claim(r.requested, record.UID, now, func(last any) bool { return recent(last.(time.Time)) }) {
		return nil
	}
	at := now
	if !at.After(record.PreparedTime) { // the manager's clock is ahead: the request came after what it prepared all the same
		at = record.PreparedTime.Add(time.Microsecond)
	}
	if !r.claimAddress(&record, from) {
		from = netip.Addr{}
	}
	err := r.write(ctx, func(ctx context.Context) error { return r.to.Requested(ctx, record, from, at) })
	if err != nil {
		r.requested.Remove(record.UID)
		r.unclaimAddress(&record, from)
	}
	return err
}

// serve records that an overlay was handed out for the first time. A host seldom asks again once it was answered, so a
// write that fails is tried again for some seconds.
func (r *recording) serve(ctx context.Context, record Record, overlay *Overlay) error {
	if !r.claim(r.served, record.UID, overlay.Version, func(last any) bool { return last == overlay.Version }) {
		return nil
	}
	at := r.now()
	var err error
	again := wait.Backoff{Duration: 250 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 5}
	_ = wait.ExponentialBackoffWithContext(ctx, again, func(ctx context.Context) (bool, error) {
		err = r.write(ctx, func(ctx context.Context) error { return r.to.Served(ctx, record, at) })
		return err == nil, nil
	})
	if err != nil {
		r.served.Remove(record.UID)
	}
	return err
}

// write does a write when it is its turn.
func (r *recording) write(ctx context.Context, do func(context.Context) error) error {
	select {
	case r.writing <- struct{}{}:
		defer func() { <-r.writing }()
	case <-ctx.Done():
		return fmt.Errorf("%d others are being recorded: %w", maxWriting, ctx.Err())
	}
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	return do(ctx)
}

// claim remembers value for a machine and returns true, unless what is remembered already will do.
func (r *recording) claim(memory *lru.Cache, uid types.UID, value any, willDo func(last any) bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if last, ok := memory.Get(uid); ok && willDo(last) {
		return false
	}
	memory.Add(uid, value)
	return true
}

// BeginsBoot says whether a request is the first one for a configuration: none is on record since the last one was
// prepared, or all on record came with an earlier token. A first request that is later than the last one came by a
// clock that is ahead, and is none.
func (r Record) BeginsBoot() bool {
	first := r.FirstRequestedTime
	if !r.RequestedTime.IsZero() && first.After(r.RequestedTime) {
		first = r.RequestedTime
	}
	return !first.After(r.PreparedTime) || len(r.Addresses) == 0 && len(r.OldAddresses) > 0
}

// servedBefore tells whether the record itself says that what stands was handed out, as another replica, or this one
// before a restart, may have written.
func (r Record) servedBefore() bool {
	return !r.PreparedTime.IsZero() && r.ServedTime.After(r.PreparedTime)
}
