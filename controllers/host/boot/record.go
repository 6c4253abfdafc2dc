package boot

import (
	"context"
	"errors"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/metrics"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/teardown"
)

// action is the action in the events of this controller.
const action = "PrepareBoot"

// errDeleting reports that the PoolbootConfig is being deleted.
var errDeleting = errors.New("the PoolbootConfig is being deleted")

// errUpToDate reports that a boot does not need what the cache indicated.
var errUpToDate = errors.New("the boot is up to date")

// refresh returns a phase that reads the PoolbootConfig live. The error is errDeleting, or errUpToDate if the config
// has none of the needs.
func (r *Phases) refresh(needs ...need) phase {
	return func(ctx context.Context, s *state) error {
		current := &bootstrapv1.PoolbootConfig{}
		err := r.APIReader.Get(ctx, record.Key(s.Config), current)
		switch {
		case apierrors.IsNotFound(err), err == nil && !current.DeletionTimestamp.IsZero():
			return errDeleting
		case err != nil:
			return err
		case !slices.Contains(needs, needOf(current)):
			return errUpToDate
		}
		s.Read(current)
		return nil
	}
}

// refreshIfRetried reads the PoolbootConfig live if the Node already existed: an earlier preparation can have recorded
// more than the cache contains.
func (r *Phases) refreshIfRetried(ctx context.Context, s *state) error {
	if !s.nodeExisted {
		return nil
	}
	return r.refresh(preparation)(ctx, s)
}

// bootPrepared returns the condition BootPrepared.
func bootPrepared(status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: bootstrapv1.BootPreparedCondition, Status: status, Reason: reason, Message: message}
}

// isAnotherHost reports whether the host that boots differs from the recorded host and can be recorded now. It cannot
// once a Node is recorded, because the Node can be named after the recorded host.
func (s *state) isAnotherHost(config *bootstrapv1.PoolbootConfig) bool {
	return s.host != nil && isDeployed(s.host) && !record.HasNode(config) &&
		s.host.UID != "" && s.host.UID != config.Status.HostRef.UID
}

// chooseHost records the host if the infrastructure provider chose it. This happens at the latest when the host sends a
// request.
func (s *state) chooseHost(status *bootstrapv1.PoolbootConfigStatus) {
	if s.host.UID == "" || status.HostRef.UID == s.host.UID {
		return
	}
	if status.HostRef.IsDefined() { // these belong to the other host
		status.Requests.Addresses, status.Requests.FirstRequestedTime = nil, status.Requests.RequestedTime.DeepCopy()
		status.Requests.IgnitionFailure = bootstrapv1.IgnitionFailure{}
	}
	status.HostRef = bootstrapv1.HostReference{Name: s.host.Name, Namespace: s.host.Namespace, UID: s.host.UID}
	if status.Boot.HostChosenTime = status.Requests.FirstRequestedTime.DeepCopy(); status.Boot.HostChosenTime == nil {
		status.Boot.HostChosenTime = &metav1.MicroTime{Time: time.Now()}
	}
}

// record records in one write what was created for the host, and that the boot is prepared. It is the last phase,
// because the config server hands out an overlay only if its join credential is recorded. So a host never has a
// credential that is unknown to the approver of certificates and to the cleanup of a deletion, which both use this
// record.
func (r *Phases) record(ctx context.Context, s *state) error {
	now, answered := time.Now(), s.Config.Status.Requests.RequestedTime
	if first := record.FirstRequestTime(s.Config); !first.IsZero() {
		metrics.BootPrepared(max(0, now.Sub(first).Seconds()))
	}
	prepared := registration.BootPrepared(s.node.Name, s.pool.Spec.PoolRole, s.configuration)
	hadFailed := conditions.IsFalse(s.Config, bootstrapv1.BootPreparedCondition)
	err := s.recordStatus(ctx, func(config *bootstrapv1.PoolbootConfig) {
		status := &config.Status
		status.PoolRole = s.pool.Spec.PoolRole
		status.Boot.ServedConfiguration.Name = s.configuration
		s.chooseHost(status)
		status.DerivedNodeLabels = s.derivedLabels
		status.NodeRef = bootstrapv1.NodeReference{Name: s.node.Name, UID: string(s.node.UID)}
		if s.credential.ID != "" {
			status.Boot.CredentialID = s.credential.ID
			status.Boot.CredentialExpirationTime = &metav1.Time{Time: s.credential.Expires}
		}
		status.Boot.PreparedTime, status.Boot.AnsweredRequestTime = &metav1.MicroTime{Time: now}, answered
		status.Requests.ServedTime = nil
		conditions.Set(config, prepared)
		if !conditions.Has(config, bootstrapv1.NodeInPoolCondition) { // the comparison of the Node would set the same next
			conditions.Set(config, registration.WaitingForKubelet(s.node, s.pool.Spec.PoolRole))
		}
	})
	if err != nil {
		return err
	}
	s.Node = s.node
	r.reportPool(s)
	metrics.StagePassed(s.Config, record.StagePreparing)
	if hadFailed {
		r.event(s, corev1.EventTypeNormal, bootstrapv1.EventBootPrepared, "Host %s: %s", s.host.Name, prepared.Message)
	}
	return nil
}

// reportFailure reports why a boot is not prepared, with a condition, an event and the metrics, unless it is already
// reported.
func (r *Phases) reportFailure(s *state, failed *failure) {
	condition := bootPrepared(metav1.ConditionFalse, failed.reason, failed.Error())
	if failed.reason == bootstrapv1.WaitingForHostReason {
		condition.Status = metav1.ConditionUnknown
	}
	reported := conditions.Get(s.Config, condition.Type)
	isReported := reported != nil && conditions.HasSameStateExceptObservedGeneration(reported, &condition)
	if isReported && !s.isAnotherHost(s.Config) {
		return
	}
	isNew := reported == nil || reported.Status != condition.Status || reported.Reason != condition.Reason
	if s.isAnotherHost(s.Config) {
		s.chooseHost(&s.Config.Status)
	}
	conditions.Set(s.Config, condition)
	s.Report(func(_, after *bootstrapv1.PoolbootConfig) {
		if condition.Status == metav1.ConditionFalse && !isReported {
			// Each cause has its own reason, because the recorder counts events that differ only in their note as one
			// repeated event.
			r.event(s, corev1.EventTypeWarning, condition.Reason, "%s", condition.Message)
		}
		if isNew && condition.Reason != bootstrapv1.WaitingForHostReason {
			metrics.StageBlocked(after, record.StagePreparing, condition.Reason)
		}
		if isNew && condition.Reason == bootstrapv1.NodeNameTakenReason {
			metrics.PreRegistered(after, s.pool.Spec.PoolRole, metrics.NodeTaken)
		}
	})
}

// event creates an event about the config and its Machine.
func (r *Phases) event(s *state, kind, reason, note string, args ...any) {
	r.Recorder.Eventf(s.Config, s.related(), kind, reason, action, note, args...)
}

// recordStatus writes a change of the status at once, because of something that was done elsewhere. If another client
// has changed the config in the meantime, it changes the current version. It returns errDeleting if the config is being
// deleted.
func (s *state) recordStatus(ctx context.Context, change func(*bootstrapv1.PoolbootConfig)) error {
	err := s.Record(ctx, change)
	if apierrors.IsNotFound(err) {
		return errDeleting
	}
	return err
}

// withdraw deletes what was prepared for a host, because the PoolbootConfig is being deleted or the host no longer
// belongs to the Machine. The cleanup of a deletion can have run before this preparation created something.
func (r *Phases) withdraw(ctx context.Context, s *state) error {
	if s.node == nil && s.credential.ID == "" {
		return nil
	}
	boot := teardown.Boot{
		Config:           s.Config,
		Management:       r.Client,
		OverlayNamespace: r.OverlayNamespace,
		Workload:         func(context.Context) (client.Client, error) { return s.workload, nil },
		CredentialID:     s.credential.ID,
	}
	if s.node != nil {
		boot.NodeName = s.node.Name
		boot.IsUnused = func(current *corev1.Node) bool { return current.UID == s.node.UID && !record.HasKubelet(current) }
	}
	return boot.Delete(ctx)
}
