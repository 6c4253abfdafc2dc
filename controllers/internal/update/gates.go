package update

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// unansweredPatience is how long the object of a gate can be unreadable, because the API server does not answer, before
// the condition of the pool says so. Until then, the condition stays as it is.
const unansweredPatience = time.Minute

// gatesTimeout is the time for reading all gates of a pool: rendering the pool again waits for it.
const gatesTimeout = 10 * time.Second

// gates are the update gates of a pool in one reconcile.
type gates struct {
	// wereRead is true if a host can begin its update except for the gates. closed is then why it can't, or nil.
	wereRead bool
	closed   *rollout.ClosedGate
	// closedByCanary is why hosts that are no canaries can't begin theirs, or nil.
	closedByCanary *rollout.ClosedGate
	// closedByCluster is why some hosts can't begin theirs beside those of other pools, or nil.
	closedByCluster *rollout.ClosedGate
}

// closed returns why hosts can't begin their updates, or nil.
func (s *poolScope) closed() *rollout.ClosedGate {
	return cmp.Or(s.gates.closed, s.gates.closedByCluster, s.gates.closedByCanary)
}

// passGates returns those of the hosts that the order and the limit of the cluster's pools and the gates of the pool
// allow to get slots for their targets: all that fit if the gates are open, and otherwise only those that have begun,
// which get a newer target, and those that return. The pool of the control plane always has a gate, which one host
// passes at a time. The gates are read once per reconcile, and only if it matters. The cost is one request for each
// gate up to the first closed one. With an error, it returns those that pass closed gates.
func (r *Updates) passGates(ctx context.Context, s *poolScope, hosts []string) ([]string, error) {
	isControlPlane := pool.IsOfControlPlane(*s.pool)
	var inUpdate []string
	var beginning []*host
	for _, h := range s.named(hosts) {
		if s.candidate(h).HasBegun {
			inUpdate = append(inUpdate, h.Name())
		} else {
			beginning = append(beginning, h)
		}
	}
	if len(beginning) == 0 {
		return hosts, nil
	}
	closed, err := r.closedByOrder(ctx, s)
	if err == nil && closed == nil {
		if beginning, err = r.fitCluster(ctx, s, beginning); err == nil && len(beginning) == 0 {
			return inUpdate, nil
		}
		hosts = slices.Clone(inUpdate)
		for _, h := range beginning {
			hosts = append(hosts, h.Name())
		}
	}
	if err == nil && closed == nil {
		closed, err = r.closedGate(ctx, s)
	}
	if err == nil && closed == nil && isControlPlane {
		hosts = append(slices.Clone(inUpdate), beginning[0].Name())
		closed, err = r.reserveControlPlane(ctx, s, beginning[0])
	}
	if err != nil {
		return inUpdate, err
	}
	s.gates.wereRead, s.gates.closed = true, closed
	if closed != nil {
		return inUpdate, nil
	}
	return hosts, nil
}

// closedGate returns the first closed gate of a pool, or nil. The error is that of a request which is repeated because
// it was not answered.
func (r *Updates) closedGate(ctx context.Context, s *poolScope) (*rollout.ClosedGate, error) {
	if len(s.pool.Spec.Updates.Gates) == 0 {
		return nil, nil
	}
	reader, err := r.gateReader(ctx, workload.ClusterOfPool(s.pool))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, gatesTimeout)
	defer cancel()
	for i := range s.pool.Spec.Updates.Gates {
		gate := &s.pool.Spec.Updates.Gates[i]
		closed, err := readGate(ctx, reader, gate)
		if err != nil {
			if r.unansweredGates.add(s.pool.UID, r.now()) >= unansweredPatience {
				closed, err = rollout.UnansweredGate(gate, unansweredPatience), nil
			}
		}
		if err != nil || closed != nil {
			return closed, err
		}
	}
	r.unansweredGates.end(s.pool.UID)
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
	if pool.IsOfControlPlane(*p) {
		condition.Message = "the control plane could be without a host, and " + condition.Message
	}
	closed := s.closed()
	switch {
	case closed != nil:
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, closed.Reason, closed.Why
		meta.SetStatusCondition(&p.Status.Conditions, condition)
	case s.gates.wereRead && rollout.HasGates(p):
		meta.SetStatusCondition(&p.Status.Conditions, condition)
	case old != nil && (!rollout.HasGates(p) || old.Status == metav1.ConditionFalse):
		meta.RemoveStatusCondition(&p.Status.Conditions, poolv1.UpdateGatesOpenCondition)
	}
	return func() {
		if closed != nil && closed.Reason == poolv1.GateUnreadableReason && reason != closed.Reason {
			r.Recorder.Eventf(p, nil, corev1.EventTypeWarning, closed.Reason, "ReadUpdateGate", "%s", closed.Why)
		}
	}
}
