package update

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// closedTTL is how long a closed gate is not read again. Events of a large pool can cause many reconciles, and a closed
// gate is also read again every rolloutRetry. An open gate is never remembered.
const closedTTL = rolloutRetry / 2

// unansweredPatience is how long the object of a gate can be unreadable, because the API server does not answer, before
// the condition of the pool says so. Until then, the condition stays as it is.
const unansweredPatience = time.Minute

// gates are the update gates of a pool in one reconcile.
type gates struct {
	// wereRead is true if a host can begin its update except for the gates. closed is then why it can't, or nil.
	wereRead bool
	closed   *rollout.ClosedGate
	// held are the names of the hosts that begin no update only because of the closed gate.
	held []string
}

// passGates returns those of the hosts that the gates of the pool allow to get slots for their targets: all if the
// gates are open, and otherwise only those that have begun, which get a newer target, and those that return. The gates
// are read once per reconcile, and only if it matters. The cost is one request for each gate up to the first closed
// one. With an error, it returns those that pass closed gates.
func (r *Updates) passGates(ctx context.Context, s *poolScope, hosts []string) ([]string, error) {
	if len(s.pool.Spec.Updates.Gates) == 0 || len(hosts) == 0 {
		return hosts, nil
	}
	var inUpdate, begin []string
	for _, h := range s.named(hosts) {
		if h.passesGates(s.candidate(h).Progress) {
			inUpdate = append(inUpdate, h.Name())
		} else {
			begin = append(begin, h.Name())
		}
	}
	if len(begin) == 0 {
		return hosts, nil
	}
	closed, err := r.closedGate(ctx, s)
	if err != nil {
		return inUpdate, err
	}
	s.gates = gates{wereRead: true, closed: closed}
	if closed != nil {
		s.gates.held = begin
		return inUpdate, nil
	}
	return hosts, nil
}

// passesGates reports whether a closed gate does not hold back a host: it is in an update and gets a newer target, or
// was told to begin one and has not answered, or returns to what it has. One that repairs what it has is in no update.
func (h *host) passesGates(progress rollout.Progress) bool {
	return progress == rollout.InUpdate || progress == rollout.Unknown && h.Report.Current != h.Told() || h.returns()
}

// closedGate returns the first closed gate of a pool, or nil. The error is that of a request which is repeated because
// it was not answered.
func (r *Updates) closedGate(ctx context.Context, s *poolScope) (*rollout.ClosedGate, error) {
	if closed, ok := r.knownGates.closed.get(closedKey(s.pool), r.now()); ok {
		return closed, nil
	}
	reader, err := r.gateReader(ctx, workload.ClusterOfPool(s.pool))
	if err != nil {
		return nil, err
	}
	for i := range s.pool.Spec.Updates.Gates {
		gate := &s.pool.Spec.Updates.Gates[i]
		closed, err := readGate(ctx, reader, gate)
		if err != nil {
			if r.knownGates.unanswered.add(s.pool.UID, r.now()) >= unansweredPatience {
				closed, err = rollout.UnansweredGate(gate, unansweredPatience), nil
			}
		}
		if closed != nil {
			r.knownGates.closed.set(closedKey(s.pool), closed, r.now())
		}
		if err != nil || closed != nil {
			return closed, err
		}
	}
	r.knownGates.unanswered.end(s.pool.UID)
	return nil, nil
}

// readGate reads the object of a gate, and returns why the gate is closed, or nil.
func readGate(ctx context.Context, reader client.Reader, gate *poolv1.UpdateGate) (*rollout.ClosedGate, error) {
	if errs := rollout.CheckGates([]poolv1.UpdateGate{*gate}, field.NewPath("spec", "updates", "gates")); len(errs) > 0 {
		return rollout.InvalidGate(gate, errs), nil
	}
	object := &unstructured.Unstructured{}
	object.SetAPIVersion(gate.ObjectRef.APIVersion)
	object.SetKind(gate.ObjectRef.Kind)
	err := reader.Get(ctx, client.ObjectKey{Namespace: gate.ObjectRef.Namespace, Name: gate.ObjectRef.Name}, object)
	tooLarge := (*workload.TooLargeError)(nil)
	switch {
	case workload.IsUnreachable(err):
		return nil, fmt.Errorf("update gate %s: %w", gate.Name, err)
	case errors.As(err, &tooLarge):
		return rollout.TooLargeGate(gate), nil
	case err != nil:
		return rollout.UnreadableGate(gate, err), nil
	}
	return rollout.EvaluateGate(ctx, gate, object.Object), nil
}

// newGateReader returns a reader with the rights of the user that the owner of the workload cluster grants them to. The
// manager itself can usually read everything there, and a user who can write pools must not.
func (r *Updates) newGateReader(ctx context.Context, cluster client.ObjectKey) (client.Reader, error) {
	return workload.ReaderAs(ctx, r.ClusterCache, cluster, poolv1.UpdateGatesUser, rollout.MaxObject)
}

// setGatesOpen sets the condition UpdateGatesOpen of a pool, and returns what to do once it is written. While no host
// can begin an update for other reasons, the gates are not read: then a closed one is not the reason, and the condition
// is removed.
func (r *Updates) setGatesOpen(s *poolScope) (report func()) {
	p, reason := s.pool, ""
	old := meta.FindStatusCondition(p.Status.Conditions, poolv1.UpdateGatesOpenCondition)
	if old != nil {
		reason = old.Reason
	}
	condition := metav1.Condition{
		Type: poolv1.UpdateGatesOpenCondition, Status: metav1.ConditionTrue, ObservedGeneration: p.Generation, Reason: poolv1.GatesOpenReason,
		Message: fmt.Sprintf("all update gates (%d) were open when hosts began updates last", len(p.Spec.Updates.Gates)),
	}
	closed := s.gates.closed
	switch {
	case closed != nil:
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, closed.Reason, closed.Why
		meta.SetStatusCondition(&p.Status.Conditions, condition)
	case s.gates.wereRead:
		meta.SetStatusCondition(&p.Status.Conditions, condition)
	case old != nil && (len(p.Spec.Updates.Gates) == 0 || old.Status == metav1.ConditionFalse):
		meta.RemoveStatusCondition(&p.Status.Conditions, poolv1.UpdateGatesOpenCondition)
	}
	return func() {
		if closed != nil && closed.Reason == poolv1.GateUnreadableReason && reason != closed.Reason {
			r.Recorder.Eventf(p, nil, corev1.EventTypeWarning, closed.Reason, "ReadUpdateGate", "%s", closed.Why)
		}
	}
}

// reportHeld makes the hosts say which gate they wait for, and those that do not wait for it any more say something
// else. Only those that would be next wait for the gate: a closed gate must not cause a write for each host of a pool.
func (r *Updates) reportHeld(ctx context.Context, s *poolScope) {
	held := map[string]string{}
	for _, name := range s.gates.held {
		held[name] = s.gates.closed.Why
	}
	for _, name := range r.held.set(client.ObjectKeyFromObject(s.pool), held) {
		host := &bootstrapv1.PoolbootConfig{ObjectMeta: metav1.ObjectMeta{Namespace: s.pool.Namespace, Name: name}}
		select {
		case r.heldChanged <- event.GenericEvent{Object: host}:
		case <-ctx.Done():
			return
		}
	}
}

// heldHosts has the hosts of each pool that begin no update because of a closed gate, by their names, and why the gate
// is closed. The zero value is ready to use.
type heldHosts struct {
	mu    sync.Mutex
	known map[client.ObjectKey]map[string]string
}

// why returns why the gate is closed that holds back a host of a pool, or "".
func (h *heldHosts) why(pool client.ObjectKey, host string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.known[pool][host]
}

// set sets the hosts of a pool that are held back, and returns the names of those for which something has changed.
func (h *heldHosts) set(pool client.ObjectKey, held map[string]string) (changed []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	before := h.known[pool]
	for name := range before {
		if held[name] == "" {
			changed = append(changed, name)
		}
	}
	for name, why := range held {
		if before[name] != why {
			changed = append(changed, name)
		}
	}
	if h.known == nil {
		h.known = map[client.ObjectKey]map[string]string{}
	}
	if h.known[pool] = held; len(held) == 0 {
		delete(h.known, pool)
	}
	slices.Sort(changed)
	return changed
}
