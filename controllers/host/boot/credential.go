package boot

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/outlook"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/metrics"
)

// autoApprovedRetry is how soon a cluster that approves certificates automatically is checked again. No watch reports
// the change.
const autoApprovedRetry = 30 * time.Second

// checkApproval returns an error if the cluster approves certificates automatically. With a join credential, a client
// could then get a certificate for any Node, so none is created.
func (r *Phases) checkApproval(ctx context.Context, s *state) error {
	err := r.approval.Check(ctx, s.workload, s.Cluster.UID)
	if is[*join.AutoApprovedError](err) {
		return &failure{reason: bootstrapv1.CertificatesAutoApprovedReason, waits: true, retry: autoApprovedRetry,
			err: fmt.Errorf("no join credential is created: %w", err)}
	}
	return err
}

// ensureCredential creates the join credential of the host, or keeps the one that is still valid. The credential is
// recorded only afterwards. So a credential that a crash left unrecorded is deleted, together with the one that is
// replaced: a host that sends another request uses neither.
func (r *Phases) ensureCredential(ctx context.Context, s *state) (err error) {
	recorded := s.Config.Status.Boot.CredentialID
	if s.wasOtherHost || record.IsRequestPending(s.Config) && record.IsCredentialUsed(s.Config) {
		recorded = "" // the other host can still have it, or it was already used to obtain a certificate
	}
	if s.credential, err = join.EnsureCredential(ctx, s.workload, s.Owner(), recorded, join.Lifetime); err != nil {
		return err
	}
	if s.credential.ID == recorded || !s.nodeExisted {
		return nil
	}
	return s.deleteOtherCredentials(ctx)
}

// deleteOtherCredentials deletes all credentials of this config except the scope's own.
func (s *state) deleteOtherCredentials(ctx context.Context) error {
	tokens := &corev1.SecretList{}
	if err := s.workload.List(ctx, tokens, client.InNamespace(metav1.NamespaceSystem),
		client.MatchingFields{"type": string(bootstrapapi.SecretTypeBootstrapToken)}); err != nil {
		return err
	}
	var errs []error
	for i := range tokens.Items {
		id := string(tokens.Items[i].Data[bootstrapapi.BootstrapTokenIDKey])
		if id != s.credential.ID && join.IsCredentialOf(&tokens.Items[i], s.Owner()) {
			errs = append(errs, join.DeleteCredential(ctx, s.workload, id))
		}
	}
	return errors.Join(errs...)
}

// joinPatience is how long the join credential of a host is renewed after its configuration was handed out. This is
// enough for images that rewrite themselves, firmware that checks memory, and two reboots of slow hardware.
const joinPatience = 2 * time.Hour

// requeueForExtension returns a result that requeues no later than the join credential must be extended.
func requeueForExtension(s *state, result ctrl.Result) ctrl.Result {
	if s.Config.Status.Boot.CredentialExpirationTime == nil {
		return result
	}
	if next := untilExtension(s.Config); result.RequeueAfter == 0 || next < result.RequeueAfter {
		result.RequeueAfter = max(next, retryInterval)
	}
	return result
}

// untilExtension returns how long it takes until the join credential must be extended: when half of its life has
// passed, or now if its expiration time is not recorded.
func untilExtension(config *bootstrapv1.PoolbootConfig) time.Duration {
	expires := config.Status.Boot.CredentialExpirationTime
	if expires == nil {
		return 0
	}
	return time.Until(expires.Add(-join.Lifetime / 2))
}

// extendCredential extends the join credential of a host when that is due, and restores it if it has expired.
func (r *Phases) extendCredential(ctx context.Context, s *state) error {
	if untilExtension(s.Config) > 0 {
		return nil
	}
	id := s.Config.Status.Boot.CredentialID
	expires, err := join.ExtendCredential(ctx, s.workload, id, join.Lifetime)
	if apierrors.IsNotFound(err) {
		expires, err = r.restoreCredential(ctx, s)
		if failed, ok := errors.AsType[*failure](err); ok && failed.reason == bootstrapv1.JoinCredentialExpiredReason {
			return r.reportExpired(ctx, s, failed)
		}
	}
	if err != nil {
		return err
	}
	r.outages.clear(s.workloadKey())
	isCurrent := false
	err = s.recordStatus(ctx, func(config *bootstrapv1.PoolbootConfig) {
		if isCurrent = record.IsCredential(config, id); isCurrent {
			config.Status.Boot.CredentialExpirationTime = &metav1.Time{Time: expires}
		}
	})
	if errors.Is(err, errDeleting) || err == nil && !isCurrent { // the host has joined in the meantime
		return errors.Join(err, join.DeleteCredential(ctx, s.workload, id))
	}
	return err
}

// A join credential expires if it cannot be extended in time: the manager was down, or the workload cluster was
// unreachable. The host that has it does not send another request. So the credential is created again, unchanged, from
// the Secret that contains the host's configuration.

// restoreCredential creates the join credential of a host again, and returns when it expires. The error is a failure if
// this is impossible. A credential that is missing before it has expired was deleted by a user and is not restored.
func (r *Phases) restoreCredential(ctx context.Context, s *state) (time.Time, error) {
	boot := s.Config.Status.Boot
	key := r.overlayKey(s)
	if s.Config.Spec.IsInline() {
		key = client.ObjectKey{Namespace: s.Config.Namespace, Name: s.Config.Status.DataSecretName}
	}
	lost := func(format string, args ...any) (time.Time, error) {
		why := fmt.Errorf(format, args...)
		return time.Time{}, s.lostCredential(fmt.Errorf("the join credential %s in Secret %s %w", boot.CredentialID, key, why))
	}
	if expires := boot.CredentialExpirationTime; expires == nil || time.Now().Before(expires.Time) {
		// Without a recorded expiration time, a later reconcile still knows that the credential was deleted and did not
		// expire.
		if err := s.recordStatus(ctx, func(config *bootstrapv1.PoolbootConfig) { config.Status.Boot.CredentialExpirationTime = nil }); err != nil {
			return time.Time{}, err
		}
		return lost("was deleted before it expired")
	}
	secret := &corev1.Secret{}
	err := r.APIReader.Get(ctx, key, secret)
	switch {
	case apierrors.IsNotFound(err) && !s.Config.Spec.IsInline():
		return lost("has expired, and the Secret does not exist")
	case err != nil:
		return time.Time{}, err
	}
	credential, err := credentialIn(secret)
	switch {
	case err != nil:
		return lost("can't be read: %w", err)
	case credential.ID != boot.CredentialID:
		return lost("is not the recorded one: the Secret contains %s", credential.ID)
	}
	if err := r.checkApproval(ctx, s); err != nil {
		return time.Time{}, err
	}
	return join.RestoreCredential(ctx, s.workload, s.Owner(), credential, join.Lifetime)
}

// credentialIn reads the join credential from a data Secret or an overlay Secret.
func credentialIn(secret *corev1.Secret) (join.Credential, error) {
	raw := secret.Data[bootstrapv1.DataSecretValueKey]
	if overlay, ok := secret.Data[bootstrapv1.OverlayKey]; ok {
		var err error
		if raw, err = ignition.PackedOverlay(overlay).Unpack(); err != nil {
			return join.Credential{}, err
		}
	}
	config, err := ignition.Parse(raw)
	if err != nil {
		return join.Credential{}, err
	}
	return join.CredentialIn(config)
}

// lostCredential returns the failure of a host whose join credential can no longer be used.
func (s *state) lostCredential(why error) error {
	if s.Config.Spec.IsInline() {
		return fault(bootstrapv1.BootFailedReason, "%w: %s", why, outlook.HowToReplace(s.Config))
	}
	return fault(bootstrapv1.JoinCredentialExpiredReason,
		"%w: if the host does not request its configuration again, %s", why, outlook.HowToReplace(s.Config))
}

// reportExpired reports that a host can no longer join with the configuration that it has, unless a kubelet has
// registered. Such a host does not send another request on its own, so a user must act. If it does send one, it gets
// another credential, and the condition is True again.
func (r *Phases) reportExpired(ctx context.Context, s *state, why error) error {
	if err := s.run(ctx, r.connect, r.readNode); err != nil {
		return err
	}
	isNew := false
	err := s.recordStatus(ctx, func(config *bootstrapv1.PoolbootConfig) {
		if need := needOf(config); need != renewal && need != expiration {
			isNew = false
			return
		}
		config.Status.Boot.CredentialExpirationTime = nil
		isNew = !record.IsCredentialLost(config) && (s.node == nil || !record.HasKubelet(s.node))
		if isNew {
			conditions.Set(config, bootPrepared(metav1.ConditionFalse, bootstrapv1.JoinCredentialExpiredReason, why.Error()))
		}
	})
	if err == nil && isNew {
		metrics.StageBlocked(s.Config, record.StageJoining, bootstrapv1.JoinCredentialExpiredReason)
		r.event(s, corev1.EventTypeWarning, bootstrapv1.JoinCredentialExpiredReason, "%s", why)
	}
	return err
}

// awaitExpiration waits until a join credential that is no longer extended expires, and reports it.
func (r *Phases) awaitExpiration(ctx context.Context, s *state) (ctrl.Result, error) {
	boot := s.Config.Status.Boot
	if boot.CredentialExpirationTime == nil {
		return ctrl.Result{}, nil
	}
	if wait := time.Until(boot.CredentialExpirationTime.Time); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	return ctrl.Result{}, r.reportExpired(ctx, s, s.lostCredential(fmt.Errorf(
		"the host has not joined within %s of receiving its configuration, and its join credential %s has expired", joinPatience, boot.CredentialID)))
}

// adopt reads back from the workload cluster what was created for a host before clusterctl move, or a restore, dropped
// the status. The host can already have its configuration, and then it only requests its certificate, which it would
// never get if its credential were not recorded again. A host that does not have its configuration requests it again
// and is prepared as usual.
func (r *Phases) adopt(ctx context.Context, s *state) (ctrl.Result, error) {
	var grant *bootstrapv1.GrantedCertificate
	err := s.run(ctx, r.connect, r.remote(func(ctx context.Context, s *state) (err error) {
		if err := r.readNode(ctx, s); err != nil || s.node == nil || string(s.node.UID) != s.Config.Status.NodeRef.UID {
			return err
		}
		var ok bool
		if s.credential, ok, err = join.FindCredential(ctx, s.workload, s.Owner()); err == nil && ok {
			grant, err = join.FindGrant(ctx, s.workload, s.credential.ID)
		}
		return err
	}))
	if err != nil {
		return ctrl.Result{}, err
	}
	if s.credential.ID == "" {
		return r.announce(ctx, s)
	}
	if err := r.findHost(ctx, s); is[*host.NotReadyError](err) {
		s.host = &host.Host{}
	} else if err != nil {
		return ctrl.Result{}, err
	}
	err = s.recordStatus(ctx, func(config *bootstrapv1.PoolbootConfig) {
		if needOf(config) != adoption {
			return
		}
		s.chooseHost(&config.Status)
		boot := &config.Status.Boot
		boot.CredentialID, boot.CredentialExpirationTime = s.credential.ID, &metav1.Time{Time: s.credential.Expires}
		if grant != nil {
			config.Status.Certificate = *grant
		}
		// A later time would be wrong, because joinPatience counts from here.
		boot.PreparedTime = &metav1.MicroTime{Time: s.node.CreationTimestamp.Time}
		conditions.Set(config, bootPrepared(metav1.ConditionTrue, bootstrapv1.BootPreparedReason,
			fmt.Sprintf("the record of this boot was lost, and Node %s and join credential %s were found in the workload cluster",
				s.node.Name, s.credential.ID)))
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	return requeueForExtension(s, ctrl.Result{}), nil
}
