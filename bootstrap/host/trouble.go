package host

import (
	"context"
	"fmt"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// maxTrouble is the maximum size of an error of Metal3 in a message, in runes. Those of Ironic can have whole logs.
const maxTrouble = 1000

// Trouble returns why Metal3 does not get on with a BareMetalHost, as Metal3 reports it, and "" if it reports nothing.
// Metal3 tries again by itself. It drops the error before each try, and counts the failed ones.
func Trouble(bmh *bmov1alpha1.BareMetalHost) string {
	status := bmh.Status
	is := fmt.Sprintf("BareMetalHost %s is %s", klog.KObj(bmh), status.Provisioning.State)
	isInstalled := status.Provisioning.State == bmov1alpha1.StateProvisioned || status.Provisioning.State == bmov1alpha1.StateExternallyProvisioned
	switch text := []rune(strings.Join(strings.Fields(status.ErrorMessage), " ")); {
	case len(text) == 0 && status.ErrorType == "" && (status.ErrorCount == 0 || isInstalled):
		return ""
	case len(text) == 0 && status.ErrorType == "":
		return fmt.Sprintf("%s after %d failed attempts", is, status.ErrorCount)
	case len(text) > maxTrouble:
		return fmt.Sprintf("%s and has a %s: %s…", is, status.ErrorType, string(text[:maxTrouble]))
	default:
		return fmt.Sprintf("%s and has a %s: %s", is, status.ErrorType, string(text))
	}
}

// DeploymentSecrets returns the Secrets without which Metal3 does not deploy a BareMetalHost, by the fields that name
// them, except the data Secret of its PoolbootConfig. It returns none for a host that is deployed, because Metal3 does
// not read them any more. A deleted Machine can leave them on a host that it releases.
func DeploymentSecrets(bmh *bmov1alpha1.BareMetalHost, dataSecret string) map[string]*corev1.SecretReference {
	switch bmh.Status.Provisioning.State {
	case bmov1alpha1.StateProvisioned, bmov1alpha1.StateExternallyProvisioned, bmov1alpha1.StateDeprovisioning,
		bmov1alpha1.StatePoweringOffBeforeDelete, bmov1alpha1.StateDeleting:
		return nil
	}
	secrets := map[string]*corev1.SecretReference{}
	for field, ref := range map[string]*corev1.SecretReference{
		"spec.userData": bmh.Spec.UserData, "spec.metaData": bmh.Spec.MetaData, "spec.networkData": bmh.Spec.NetworkData,
	} {
		isData := field == "spec.userData" && ref != nil && ref.Name == dataSecret && (ref.Namespace == "" || ref.Namespace == bmh.Namespace)
		if ref != nil && ref.Name != "" && !isData {
			secrets[field] = ref
		}
	}
	return secrets
}

// MissingSecrets returns what to do about each of the DeploymentSecrets that does not exist, in the order of the
// fields. Metal3 reports these only in the log of the baremetal-operator.
func MissingSecrets(ctx context.Context, c client.Reader, bmh *bmov1alpha1.BareMetalHost, dataSecret string) (missing []string, err error) {
	secrets := DeploymentSecrets(bmh, dataSecret)
	for _, field := range []string{"spec.userData", "spec.metaData", "spec.networkData"} {
		ref := secrets[field]
		if ref == nil {
			continue
		}
		exists, err := SecretExists(ctx, c, bmh, ref)
		if err != nil {
			return nil, err
		}
		remedy := "create the Secret, or remove " + field
		if field == "spec.userData" { // without it, Metal3 installs the host without a configuration
			remedy = "set it to Secret " + dataSecret
		}
		if !exists {
			missing = append(missing, fmt.Sprintf("%s of BareMetalHost %s is Secret %s, which does not exist: %s", field, klog.KObj(bmh), ref.Name, remedy))
		}
	}
	return missing, nil
}

// SecretExists reports whether a Secret exists that the spec of a BareMetalHost names. It reads only metadata. It looks
// only into the namespace of the host, and takes others to exist: a user who names one must not learn what is in them.
func SecretExists(ctx context.Context, c client.Reader, bmh *bmov1alpha1.BareMetalHost, ref *corev1.SecretReference) (bool, error) {
	if ref.Namespace != "" && ref.Namespace != bmh.Namespace {
		return true, nil
	}
	secret := &metav1.PartialObjectMetadata{}
	secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	err := c.Get(ctx, client.ObjectKey{Namespace: bmh.Namespace, Name: ref.Name}, secret)
	return err == nil, client.IgnoreNotFound(err)
}
