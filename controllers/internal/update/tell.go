package update

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/assignment"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/outlook"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/metrics"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/status"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// assign records what a host should run, and tells it: what its slot is for, or what disrupts nothing. A host without a
// slot is told nothing else. After a crash between any two writes, the next reconcile goes on.
//
// A host is told with a patch of its Node that is locked to a version of it from before the record was confirmed. So a
// host that was told something else since then is not told this, however old the pool and the record in the cache are:
// its Node has changed, and its slot was not free before.
func (r *Updates) assign(ctx context.Context, h *host, in poolContext) error {
	slot := rollout.SlotOf(in.pool.Status.Slots, h.Name())
	isRecorded, err := r.recordNext(ctx, h, in, slot)
	if err != nil {
		return err
	}
	isStart := slot != nil && h.Config.Status.Update.Slot == slot.ID && !h.HasSlot(slot.ID) && h.canBegin()
	if !isStart && (!h.IsUntold() || !h.CanBeTold()) {
		if slot != nil {
			return nil
		}
		return r.stage(ctx, h, in)
	}
	if !isRecorded {
		if err := r.confirmRecord(ctx, h); err != nil {
			return err
		}
	}
	if !isStart {
		slot = nil
	}
	return r.tell(ctx, h, slot)
}

// canBegin reports whether a host with a slot can be told to begin its update. One that labels of its Node name no pool
// for has its slot, and begins.
func (h *host) canBegin() bool {
	return h.Node != nil && h.Node.DeletionTimestamp.IsZero() && !h.IsUnrecorded && h.Report.NotUnderstood == "" && h.MachineWork() == rollout.NoMachineWork
}

// recordNext records what the slot of a host is for, or what the host runs if nothing is recorded for it. It reports
// whether it has written the record, which is the current one then.
func (r *Updates) recordNext(ctx context.Context, h *host, in poolContext, slot *poolv1.UpdateSlot) (isRecorded bool, _ error) {
	isNew := slot != nil && h.Config.Status.Update.Slot != slot.ID && !h.IsDoneWith(slot.ID)
	switch {
	case isNew && h.HasSlot(slot.ID) && h.Told() != "": // the record was lost, or is from a backup
		return true, h.record(ctx, h.toldTarget(), slot.ID)
	case !isNew && h.Desired() == "" && !h.IsExcluded():
		return r.adopt(ctx, h, in)
	case isNew && !h.canBegin(), !isNew && (h.IsExcluded() || h.Told() == h.Desired()):
		return false, nil
	}
	revision, err := r.revisionOf(ctx, h, in)
	switch {
	case err != nil: // the condition has it
		if isTransient(err) {
			return false, err
		}
		return false, nil
	case isNew && revision == slot.Revision:
		return true, r.storeAndRecord(ctx, h, in, slot.ID, func() { h.expectTold(slot, in, r.now()) })
	case !isNew && revision == h.Told() && h.Report.IsDone(revision): // the record is from a backup
		return true, r.storeAndRecord(ctx, h, in, h.Config.Status.Update.Slot, nil)
	}
	return false, nil
}

// adopt records what a host runs for which nothing is recorded: one that booted for the first time has what was stored
// for it before that. After clusterctl move, the agents of others report it, and what a host was told is on its Node.
// This disrupts nothing, so it also happens in a paused pool.
func (r *Updates) adopt(ctx context.Context, h *host, in poolContext) (isRecorded bool, _ error) {
	stored, err := r.storedOf(ctx, h.Config)
	if err != nil {
		return false, err
	}
	isPreview := record.IsPreview(h.Config) && stored != nil && stored.configuration != assignment.AsFound().Name // nobody agreed to it
	if stored != nil && !isPreview && (h.Report.Current == "" || h.Report.Current == stored.revision) {
		return true, h.record(ctx, *stored, "")
	}
	revision, err := r.revisionOf(ctx, h, in)
	switch {
	case isTransient(err):
		return false, err
	case err == nil && (h.Report.Current == revision || h.Told() == revision || h.Told() == "" && h.Report.Current == ""):
		return true, r.storeAndRecord(ctx, h, in, "", nil)
	case h.Told() == "" && h.Report.Current == "":
		return false, nil
	}
	return true, h.record(ctx, h.toldTarget(), "")
}

// toldTarget returns what the Node says that the host was told to run, or else what it runs.
func (h *host) toldTarget() target {
	if h.Told() == "" {
		name := cmp.Or(h.Node.Annotations[poolv1.NodeCurrentConfigAnnotation], h.Config.Status.Boot.ServedConfiguration.Name)
		return target{revision: h.Report.Current, configuration: name}
	}
	return target{revision: h.Told(), configuration: h.Node.Annotations[agentv1.DesiredConfigAnnotation]}
}

// errOtherRecord means that the cache has an older record than the API server.
var errOtherRecord = errors.New("another record was written")

// confirmRecord returns a conflict unless the record of a host is the current one.
func (r *Updates) confirmRecord(ctx context.Context, h *host) error {
	config, err := workload.GetIfExists[bootstrapv1.PoolbootConfig](ctx, r.APIReader, client.ObjectKeyFromObject(h.Config))
	if err != nil {
		return err
	}
	known := &h.Config.Status
	if config == nil || config.Status.PoolRole != known.PoolRole || config.Status.Update.Slot != known.Update.Slot || config.Status.Update.DesiredRevision != known.Update.DesiredRevision {
		return apierrors.NewConflict(bootstrapv1.GroupVersion.WithResource("poolbootconfigs").GroupResource(), h.Name(), errOtherRecord)
	}
	return nil
}

// storeAndRecord stores and records what a host should run. expect, if it is not nil, adds to the record.
func (r *Updates) storeAndRecord(ctx context.Context, h *host, in poolContext, slot string, expect func()) error {
	t, err := r.targetOf(ctx, h, in)
	if err != nil {
		return err
	}
	if err := r.storeUnlessStored(ctx, h, t); err != nil {
		return err
	}
	h.setRecord(t, slot)
	if expect != nil {
		expect()
	}
	return h.flush(ctx)
}

// record records what a host should run, by a slot or by none. The error is a conflict if the record has changed since
// it was read.
func (h *host) record(ctx context.Context, t target, slot string) error {
	h.setRecord(t, slot)
	return h.flush(ctx)
}

// maxForce is the maximum size of update.Force in bytes.
const maxForce = 256

// setRecord sets what a host should run. With another revision, the condition does not say any more what was wrong with
// the earlier one.
func (h *host) setRecord(t target, slot string) {
	config := h.Config
	update := &config.Status.Update
	previous := update.DesiredRevision
	if t.configuration != update.Desired.Name {
		h.keepFailure()
	}
	update.Slot, update.Desired, update.DesiredRevision = slot, bootstrapv1.ConfigurationReference{Name: t.configuration}, t.revision
	if update.Force = t.force; len(t.force) > maxForce {
		update.Force = ""
	}
	update.Restart = t.restart
	if t.revision != previous {
		update.Stage, update.StageTime, update.UnansweredTime = "", nil, nil
		if c := conditions.Get(config, bootstrapv1.UpdatedCondition); c != nil && outlook.IsWrong(c) {
			conditions.Set(config, *newUpdated(metav1.ConditionFalse, bootstrapv1.UpdateWaitingReason, "Node %s is about to be told to run %s",
				config.Status.NodeRef.Name, t.configuration))
		}
	}
}

// tell tells a host what is recorded for it. If it begins an update by that, health checks of its Machine are paused
// before.
func (r *Updates) tell(ctx context.Context, h *host, slot *poolv1.UpdateSlot) error {
	isStart := !h.CanBeTold()
	var err error
	if isStart && h.Machine != nil {
		if h.Machine, err = r.setRemediation(ctx, h.Machine, true); err != nil {
			return err
		}
	}
	w, err := workload.Client(ctx, r.ClusterCache, record.ClusterKey(h.Config))
	if err != nil {
		return err
	}
	node := h.toldNode(slot)
	if err := w.Patch(ctx, node, status.Locked(h.Node)); err != nil {
		return fmt.Errorf("patch Node %s: %w", node.Name, err)
	}
	r.written.Record(node)
	h.Node, h.Report = node, rollout.ReportOf(node)
	if isStart {
		metrics.UpdateStarted(h.Config)
	}
	return nil
}

// toldNode returns the Node of a host as it is when the host is told what is recorded. If an update begins by that, the
// Node says so, and by which slot, where clusterctl move keeps it and a kubelet can't change it. The Node counts as
// drained for no other revision than the one that it was drained for.
func (h *host) toldNode(slot *poolv1.UpdateSlot) *corev1.Node {
	node := h.Node.DeepCopy()
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, agentv1.DesiredAnnotation, h.Desired())
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, agentv1.DesiredConfigAnnotation, h.Config.Status.Update.Desired.Name)
	delete(node.Annotations, agentv1.NextAnnotation)
	delete(node.Annotations, agentv1.BegunAnnotation)
	if slot != nil {
		metav1.SetMetaDataAnnotation(&node.ObjectMeta, agentv1.SlotAnnotation, slot.ID)
	}
	if !h.CanBeTold() {
		metav1.SetMetaDataAnnotation(&node.ObjectMeta, agentv1.BegunAnnotation, h.Desired())
	}
	delete(node.Annotations, agentv1.DrainedAnnotation)
	delete(node.Annotations, agentv1.DrainStartedAnnotation)
	delete(node.Annotations, agentv1.DetachStartedAnnotation)
	delete(node.Annotations, agentv1.Metal3RebootsAnnotation)
	return node
}

// expectTold sets in the record what will be so once the host is told, so that it need not be written again then.
func (h *host) expectTold(slot *poolv1.UpdateSlot, in poolContext, now time.Time) {
	told := &host{Host: new(*h.Host)}
	told.Node = h.toldNode(slot)
	told.Report = rollout.ReportOf(told.Node)
	told.observe(now)
	told.setStage(now)
	if condition := told.updated(outcome{in: in, now: now, revision: h.Desired()}); condition != nil {
		conditions.Set(h.Config, *condition)
	}
	told.setHistory(now)
}
