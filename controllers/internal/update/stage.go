package update

import (
	"bytes"
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/status"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// stage stores what a host without a slot gets next, and names it on its Node, if the pool says that the host stages.
// The host only downloads. If the pool returns to what the host has, nothing is next.
func (r *Updates) stage(ctx context.Context, h *host, in poolContext) error {
	if h.Node == nil || h.IsExcluded() || h.HasBegun() || h.Desired() == "" || h.Told() != h.Desired() {
		return nil
	}
	if record.IsAsFound(h.Config) {
		if h.Report.Current != h.Desired() { // its agent gets that first: only one document is stored
			return r.nameNext(ctx, h, "")
		}
		return r.stagePreview(ctx, h, in)
	}
	named, entry := h.Node.Annotations[agentv1.NextAnnotation], rollout.StagingOf(in.pool.Status.Staging, h.Name())
	if named == "" && entry == nil || entry != nil && named == entry.Revision {
		return nil
	}
	revision, err := r.revisionOf(ctx, h, in)
	switch {
	case isTransient(err):
		return err
	case err != nil:
		return nil //nolint:nilerr // The condition has it.
	case revision == h.Desired(), entry == nil && named != revision: // it waits for its turn again
		return r.nameNext(ctx, h, "")
	case entry == nil || entry.Revision != revision:
		return nil
	}
	t, err := r.targetOf(ctx, h, in)
	if err != nil {
		return err
	}
	if err := r.storeUnlessStored(ctx, h, t); err != nil {
		return err
	}
	return r.nameNext(ctx, h, revision)
}

// nameNext names on the Node of a host what it gets next. The patch is locked: it must not come after the host was told
// something else.
func (r *Updates) nameNext(ctx context.Context, h *host, revision string) error {
	if h.Node.Annotations[agentv1.NextAnnotation] == revision {
		return nil
	}
	w, err := workload.Client(ctx, r.ClusterCache, record.ClusterKey(h.Config))
	if err != nil {
		return err
	}
	node := h.Node.DeepCopy()
	if delete(node.Annotations, agentv1.NextAnnotation); revision != "" {
		metav1.SetMetaDataAnnotation(&node.ObjectMeta, agentv1.NextAnnotation, revision)
	}
	if err := w.Patch(ctx, node, status.Locked(h.Node)); err != nil {
		return fmt.Errorf("patch Node %s: %w", node.Name, err)
	}
	r.written.Record(node)
	h.Node = node
	return nil
}

// storeUnlessStored stores what a host should run or runs next, unless that was stored before.
func (r *Updates) storeUnlessStored(ctx context.Context, h *host, t target) error {
	stored, err := r.knownStoredOf(ctx, h.Config)
	if err != nil || stored != nil && stored.revision == t.revision && bytes.Equal(stored.clientCA, t.clientCA) {
		return err
	}
	return r.store(ctx, h.Config, t)
}

// staging returns whether a host that is to stage what it runs next has said nothing about that for too long, and
// otherwise when that will be so, 0 if it never is.
func (h *host) staging(o outcome) (isLate bool, left time.Duration) {
	entry := rollout.StagingOf(o.in.pool.Status.Staging, h.Name())
	if entry == nil || entry.Revision != o.revision || entry.Revision == h.Desired() || entry.StartTime == nil || h.Report.Staging == o.revision {
		return false, 0
	}
	left = rollout.StagingLeft(entry, o.now)
	return left <= 0, max(left, 0)
}

// countStaged returns how many hosts without a slot have staged what they run next.
func (s *poolScope) countStaged() (count int32) {
	for _, h := range s.hosts {
		if s.slot(h) == nil && h.target != "" && h.target != h.Report.Current && h.Report.Staging == h.target && h.Report.StagingProblem == "" {
			count++
		}
	}
	return count
}
