package node

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/outlook"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/metrics"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/scope"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/teardown"
)

// completeBoot revokes the token of a host that has joined, and deletes what only a booting host needs. It reports
// whether there was anything to do. The ID of the credential stays recorded until everything is deleted, so a crash
// leaves nothing behind.
func (r *Phases) completeBoot(ctx context.Context, w client.Client, s *scope.Scope) (bool, error) {
	if record.IsReleased(s.Config) {
		return false, nil
	}
	if err := s.Flush(ctx); err != nil { // the token is revoked in the metadata of what is recorded
		return false, err
	}
	config := s.Config.DeepCopy()
	err := teardown.Boot{
		Config:           config,
		HasJoined:        true,
		Management:       r.Client,
		OverlayNamespace: r.OverlayNamespace,
		Workload:         func(context.Context) (client.Client, error) { return w, nil },
		CredentialID:     config.Status.Boot.CredentialID,
	}.Delete(ctx)
	s.Wrote(config) // also if only the token was revoked
	return err == nil, err
}

// kubeletRegistrationTime returns when the kubelet of a Node first reported its state: the earliest transition of a
// condition that only a kubelet reports. It returns nil if there is no such condition.
func kubeletRegistrationTime(node *corev1.Node) *metav1.Time {
	var first *metav1.Time
	for _, c := range node.Status.Conditions {
		switch c.Type {
		case corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure:
			if at := c.LastTransitionTime; !at.IsZero() && (first == nil || at.Before(first)) {
				first = &at
			}
		}
	}
	return first
}

// reportChanges creates the events for a change of the record.
func (r *Phases) reportChanges(before, after *bootstrapv1.PoolbootConfig) {
	event := func(kind, reason, note string, args ...any) {
		r.Recorder.Eventf(after, nil, kind, reason, action, note, args...)
	}
	previous, current := before.Status, after.Status
	if previous.NodeRef.IsDefined() && current.NodeRef.IsDefined() && previous.NodeRef.UID != current.NodeRef.UID {
		event(corev1.EventTypeNormal, bootstrapv1.EventLabelsRestored,
			"Node %s registered again; the labels of pool %q are restored", current.NodeRef.Name, current.PoolRole)
	}
	if previous.NodeRef.IsDefined() && previous.PoolRole != "" && previous.PoolRole != current.PoolRole {
		event(corev1.EventTypeNormal, bootstrapv1.EventPoolChanged,
			"The labels of Node %s now select pool %q instead of pool %q", current.NodeRef.Name, current.PoolRole, previous.PoolRole)
	}
	old, condition := conditions.Get(before, bootstrapv1.NodeInPoolCondition), conditions.Get(after, bootstrapv1.NodeInPoolCondition)
	if condition == nil || old != nil && old.Status == condition.Status && old.Reason == condition.Reason {
		return
	}
	switch {
	case condition.Status == metav1.ConditionTrue && outlook.IsWrong(old):
		event(corev1.EventTypeNormal, bootstrapv1.EventNodeReady, "%s", condition.Message)
	case outlook.IsWrong(condition):
		if condition.Reason == bootstrapv1.PoolConflictReason {
			metrics.PoolConflictOfConfig(after, metrics.ConflictNode)
		}
		event(corev1.EventTypeWarning, condition.Reason, "%s", condition.Message)
	}
}
