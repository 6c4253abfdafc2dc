package server

import (
	"context"
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

	// maxRemembered bounds how many machines' writes are remembered. One that is forgotten costs one write more.
	maxRemembered = 10000

	// recordTimeout bounds one write.
	recordTimeout = 5 * time.Second
)

// recording writes boots into PoolbootConfigs, as seldom as will do. What it remembers only saves writes while the
// records that it is shown lag behind them; a new server begins with none of it.
type recording struct {
	to         BootRecorder
	admissions AdmissionRecorder
	now        func() time.Time

	mu        sync.Mutex
	requested *lru.Cache // types.UID, or a host that wants to be admitted, → time.Time
	served    *lru.Cache // types.UID → the Overlay's Version
}

func newRecording(to BootRecorder, admissions AdmissionRecorder, now func() time.Time) *recording {
	return &recording{to: to, admissions: admissions, now: now, requested: lru.New(maxRemembered), served: lru.New(maxRemembered)}
}

// request records that a host asked while no fresh overlay stood, unless that was recorded moments ago.
func (r *recording) request(ctx context.Context, record Record) error {
	now := r.now()
	recent := func(at time.Time) bool { return now.Sub(at).Abs() < requestInterval }
	if recent(record.RequestedTime) || !r.claim(r.requested, record.UID, now, func(last any) bool { return recent(last.(time.Time)) }) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	at := now
	if !at.After(record.PreparedTime) { // the manager's clock is ahead: the request came after what it prepared all the same
		at = record.PreparedTime.Add(time.Microsecond)
	}
	err := r.to.Requested(ctx, record, at)
	if err != nil {
		r.requested.Remove(record.UID)
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
		ctx, cancel := context.WithTimeout(ctx, recordTimeout)
		defer cancel()
		err = r.to.Served(ctx, record, at)
		return err == nil, nil
	})
	if err != nil {
		r.served.Remove(record.UID)
	}
	return err
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

// servedBefore tells whether the record itself says that what stands was handed out, as another replica, or this one
// before a restart, may have written.
func (r Record) servedBefore() bool {
	return !r.PreparedTime.IsZero() && r.ServedTime.After(r.PreparedTime)
}
