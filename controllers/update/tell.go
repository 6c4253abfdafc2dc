package update

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/outlook"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/metrics"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/status"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// adopt records what hosts run of which nothing is recorded: those that booted for the first time have what was stored
// for them before that. After clusterctl move, the agents of others report it, and what a host was told is on its Node.
// This disrupts nothing, so it also happens in a paused pool. A host that has another revision, and was told another
// one, is updated like any other.
//
// A host that was told its target and has it keeps it, also if something else is recorded, as after the restore of a
// backup.
func (r rollouts) adopt(ctx context.Context, s *poolScope) error {
	hosts := s.which(func(h *host) bool { return h.mustBeAdopted() || h.runsTarget() })
	adopted := make([]bool, len(hosts))
	err := inParallel(indexes(hosts), r.parallel, func(i int) (err error) {
		adopted[i], err = r.adoptHost(ctx, s, hosts[i])
		return err
	})
	s.unadoptable = map[string]bool{}
	for i, h := range hosts {
		s.unadoptable[h.Name()] = !adopted[i]
	}
	return err
}

// adoptHost reports whether it is not known that a host has nothing to adopt.
func (r rollouts) adoptHost(ctx context.Context, s *poolScope, h *host) (bool, error) {
	if h.runsTarget() {
		_, err := r.storeAndRecord(ctx, h, s.surroundings)
		return true, err
	}
	stored, err := r.storedOf(ctx, h.Config)
	switch {
	case err != nil:
		return true, err
	case stored != nil && (h.Report.Current == "" || h.Report.Current == stored.revision):
		return true, r.record(ctx, h, *stored)
	case h.target != "" && (h.Report.Current == h.target || h.Told() == h.target):
		_, err = r.storeAndRecord(ctx, h, s.surroundings)
		return true, err
	}
	return false, nil
}

// tellUndisrupted tells the hosts what is recorded for them for which that disrupts nothing. The record must be the
// current one: by an older one, a host that was told to begin an update still has to be told what it has.
func (r rollouts) tellUndisrupted(ctx context.Context, s *poolScope) error {
	isConcerned := func(h *host) bool { return h.IsUntold() && h.CanBeTold() }
	return inParallel(s.which(isConcerned), r.parallel, func(h *host) error {
		config, err := workload.GetIfExists[bootstrapv1.PoolbootConfig](ctx, r.APIReader, client.ObjectKeyFromObject(h.Config))
		if err != nil || config == nil || config.Status.Update.DesiredRevision != h.Desired() {
			return err
		}
		return r.tell(ctx, s, h) // the patch fails if the Node is not that of the cache any more
	})
}

// start tells the next hosts to begin their updates. They take their places before, in one write. Each is recorded
// then, and told with a lock at the version of its Node that its place has.
func (r rollouts) start(ctx context.Context, s *poolScope) error {
	if next, confirmed := s.withoutDoubts().next(); len(next)+len(confirmed) == 0 {
		return nil
	}
	if err := r.readPlaces(ctx, s); err != nil {
		return err
	}
	next, confirmed := s.next()
	allowed, err := r.passGates(ctx, s, slices.Compact(slices.Sorted(slices.Values(slices.Concat(next, confirmed)))))
	if err != nil {
		return err
	}
	isTold := func(h *host) bool {
		return slices.Contains(confirmed, h.Name()) || !h.see(s).IsPending && h.Told() != h.target
	}
	hosts := s.named(allowed)
	if err := r.takePlaces(ctx, s, slices.DeleteFunc(slices.Clone(hosts), func(h *host) bool { return !isTold(h) })); err != nil {
		return err
	}
	failed := inParallel(hosts, r.parallel, func(h *host) error {
		mustTell := isTold(h)
		revision, err := h.Desired(), error(nil)
		if slices.Contains(next, h.Name()) {
			revision, err = r.storeAndRecord(ctx, h, s.surroundings)
		} else {
			err = r.confirmRecord(ctx, h)
		}
		if err != nil || !mustTell || h.Desired() != revision || h.Told() == revision { // else another record is told later
			return err
		}
		return r.tell(ctx, s, h)
	})
	open := s.which(func(h *host) bool { return s.doubts[h.Name()] == isOpen && !slices.Contains(allowed, h.Name()) })
	return errors.Join(failed, inParallel(open, r.parallel, func(h *host) error { return r.withdraw(ctx, s, h.Node) }))
}

// errOtherRecord means that the cache has an older record than the API server.
var errOtherRecord = apierrors.NewConflict(bootstrapv1.GroupVersion.WithResource("poolbootconfigs").GroupResource(), "", errors.New("another revision was recorded"))

// confirmRecord returns an error unless the record of a host is the current one.
func (r rollouts) confirmRecord(ctx context.Context, h *host) error {
	config, err := workload.GetIfExists[bootstrapv1.PoolbootConfig](ctx, r.APIReader, client.ObjectKeyFromObject(h.Config))
	if err == nil && (config == nil || config.Status.Update.DesiredRevision != h.Desired()) {
		return errOtherRecord
	}
	return err
}

// storeAndRecord stores and records what a host should run, and returns its revision.
func (r rollouts) storeAndRecord(ctx context.Context, h *host, in surroundings) (string, error) {
	t, err := r.targetOf(ctx, h, in)
	if err != nil {
		return "", err
	}
	if err := r.store(ctx, h.Config, t); err != nil {
		return "", err
	}
	return t.revision, r.record(ctx, h, t)
}

// maxForce is the maximum size of update.Force in bytes.
const maxForce = 256

// record records what a host should run, unless something else was recorded in the meantime.
func (r rollouts) record(ctx context.Context, h *host, t target) error {
	previous := h.Desired()
	return r.change(ctx, h, func(update *bootstrapv1.UpdateStatus) {
		if update.DesiredRevision == previous {
			update.Desired, update.DesiredRevision = bootstrapv1.ConfigurationReference{Name: t.configuration}, t.revision
			if update.Force = t.force; len(t.force) > maxForce {
				update.Force = ""
			}
			if t.revision != previous {
				update.Stage, update.StageTime = "", nil
			}
		}
	})
}

// change changes status.update of a host. With another revision, the condition does not say any more what was wrong
// with the earlier one. It does nothing if the PoolbootConfig is being deleted.
func (r rollouts) change(ctx context.Context, h *host, change func(*bootstrapv1.UpdateStatus)) error {
	changed, err := status.Update.Change(ctx, r.Client, r.APIReader, h.Config.DeepCopy(), func(config *bootstrapv1.PoolbootConfig) {
		before := config.Status.Update.DesiredRevision
		change(&config.Status.Update)
		if c := conditions.Get(config, bootstrapv1.UpdatedCondition); c != nil && outlook.IsWrong(c) && config.Status.Update.DesiredRevision != before {
			conditions.Set(config, *newUpdated(metav1.ConditionFalse, bootstrapv1.UpdateWaitingReason, "Node %s is about to be told to run %s",
				config.Status.NodeRef.Name, config.Status.Update.Desired.Name))
		}
	})
	if err == nil {
		host := *h.Host // others can have it
		host.Config = changed
		h.Host, h.seen = &host, nil
		r.written.Record(changed)
	}
	return client.IgnoreNotFound(err)
}

// tell tells a host what is recorded for it. Health checks of its Machine are paused before, and a reconcile of the
// host must not end the pause in between. The same write records on the Node that the update has begun, where
// clusterctl move keeps it and a kubelet can't change it. The Node counts as drained for no other revision than the one
// that it was drained for.
func (r rollouts) tell(ctx context.Context, s *poolScope, h *host) error {
	r.telling.Store(h.Config.UID, nil)
	defer r.telling.Delete(h.Config.UID)
	if h.Machine != nil && !h.CanBeTold() {
		if err := r.setRemediation(ctx, h.Machine, true); err != nil {
			return err
		}
	}
	isStart := !h.CanBeTold()
	node := h.Node.DeepCopy()
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, agentv1.DesiredAnnotation, h.Desired())
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, agentv1.DesiredConfigAnnotation, h.Config.Status.Update.Desired.Name)
	delete(node.Annotations, agentv1.BegunAnnotation)
	if isStart {
		metav1.SetMetaDataAnnotation(&node.ObjectMeta, agentv1.BegunAnnotation, h.Desired())
	}
	delete(node.Annotations, agentv1.DrainedAnnotation)
	delete(node.Annotations, agentv1.DrainStartedAnnotation)
	delete(node.Annotations, agentv1.DetachStartedAnnotation)
	if err := s.nodes.Patch(ctx, node, status.Locked(h.Node)); err != nil {
		return fmt.Errorf("patch Node %s: %w", node.Name, err)
	}
	r.written.Record(node)
	h.Host, h.seen = rollout.HostOf(s.pools, h.Config, h.Machine, node), nil
	if isStart {
		metrics.UpdateStarted(h.Config)
		r.Recorder.Eventf(h.Config, nil, corev1.EventTypeNormal, bootstrapv1.EventUpdateStarted, action,
			"Node %s is told to run %s", node.Name, h.Config.Status.Update.Desired.Name)
	}
	return nil
}
