package bootstrapdata

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/access"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/outlook"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/metrics"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/scope"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/status"
)

// ownerOf returns the owner of a config's token.
func ownerOf(config *bootstrapv1.PoolbootConfig) access.Owner {
	return access.Config(client.ObjectKeyFromObject(config), config.UID)
}

// isTokenBound reports whether the recorded token of a config is bound to it, and not to an earlier object with the
// same name.
func isTokenBound(config *bootstrapv1.PoolbootConfig) bool {
	recorded := record.TokenOf(config)
	return record.HasJoined(config) || recorded.Hash != "" && recorded.UID == config.UID
}

// isRecordedToken reports whether a token is the recorded token of a config, expired or not. After clusterctl move or a
// restore from a backup, the recorded token is still bound to the earlier object with the same name.
func isRecordedToken(config *bootstrapv1.PoolbootConfig, token string) bool {
	recorded := record.TokenOf(config)
	return access.Config(client.ObjectKeyFromObject(config), recorded.UID).Accepts(recorded.Hash, token)
}

// pointerAnnotations returns the annotations by which the config server recognizes the host, read back from the
// pointer. The recorded state stays: a revoked token stays revoked, and an expired token stays expired when it is bound
// again.
func pointerAnnotations(config *bootstrapv1.PoolbootConfig, secret *corev1.Secret) (map[string]string, error) {
	pointer, address, err := parsePointer(config, secret)
	if err != nil {
		return nil, err
	}
	annotations := map[string]string{bootstrapv1.PointerIDAnnotation: address.PointerID}
	switch recorded := record.TokenOf(config); {
	case record.HasJoined(config):
		return annotations, nil
	case recorded.Hash == "":
		maps.Copy(annotations, ownerOf(config).Annotations(pointer.Token))
		return annotations, nil
	case isRecordedToken(config, pointer.Token):
		maps.Copy(annotations, ownerOf(config).Rebind(recorded, pointer.Token))
		return annotations, nil
	case record.IsRotationRequested(config):
		return annotations, nil
	}
	return nil, errors.New("its token is not the recorded one, so the config server would refuse the host")
}

// parsePointer reads the pointer in a data Secret. It returns an error if the pointer does not direct the host to this
// config.
func parsePointer(config *bootstrapv1.PoolbootConfig, secret *corev1.Secret) (ignition.Pointer, access.Address, error) {
	pointer, err := ignition.ParsePointer(secret.Data[bootstrapv1.DataSecretValueKey])
	if err != nil {
		return pointer, access.Address{}, err
	}
	address, err := access.ParseURL(pointer.URL)
	if key := client.ObjectKeyFromObject(config); err == nil && address.NamespacedName != key {
		err = fmt.Errorf("its URL is that of PoolbootConfig %s, not of %s: restore objects with their original namespace and name", address.NamespacedName, key)
	}
	return pointer, address, err
}

// rotateToken writes a new token to the data Secret and then records its hash, which revokes the old token. Until the
// hash is recorded, the config server answers 503 to unknown tokens, so a crash in between harms no host. The next try
// finds a token in the Secret that differs from the recorded one, and only records it.
func (r *Phases) rotateToken(ctx context.Context, s *state) error {
	if why := notRotatable(s.Config); why != "" {
		return r.refuseRotation(ctx, s, why)
	}
	secret := &corev1.Secret{}
	err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(s.Config), secret)
	switch {
	case apierrors.IsNotFound(err):
		return r.refuseRotation(ctx, s, fmt.Sprintf("Secret %s does not exist", s.Config.Name))
	case err != nil:
		return err
	case !metav1.IsControlledBy(secret, s.Config):
		return r.refuseRotation(ctx, s, fmt.Sprintf("Secret %s is not controlled by this PoolbootConfig", s.Config.Name))
	}
	pointer, address, err := parsePointer(s.Config, secret)
	if err != nil {
		return r.refuseRotation(ctx, s, fmt.Sprintf("Secret %s does not contain what Poolboot wrote (%s)", s.Config.Name, err))
	}
	if isRecordedToken(s.Config, pointer.Token) {
		if pointer, err = r.newPointer(s, rotatedRole(s.Config, address.Role), address.PointerID); err != nil {
			return err
		}
		if err := r.replacePointer(ctx, secret, pointer); err != nil {
			return err
		}
	}
	annotations := ownerOf(s.Config).Annotations(pointer.Token)
	annotations[bootstrapv1.PointerIDAnnotation] = address.PointerID
	annotations[bootstrapv1.TokenRotatedAnnotation] = time.Now().UTC().Format(time.RFC3339)
	annotations[bootstrapv1.RotateTokenAnnotation], annotations[bootstrapv1.TokenStateAnnotation] = "", ""
	if err := s.patchAnnotations(ctx, annotations); err != nil {
		return err
	}
	metrics.TokenEvent(s.Config, bootstrapv1.EventTokenRotated)
	r.event(s.Config, corev1.EventTypeNormal, bootstrapv1.EventTokenRotated, "RotateToken",
		"Secret %s contains a new token, and the old token is no longer valid: the host gets the new token when Metal3 provisions it again", secret.Name)
	return nil
}

// rotatedRole returns the pool role in the URL of a rotated pointer. While no pool is decided, for example because the
// labels name two, it is the role in the previous URL: the old token must be revoked without waiting for a user, and
// the role in the URL is only information for users. The config server uses the recorded pool, but it answers 404 to a
// URL without a role, which would end the boot.
func rotatedRole(config *bootstrapv1.PoolbootConfig, before string) string {
	return cmp.Or(config.Status.PoolRole, before, poolv1.RoleWorker)
}

// notRotatable returns why the token of a config cannot be rotated, or "" if it can.
func notRotatable(config *bootstrapv1.PoolbootConfig) string {
	switch {
	case record.IsEnrolled(config):
		return "the host enrolled with a token: " + outlook.HowToRotate(config)
	case record.IsAdopted(config):
		return outlook.HowToRotate(config)
	case config.Spec.IsInline():
		return "an inline data Secret has no token: to revoke its join credential, " + outlook.HowToReplace(config)
	case record.HasJoined(config):
		return "the token was revoked when the Node was Ready: to boot the host again, " + outlook.HowToReplace(config)
	}
	return ""
}

// refuseRotation removes the request for a rotation, and reports the reason in an event.
func (r *Phases) refuseRotation(ctx context.Context, s *state, why string) error {
	if err := s.patchAnnotations(ctx, map[string]string{bootstrapv1.RotateTokenAnnotation: ""}); err != nil {
		return err
	}
	r.event(s.Config, corev1.EventTypeWarning, bootstrapv1.EventTokenNotRotated, "RotateToken", "%s", why)
	return nil
}

// replacePointer writes a pointer to a data Secret, unless another client has changed the Secret in the meantime.
func (r *Phases) replacePointer(ctx context.Context, secret *corev1.Secret, pointer ignition.Pointer) error {
	value, err := pointer.Marshal()
	if err != nil {
		return err
	}
	before := secret.DeepCopy()
	secret.Data[bootstrapv1.DataSecretValueKey] = value
	return r.Client.Patch(ctx, secret, status.Locked(before))
}

// guardTokenAction is the action in the events about the use of a token.
const guardTokenAction = "GuardToken"

// guardToken expires the token of a host that does not join in time after it was provisioned, and records the addresses
// from which the token was used and to which it is bound.
func (r *Phases) guardToken(ctx context.Context, s *state) (result ctrl.Result, err error) {
	if s.Cluster == nil {
		return ctrl.Result{}, nil
	}
	if hasToken(s.Config) {
		if result, err = r.expire(ctx, s); err != nil {
			return result, err
		}
	}
	addresses, err := r.setAddresses(ctx, s)
	s.Report(func(_, after *bootstrapv1.PoolbootConfig) { r.reportAddresses(after, addresses) })
	return result, err
}

// hasToken reports whether a PoolbootConfig has its own token. The token of an enrolled host is that of its Enrollment.
func hasToken(config *bootstrapv1.PoolbootConfig) bool {
	return config.DeletionTimestamp.IsZero() && record.TokenOf(config).Hash != "" &&
		config.Spec.Enrolled() == nil
}

// expire expires a token whose lifetime is over, or returns when to check it again.
func (r *Phases) expire(ctx context.Context, s *state) (ctrl.Result, error) {
	expiration, err := r.expirationTime(ctx, r.Client, s)
	if err != nil || expiration.IsZero() {
		return ctrl.Result{}, err
	}
	if remaining := time.Until(expiration); remaining > 0 {
		return ctrl.Result{RequeueAfter: remaining}, nil
	}
	current := &bootstrapv1.PoolbootConfig{}
	if err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(s.Config), current); err != nil || !hasToken(current) {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	live := &state{Scope: &scope.Scope{Config: current, Machine: s.Machine}}
	if expiration, err := r.expirationTime(ctx, r.APIReader, live); err != nil || expiration.IsZero() || time.Now().Before(expiration) {
		return ctrl.Result{}, err // the cache was stale: its next event triggers a reconcile
	}
	before := current.DeepCopy()
	record.ExpireToken(current)
	if err := r.Client.Patch(ctx, current, status.Locked(before)); err != nil {
		return ctrl.Result{}, err
	}
	s.Wrote(current)
	return ctrl.Result{}, nil
}

// expirationTime returns when a token expires. It returns zero if the token has expired, has no lifetime or is about to
// be rotated, or if its host is not provisioned.
func (r *Phases) expirationTime(ctx context.Context, c client.Reader, s *state) (time.Time, error) {
	if r.TokenLifetime == 0 || record.IsTokenExpired(s.Config) || record.IsRotationRequested(s.Config) {
		return time.Time{}, nil
	}
	bmh, err := s.Host(ctx, c)
	if err != nil || bmh == nil || bmh.State != bmov1alpha1.StateProvisioned || bmh.Object.Status.OperationHistory.Provision.End.IsZero() {
		return time.Time{}, err
	}
	since := bmh.Object.Status.OperationHistory.Provision.End.Time
	if rotated, err := time.Parse(time.RFC3339, s.Config.Annotations[bootstrapv1.TokenRotatedAnnotation]); err == nil && rotated.After(since) {
		since = rotated
	}
	return since.Add(r.TokenLifetime), nil
}

// setTokenUsable sets the condition TokenUsable. A token that has never been unusable has none.
func (r *Phases) setTokenUsable(config *bootstrapv1.PoolbootConfig) {
	if !hasToken(config) {
		return
	}
	usable := metav1.Condition{Type: bootstrapv1.TokenUsableCondition, Status: metav1.ConditionTrue, Reason: bootstrapv1.TokenLiveReason}
	if record.IsTokenExpired(config) {
		usable.Status, usable.Reason = metav1.ConditionFalse, bootstrapv1.TokenExpiredReason
		usable.Message = fmt.Sprintf("the host did not join within %s after it was provisioned, so its token is no longer valid: %s", r.TokenLifetime, outlook.HowToRotate(config))
	}
	current := conditions.Get(config, usable.Type)
	if current == nil && usable.Status == metav1.ConditionFalse || current != nil && current.Status != usable.Status {
		conditions.Set(config, usable)
	}
}

// reportUsable reports by an event that a token can no longer be used.
func (r *Phases) reportUsable(before, after *bootstrapv1.PoolbootConfig) {
	if conditions.IsFalse(after, bootstrapv1.TokenUsableCondition) && !conditions.IsFalse(before, bootstrapv1.TokenUsableCondition) {
		usable := conditions.Get(after, bootstrapv1.TokenUsableCondition)
		metrics.TokenEvent(after, usable.Reason)
		r.event(after, corev1.EventTypeWarning, usable.Reason, guardTokenAction, "%s", usable.Message)
	}
}

// pointerIndex is the index of PoolbootConfigs by the id in their pointer.
const pointerIndex = "metadata.annotations.pointer-id"

// maxDuplicates is the maximum number of remembered pairs. A pair that is evicted is reported again.
const maxDuplicates = 10000

// pointerOf returns the values of pointerIndex for a PoolbootConfig. All adopted hosts have the same id, which
// identifies none of them.
func pointerOf(config client.Object) []string {
	if id := config.GetAnnotations()[bootstrapv1.PointerIDAnnotation]; id != "" && id != bootstrapv1.AdoptedPointerID {
		return []string{id}
	}
	return nil
}

// ReportDuplicates reports once that two PoolbootConfigs have the same pointer id: one of them is a copy. It pairs each
// only with the oldest, so the number of events is linear. A copy does no harm: hosts send namespace and name, and a
// copied hash accepts no token.
func (r *Phases) ReportDuplicates(ctx context.Context, config *bootstrapv1.PoolbootConfig) error {
	ids := pointerOf(config)
	if ids == nil || !config.DeletionTimestamp.IsZero() {
		return nil
	}
	same := &bootstrapv1.PoolbootConfigList{}
	if err := r.Client.List(ctx, same, client.MatchingFields{pointerIndex: ids[0]}, client.UnsafeDisableDeepCopy); err != nil || len(same.Items) < 2 {
		return err
	}
	oldest := slices.MinFunc(same.Items, func(a, b bootstrapv1.PoolbootConfig) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.UID, b.UID))
	})
	reported := [2]types.UID{oldest.UID, config.UID}
	if _, ok := r.duplicates.Get(reported); ok || oldest.UID == config.UID {
		return nil
	}
	r.duplicates.Add(reported, nil)
	for _, pair := range [][2]*bootstrapv1.PoolbootConfig{{config, &oldest}, {&oldest, config}} {
		r.Recorder.Eventf(pair[0], pair[1], corev1.EventTypeWarning, bootstrapv1.EventPointerIDNotUnique, guardTokenAction,
			"PoolbootConfig %s has the same pointer id in its annotation %s. The config server serves only the one in the URL in the user data of the host; "+
				"the other one is a copy: delete it", client.ObjectKeyFromObject(pair[1]), bootstrapv1.PointerIDAnnotation)
	}
	return nil
}
