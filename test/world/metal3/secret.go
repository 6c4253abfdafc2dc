package metal3

import (
	"context"
	"fmt"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// environmentLabel is a label that the operator sets on Secrets that it reads, for its cache (pkg/secretutils of the
// Bare Metal Operator).
const environmentLabel, environment = "environment.metal3.io", "baremetal"

// stepWithCredentials reads the BMC Secret of a host, and waits for Ironic, before each step. The operator needs the
// Secret in each state in which it manages the host, also when the host is provisioned, and does without it when the
// host is being deleted (Reconcile in baremetalhost_controller.go of the operator).
func (r *hostReconciler) stepWithCredentials(ctx context.Context, host *bmov1alpha1.BareMetalHost) (time.Duration, error) {
	status := &host.Status
	state := status.Provisioning.State
	if isDeleted := !host.DeletionTimestamp.IsZero(); state != bmov1alpha1.StateNone && state != bmov1alpha1.StateUnmanaged {
		_, err := r.acquireSecret(ctx, host.CredentialsKey(), host)
		if apierrors.IsNotFound(err) && !isDeleted {
			missing := fmt.Errorf("BMC CredentialsName secret doesn't exist The BMC secret %s does not exist", host.CredentialsKey())
			return 0, &failure{kind: bmov1alpha1.RegistrationError, err: missing, retry: r.options.RetryInterval}
		}
		if err != nil && !isDeleted {
			return 0, err
		}
	}
	if r.ironicStopped() {
		return r.options.RetryInterval, nil
	}
	if status.ErrorType == bmov1alpha1.RegistrationError && host.DeletionTimestamp.IsZero() {
		clearError(host)
		return 0, nil
	}
	return r.step(ctx, host)
}

// secretData reads the user data, the metadata or the network data of a host from a Secret, with a key or the key
// value. An error is only logged and retried, as that of the Bare Metal Operator: the host stays provisioning, and its
// status does not say why (pkg/hostconfig of the operator).
func (r *hostReconciler) secretData(ctx context.Context, host *bmov1alpha1.BareMetalHost, ref *corev1.SecretReference, dataKey string) ([]byte, error) {
	if ref == nil {
		return []byte{}, nil
	}
	key := client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}
	if key.Namespace == "" {
		key.Namespace = host.Namespace
	}
	secret, err := r.acquireSecret(ctx, key, nil)
	if err != nil {
		return nil, fmt.Errorf("could not retrieve %s: failed to fetch secret: host %s: %w", dataKey, host.Name, err)
	}
	for _, name := range []string{dataKey, "value"} {
		if data, ok := secret.Data[name]; ok {
			return data, nil
		}
	}
	return nil, fmt.Errorf("could not retrieve %s: host %s: Secret %s has neither key %[1]s nor value", dataKey, host.Name, key)
}

// acquireSecret reads a Secret from the cache or, without the label of the cache, from the API server. It labels the
// Secret, and makes the owner one of its owners.
func (r *hostReconciler) acquireSecret(ctx context.Context, key client.ObjectKey, owner *bmov1alpha1.BareMetalHost) (*corev1.Secret, error) {
	secret := &corev1.Secret{}
	err := r.secrets.Get(ctx, key, secret)
	if apierrors.IsNotFound(err) {
		err = r.live.Get(ctx, key, secret)
	}
	if err != nil {
		return nil, err
	}
	before := secret.DeepCopy()
	if !metav1.HasLabel(secret.ObjectMeta, environmentLabel) {
		metav1.SetMetaDataLabel(&secret.ObjectMeta, environmentLabel, environment)
	}
	if owner != nil {
		if err := controllerutil.SetOwnerReference(owner, secret, r.Scheme()); err != nil {
			return nil, fmt.Errorf("owner of Secret %s: %w", key, err)
		}
	}
	if equality.Semantic.DeepEqual(before.ObjectMeta, secret.ObjectMeta) {
		return secret, nil
	}
	if err := r.Patch(ctx, secret, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return nil, fmt.Errorf("label and own Secret %s: %w", key, err)
	}
	return secret, nil
}
