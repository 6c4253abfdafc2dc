package poolbootconfig

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
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/outlook"
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

// canHaveDataSecret reports whether something indicates an earlier data Secret: after clusterctl move, the Secret
// exists although the status is lost.
func canHaveDataSecret(s *scope) bool {
	return s.config.Status.DataSecretName != "" ||
		s.config.Annotations[bootstrapv1.PointerIDAnnotation] != "" ||
		s.machine != nil && ptr.Deref(s.machine.Spec.Bootstrap.DataSecretName, "") == s.config.Name
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
func isFirstTry(s *scope) bool {
	missing := conditions.Get(s.before, bootstrapv1.DataSecretAvailableCondition)
	return !s.config.Spec.IsInline() && isPoolDecided(s.config) && !canHaveDataSecret(s) &&
		(missing == nil || !outlook.IsWrong(missing) && missing.Reason != bootstrapv1.WaitingForSecretDeletionReason)
}

// mustReadDataSecret reports whether the recorded data Secret must be read live: something was wrong with it before, or
// the cache does not contain it.
func (r *Reconciler) mustReadDataSecret(ctx context.Context, s *scope) (bool, error) {
	if record.HasJoined(s.config) {
		return false, nil
	}
	if outlook.IsWrong(conditions.Get(s.before, bootstrapv1.DataSecretAvailableCondition)) {
		return true, nil
	}
	err := r.Secrets.Get(ctx, client.ObjectKey{Namespace: s.config.Namespace, Name: s.config.Status.DataSecretName}, &corev1.Secret{})
	return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
}

// ensureDataSecret uses the existing data Secret, or creates it. A host can have its content, so the Secret is only
// created, and changed only if a user requests that (rotateToken). After a crash between any two writes, the token is
// read back and not generated again.
func (r *Reconciler) ensureDataSecret(ctx context.Context, s *scope, obstacle *metav1.Condition) (ctrl.Result, error) {
	key := client.ObjectKeyFromObject(s.config)
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
	case record.HasJoined(s.config):
		recordDataSecret(s.config, key.Name)
		return ctrl.Result{}, nil
	case canHaveDataSecret(s):
		// A host can have the content of the Secret, and a new Secret would have another token.
		conditions.Set(s.config, dataSecretMissing(bootstrapv1.DataSecretFailedReason,
			"Secret %s with the bootstrap data does not exist: %s", key.Name, restoreSecret(s.config)))
		return ctrl.Result{}, nil
	case obstacle != nil:
		conditions.Set(s.config, *obstacle)
		return ctrl.Result{}, nil
	case !isPoolDecided(s.config):
		undecided := conditions.Get(s.config, bootstrapv1.PoolDecidedCondition)
		conditions.Set(s.config, dataSecretMissing(undecided.Reason, "the pool is not decided: %s", undecided.Message))
		return ctrl.Result{}, nil
	}
	secret, err := r.newDataSecret(ctx, s)
	if err == nil {
		err = r.Client.Create(ctx, secret)
	}
	reason := outlook.ReasonOf(err)
	switch {
	case err == nil: // it is adopted below
	case apierrors.IsAlreadyExists(err) && s.config.Spec.IsInline():
		return ctrl.Result{RequeueAfter: status.ConflictRetry}, nil // it can be for another pool than the one just decided
	case apierrors.IsAlreadyExists(err):
		if err := r.APIReader.Get(ctx, key, secret); err != nil {
			return ctrl.Result{}, err
		}
	case reason != "":
		conditions.Set(s.config, dataSecretMissing(reason, "%s", err))
		return ctrl.Result{RequeueAfter: retryInterval(reason)}, nil
	default:
		conditions.Set(s.config, dataSecretMissing(bootstrapv1.DataSecretFailedReason, "create Secret %s: %s", key.Name, err))
		return ctrl.Result{}, err
	}
	return r.adopt(ctx, s, secret)
}

// retryInterval returns how soon to retry if no watch reports that the cause is resolved, because the cause is in the
// workload cluster or in the connection to it.
func retryInterval(reason string) time.Duration {
	switch reason {
	case bootstrapv1.WorkloadClusterUnreachableReason, bootstrapv1.KubeconfigInvalidReason, bootstrapv1.CertificatesAutoApprovedReason:
		return unreachableRetry
	}
	return 0
}

// newDataSecret returns a new data Secret, with the pointer or with the whole configuration.
func (r *Reconciler) newDataSecret(ctx context.Context, s *scope) (*corev1.Secret, error) {
	data := r.pointer
	if s.config.Spec.IsInline() {
		data = r.inline
	}
	value, annotations, err := data(ctx, s)
	if err != nil {
		return nil, err
	}
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Name:        s.config.Name,
			Namespace:   s.config.Namespace,
			Labels:      map[string]string{clusterv1.ClusterNameLabel: s.cluster.Name},
			Annotations: annotations,
		},
		Type: clusterv1.ClusterSecretType,
		Data: map[string][]byte{bootstrapv1.DataSecretValueKey: value, bootstrapv1.DataSecretFormatKey: []byte(bootstrapv1.DataSecretFormatIgnition)},
	}
	return secret, controllerutil.SetControllerReference(s.config, secret, r.Client.Scheme())
}

// pointer returns the Ignition that directs the host to the config server, with a new token.
func (r *Reconciler) pointer(_ context.Context, s *scope) ([]byte, map[string]string, error) {
	id := s.config.UID
	if s.machine != nil {
		id = s.machine.UID
	}
	pointer, err := r.newPointer(s, s.config.Status.PoolRole, string(id))
	if err != nil {
		return nil, nil, err
	}
	value, err := pointer.Marshal()
	return value, nil, err
}

func (r *Reconciler) newPointer(s *scope, role, id string) (ignition.Pointer, error) {
	ca, err := r.ServerCA()
	if err != nil {
		return ignition.Pointer{}, fmt.Errorf("CA of the config server: %w", err)
	}
	address := access.Address{Role: role, NamespacedName: client.ObjectKeyFromObject(s.config), PointerID: id}
	return ignition.Pointer{URL: address.URL(r.ServerURL), Token: access.NewToken(), CA: ca}, nil
}

// adopt records what the data Secret contains.
func (r *Reconciler) adopt(ctx context.Context, s *scope, secret *corev1.Secret) (ctrl.Result, error) {
	if willBeDeleted(secret, s.config) {
		conditions.Set(s.config, dataSecretMissing(bootstrapv1.WaitingForSecretDeletionReason,
			"Secret %s belongs to an earlier PoolbootConfig with this name: waiting for the garbage collector to delete it", secret.Name))
		return ctrl.Result{RequeueAfter: secretRetry}, nil
	}
	if !metav1.IsControlledBy(secret, s.config) {
		conditions.Set(s.config, dataSecretMissing(bootstrapv1.DataSecretNotOwnedReason,
			"Secret %s exists and is not controlled by this PoolbootConfig: delete it, or %s", secret.Name, registration.Rename(s.config)))
		return ctrl.Result{RequeueAfter: secretRetry}, nil
	}
	if s.config.Spec.IsInline() {
		recordInline(s.config, secret)
	} else {
		annotations, err := pointerAnnotations(s.config, secret)
		if err != nil {
			conditions.Set(s.config, dataSecretMissing(bootstrapv1.DataSecretFailedReason,
				"Secret %s does not contain what Poolboot wrote (%s): %s", secret.Name, err, restoreSecret(s.config)))
			return ctrl.Result{}, nil
		}
		if err := r.patchAnnotations(ctx, s, annotations); err != nil {
			return ctrl.Result{}, err
		}
	}
	recordDataSecret(s.config, secret.Name)
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
