package bootstrapdata

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/access"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/outlook"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/status"
)

// secretRetry is how soon a Secret that conflicts is checked again. The garbage collector can be about to delete it.
const secretRetry = 15 * time.Second

// reasonError is an error that a user or another controller must fix, with the reason of the condition that reports it.
// When it is fixed, a watch triggers the config.
type reasonError struct {
	reason string
	err    error
}

func (e *reasonError) Error() string  { return e.err.Error() }
func (e *reasonError) Unwrap() error  { return e.err }
func (e *reasonError) Reason() string { return e.reason }

// isDataSecretRecorded reports whether everything about the data Secret is recorded.
func isDataSecretRecorded(config *bootstrapv1.PoolbootConfig) bool {
	if config.Status.DataSecretName == "" || !ptr.Deref(config.Status.Initialization.DataSecretCreated, false) {
		return false
	}
	return config.Spec.IsInline() ||
		config.Annotations[bootstrapv1.PointerIDAnnotation] != "" && record.TokenOf(config).Exists()
}

// NeedsSecret reports whether a host can need its data Secret, and the Secret is recorded or reported as a problem.
func NeedsSecret(config *bootstrapv1.PoolbootConfig) bool {
	c := conditions.Get(config, bootstrapv1.DataSecretAvailableCondition)
	hasProblem := outlook.IsWrong(c) || c != nil && c.Reason == bootstrapv1.WaitingForSecretDeletionReason
	return !record.HasJoined(config) && (isDataSecretRecorded(config) || hasProblem)
}

// canHaveDataSecret reports whether something indicates an earlier data Secret: after clusterctl move, the Secret
// exists although the status is lost.
func canHaveDataSecret(s *state) bool {
	return s.Config.Status.DataSecretName != "" ||
		s.Config.Annotations[bootstrapv1.PointerIDAnnotation] != "" ||
		s.Machine != nil && ptr.Deref(s.Machine.Spec.Bootstrap.DataSecretName, "") == s.Config.Name
}

// presetDataSecret returns the name of a Secret that a user gave a Machine to boot with. It returns "" if the Machine
// boots with Poolboot's Secret, which has the name of the PoolbootConfig. With another Secret, Cluster API ignores the
// PoolbootConfig.
func presetDataSecret(config *bootstrapv1.PoolbootConfig, machine *clusterv1.Machine) string {
	if machine == nil || ptr.Deref(machine.Spec.Bootstrap.DataSecretName, config.Name) == config.Name {
		return ""
	}
	return *machine.Spec.Bootstrap.DataSecretName
}

// isFirstTry reports whether a pointer is next and nothing indicates that its Secret exists. Then trying to create the
// Secret shows whether it does.
func isFirstTry(s *state) bool {
	missing := conditions.Get(s.Before(), bootstrapv1.DataSecretAvailableCondition)
	return !s.Config.Spec.IsInline() && isPoolDecided(s.Config) && !canHaveDataSecret(s) &&
		(missing == nil || !outlook.IsWrong(missing) && missing.Reason != bootstrapv1.WaitingForSecretDeletionReason)
}

// mustReadDataSecret reports whether the recorded data Secret must be read live: something was wrong with it before, or
// the cache does not contain it.
func (r *Phases) mustReadDataSecret(ctx context.Context, s *state) (bool, error) {
	if record.HasJoined(s.Config) {
		return false, nil
	}
	if outlook.IsWrong(conditions.Get(s.Before(), bootstrapv1.DataSecretAvailableCondition)) {
		return true, nil
	}
	err := r.Secrets.Get(ctx, client.ObjectKey{Namespace: s.Config.Namespace, Name: s.Config.Status.DataSecretName}, &corev1.Secret{})
	return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
}

// ensureDataSecret uses the existing data Secret, or creates it. A host can have its content, so the Secret is only
// created, and changed only if a user requests that (rotateToken). After a crash between any two writes, the token is
// read back and not generated again.
func (r *Phases) ensureDataSecret(ctx context.Context, s *state, obstacle *metav1.Condition) (ctrl.Result, error) {
	key := client.ObjectKeyFromObject(s.Config)
	if s.inline != nil {
		return r.adopt(ctx, s, s.inline)
	}
	secret := &corev1.Secret{}
	if !isFirstTry(s) {
		err := r.APIReader.Get(ctx, key, secret)
		if err == nil {
			return r.adopt(ctx, s, secret)
		}
		if !apierrors.IsNotFound(err) {
			return ctrl.Result{}, err
		}
	}
	switch {
	case record.HasJoined(s.Config):
		recordDataSecret(s.Config, key.Name)
		return ctrl.Result{}, nil
	case canHaveDataSecret(s):
		// A host can have the content of the Secret, and a new Secret would have another token.
		conditions.Set(s.Config, dataSecretMissing(bootstrapv1.DataSecretFailedReason,
			"Secret %s with the bootstrap data does not exist: %s", key.Name, restoreSecret(s.Config)))
		return ctrl.Result{}, nil
	case obstacle != nil:
		conditions.Set(s.Config, *obstacle)
		return ctrl.Result{}, nil
	case !isPoolDecided(s.Config):
		undecided := conditions.Get(s.Config, bootstrapv1.PoolDecidedCondition)
		conditions.Set(s.Config, dataSecretMissing(undecided.Reason, "the pool is not decided: %s", undecided.Message))
		return ctrl.Result{}, nil
	}
	secret, err := r.newDataSecret(ctx, s)
	if err == nil {
		err = r.Client.Create(ctx, secret)
	}
	reason := outlook.ReasonOf(err)
	switch {
	case err == nil: // it is adopted below
	case apierrors.IsAlreadyExists(err) && s.Config.Spec.IsInline():
		return ctrl.Result{RequeueAfter: status.ConflictRetry}, nil // it can be for another pool than the one just decided
	case apierrors.IsAlreadyExists(err):
		if err := r.APIReader.Get(ctx, key, secret); err != nil {
			return ctrl.Result{}, err
		}
	case reason != "":
		conditions.Set(s.Config, dataSecretMissing(reason, "%s", err))
		return ctrl.Result{RequeueAfter: retryInterval(reason)}, nil
	default:
		conditions.Set(s.Config, dataSecretMissing(bootstrapv1.DataSecretFailedReason, "create Secret %s: %s", key.Name, err))
		return ctrl.Result{}, err
	}
	return r.adopt(ctx, s, secret)
}

// retryInterval returns how soon to retry if no watch reports that the cause is resolved.
func retryInterval(reason string) time.Duration {
	switch reason {
	case bootstrapv1.WorkloadClusterUnreachableReason, bootstrapv1.KubeconfigInvalidReason, bootstrapv1.CertificatesAutoApprovedReason:
		return unreachableRetry
	case bootstrapv1.NetworkRendererNotSetReason: // pools are watched, and data templates are not
		return time.Minute
	}
	return 0
}

// newDataSecret returns a new data Secret, with the pointer or with the whole configuration. The host is powered on
// once it exists.
func (r *Phases) newDataSecret(ctx context.Context, s *state) (*corev1.Secret, error) {
	if p, err := pool.OfRole(s.pools, s.Config.Status.PoolRole); err == nil {
		if err := host.CheckNetworkRenderer(ctx, r.Client, r.APIReader, s.Machine, p.Name, pool.NetworkRendererOf(p, s.pools)); err != nil {
			return nil, err
		}
	}
	data := r.pointer
	if s.Config.Spec.IsInline() {
		data = r.inline
	}
	value, annotations, err := data(ctx, s)
	if err != nil {
		return nil, err
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name:        s.Config.Name,
			Namespace:   s.Config.Namespace,
			Labels:      map[string]string{clusterv1.ClusterNameLabel: s.Cluster.Name},
			Annotations: annotations,
		},
		Type: clusterv1.ClusterSecretType,
		Data: map[string][]byte{bootstrapv1.DataSecretValueKey: value, bootstrapv1.DataSecretFormatKey: []byte(bootstrapv1.DataSecretFormatIgnition)},
	}
	return secret, controllerutil.SetControllerReference(s.Config, secret, r.Client.Scheme())
}

// pointer returns the Ignition that directs the host to the config server, with a new token.
func (r *Phases) pointer(_ context.Context, s *state) ([]byte, map[string]string, error) {
	id := s.Config.UID
	if s.Machine != nil {
		id = s.Machine.UID
	}
	pointer, err := r.newPointer(s, s.Config.Status.PoolRole, string(id))
	if err != nil {
		return nil, nil, err
	}
	value, err := pointer.Marshal()
	return value, nil, err
}

func (r *Phases) newPointer(s *state, role, id string) (ignition.Pointer, error) {
	ca, err := r.ServerCA()
	if err != nil {
		return ignition.Pointer{}, fmt.Errorf("CA of the config server: %w", err)
	}
	address := access.Address{Role: role, NamespacedName: client.ObjectKeyFromObject(s.Config), PointerID: id}
	return ignition.Pointer{URL: address.URL(r.ServerURL), Token: access.NewToken(), CA: ca}, nil
}

// adopt records what the data Secret contains.
func (r *Phases) adopt(ctx context.Context, s *state, secret *corev1.Secret) (ctrl.Result, error) {
	if willBeDeleted(secret, s.Config) {
		conditions.Set(s.Config, dataSecretMissing(bootstrapv1.WaitingForSecretDeletionReason,
			"Secret %s belongs to an earlier PoolbootConfig with this name: waiting for the garbage collector to delete it", secret.Name))
		return ctrl.Result{RequeueAfter: secretRetry}, nil
	}
	if !metav1.IsControlledBy(secret, s.Config) {
		conditions.Set(s.Config, dataSecretMissing(bootstrapv1.DataSecretNotOwnedReason,
			"Secret %s exists and is not controlled by this PoolbootConfig: delete it, or %s", secret.Name, registration.Rename(s.Config)))
		return ctrl.Result{RequeueAfter: secretRetry}, nil
	}
	// The agent of an inline host has the pointer ID too.
	annotations := map[string]string{bootstrapv1.PointerIDAnnotation: secret.Annotations[bootstrapv1.PointerIDAnnotation]}
	if s.Config.Spec.IsInline() {
		recordInline(s.Config, secret)
	} else {
		var err error
		if annotations, err = pointerAnnotations(s.Config, secret); err != nil {
			conditions.Set(s.Config, dataSecretMissing(bootstrapv1.DataSecretFailedReason,
				"Secret %s does not contain what Poolboot wrote (%s): %s", secret.Name, err, restoreSecret(s.Config)))
			return ctrl.Result{}, nil
		}
	}
	if err := s.patchAnnotations(ctx, annotations); err != nil {
		return ctrl.Result{}, err
	}
	recordDataSecret(s.Config, secret.Name)
	return ctrl.Result{}, nil
}

// willBeDeleted reports whether a Secret is going to be deleted: it is being deleted, or its owner is an earlier
// PoolbootConfig with the same name, so the garbage collector deletes it.
func willBeDeleted(secret *corev1.Secret, config *bootstrapv1.PoolbootConfig) bool {
	owner := metav1.GetControllerOf(secret)
	return !secret.DeletionTimestamp.IsZero() ||
		owner != nil && owner.Kind == "PoolbootConfig" && owner.Name == config.Name && owner.UID != config.UID
}

func recordDataSecret(config *bootstrapv1.PoolbootConfig, name string) {
	config.Status.DataSecretName = name
	config.Status.Initialization.DataSecretCreated = ptr.To(true)
	conditions.Set(config, dataSecretCondition(metav1.ConditionTrue, bootstrapv1.DataSecretCreatedReason,
		"Secret %s contains the bootstrap data", name))
}

// restoreSecret returns the remedy for a data Secret that is missing or was changed.
func restoreSecret(config *bootstrapv1.PoolbootConfig) string {
	if !record.IsMachineless(config) {
		return "restore it, or " + outlook.HowToReplace(config)
	}
	return fmt.Sprintf("restore it, or delete PoolbootConfig %s: the next PoolbootConfig of the host gets another Secret", config.Name)
}
