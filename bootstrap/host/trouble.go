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

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/excerpt"
)

// maxTrouble is the maximum size of an error of Metal3 in a message, in bytes. Those of Ironic can have whole logs.
const maxTrouble = 1000

// Trouble returns why Metal3 does not get on with a BareMetalHost, as Metal3 reports it, and "" if it reports nothing.
// Metal3 tries again by itself. It drops the error before each try, and counts the failed ones.
func Trouble(bmh *bmov1alpha1.BareMetalHost) string {
	status := bmh.Status
	is := fmt.Sprintf("BareMetalHost %s is %s", klog.KObj(bmh), status.Provisioning.State)
	isInstalled := status.Provisioning.State == bmov1alpha1.StateProvisioned || status.Provisioning.State == bmov1alpha1.StateExternallyProvisioned
	switch text := strings.Join(strings.Fields(status.ErrorMessage), " "); {
	case text != "" || status.ErrorType != "":
		return fmt.Sprintf("%s and has a %s: %s", is, status.ErrorType, excerpt.Of(text, maxTrouble))
	case status.ErrorCount > 0 && !isInstalled:
		return fmt.Sprintf("%s after %d failed attempts", is, status.ErrorCount)
	}
	return ""
}

// MissingSecrets returns what to do about each Secret that does not exist and without which Metal3 does not deploy a
// BareMetalHost: Metal3 reports these only in the log of the baremetal-operator. A deleted Machine can leave them on a
// host that it releases. The data Secret of its PoolbootConfig is left out. needsSome reports whether the host needs
// any, because no watch reports that one is deleted. A host that is deployed needs none: Metal3 does not read them any
// more.
func MissingSecrets(ctx context.Context, c client.Reader, bmh *bmov1alpha1.BareMetalHost, dataSecret string) (missing []string, needsSome bool, err error) {
	switch bmh.Status.Provisioning.State {
	case bmov1alpha1.StateProvisioned, bmov1alpha1.StateExternallyProvisioned, bmov1alpha1.StateDeprovisioning,
		bmov1alpha1.StatePoweringOffBeforeDelete, bmov1alpha1.StateDeleting:
		return nil, false, nil
	}
	remedy := "set it to Secret " + dataSecret // without user data, Metal3 installs the host without a configuration
	network, networkField := bmh.Spec.NetworkData, "networkData"
	if network == nil { // Metal3 falls back
		network, networkField = &corev1.SecretReference{Name: bmh.Spec.PreprovisioningNetworkDataName}, "preprovisioningNetworkDataName"
	}
	for _, field := range []struct {
		name string
		ref  *corev1.SecretReference
	}{{"userData", bmh.Spec.UserData}, {"metaData", bmh.Spec.MetaData}, {networkField, network}} {
		if field.name != "userData" {
			remedy = "create the Secret, or remove spec." + field.name
		}
		isData := field.name == "userData" && field.ref != nil && field.ref.Name == dataSecret && (field.ref.Namespace == "" || field.ref.Namespace == bmh.Namespace)
		if field.ref == nil || field.ref.Name == "" || isData {
			continue
		}
		needsSome = true
		exists, err := SecretExists(ctx, c, bmh, field.ref)
		if err != nil {
			return nil, true, err
		}
		if !exists {
			missing = append(missing, fmt.Sprintf("spec.%s of BareMetalHost %s is Secret %s, which does not exist: %s", field.name, klog.KObj(bmh), field.ref.Name, remedy))
		}
	}
	return missing, needsSome, nil
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
