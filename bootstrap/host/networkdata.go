package host

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/excerpt"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/networkdata"
)

// NetworkDataError reports that the network data of a host can't be used.
type NetworkDataError struct {
	reason string
	// Why names the object, the field and the remedy, for users.
	Why string
}

func (e *NetworkDataError) Error() string { return e.Why }

// Reason returns the reason of the condition that reports the error.
func (e *NetworkDataError) Reason() string { return e.reason }

func networkDataInvalid(format string, args ...any) error {
	return &NetworkDataError{bootstrapv1.NetworkDataInvalidReason, fmt.Sprintf(format, args...)}
}

// rendererNotSet returns the error about a host with network data in a pool that does not say what applies it.
func rendererNotSet(field, pool string) error {
	return &NetworkDataError{bootstrapv1.NetworkRendererNotSetReason, fmt.Sprintf("%s has network data for the host, and MachineConfigPool %s does not say what applies it: "+
		"set its spec.hosts.networkRenderer to %s, %s or, for a host that uses DHCP, %s", field, pool,
		poolv1.NetworkRendererSystemdNetworkd, poolv1.NetworkRendererNetworkManager, poolv1.NetworkRendererNone)}
}

// NetworkDataSecret returns the name of the Secret with the network data of a host, and the field that names it. As
// in Metal3, the network data of the inspection counts if the host has no other. Both are empty without network data.
func NetworkDataSecret(bmh *bmov1alpha1.BareMetalHost) (name, field string) {
	switch ref := bmh.Spec.NetworkData; {
	case ref != nil && ref.Name != "":
		return ref.Name, "spec.networkData"
	case bmh.Spec.PreprovisioningNetworkDataName != "":
		return bmh.Spec.PreprovisioningNetworkDataName, "spec.preprovisioningNetworkDataName"
	}
	return "", ""
}

// NetworkDataIndex is the index of BareMetalHosts by the name of the Secret with their network data.
const NetworkDataIndex = "networkDataSecret"

// IndexNetworkData returns the value of a BareMetalHost in NetworkDataIndex.
func IndexNetworkData(object client.Object) []string {
	if name, _ := NetworkDataSecret(object.(*bmov1alpha1.BareMetalHost)); name != "" {
		return []string{name}
	}
	return nil
}

// networkData returns the network data of a host, or nil if it has none. It reads only Secrets in the namespace of the
// host: a user who names one in another must not get what is in it.
func networkData(ctx context.Context, secrets client.Reader, bmh *bmov1alpha1.BareMetalHost) (*networkdata.Data, string, error) {
	name, field := NetworkDataSecret(bmh)
	if name == "" {
		return nil, "", nil
	}
	where := fmt.Sprintf("%s of BareMetalHost %s", field, klog.KObj(bmh))
	if ref := bmh.Spec.NetworkData; ref != nil && ref.Namespace != "" && ref.Namespace != bmh.Namespace {
		return nil, where, networkDataInvalid("%s names a Secret in another namespace: use one in the namespace of the host", where)
	}
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		return nil, where, networkDataInvalid("%s is not the name of a Secret: correct it, or remove the field", where)
	}
	where += " is Secret " + name
	secret := &corev1.Secret{}
	if err := secrets.Get(ctx, client.ObjectKey{Namespace: bmh.Namespace, Name: name}, secret); apierrors.IsNotFound(err) {
		return nil, where, networkDataInvalid("%s, which does not exist: create the Secret, or remove the field", where)
	} else if err != nil {
		return nil, where, err
	}
	if isLeftOver(secret, bmh.Spec.ConsumerRef) {
		return nil, where, networkDataInvalid("%s, which Metal3 rendered for another Machine: remove the field", where)
	}
	document, ok := secret.Data["networkData"]
	if !ok {
		document, ok = secret.Data["value"]
	}
	switch {
	case !ok && bmh.Spec.NetworkData == nil: // it is only for the inspection, in another format
		return nil, where, nil
	case !ok:
		return nil, where, networkDataInvalid("%s, which has no key networkData: add it, or remove the field", where)
	}
	data, err := networkdata.Parse(document)
	if err != nil {
		return nil, where, networkDataInvalid("%s: %s", where, err)
	}
	return data, where, nil
}

// isLeftOver reports whether CAPM3 rendered a Secret for another Metal3Machine than the one that uses a host: the
// network data of a deleted Machine can stay on the host that it releases.
func isLeftOver(secret *corev1.Secret, consumer *corev1.ObjectReference) bool {
	owner := metav1.GetControllerOf(secret)
	return owner != nil && owner.Kind == "Metal3Data" && (consumer == nil || secret.Name != consumer.Name+"-networkdata")
}

// NetworkFiles returns the files that configure the network of a host according to its network data, in a pool. c reads
// from a cache, and secrets from the API server. The error is a *NetworkDataError if the network data can't be used.
func NetworkFiles(ctx context.Context, c, secrets client.Reader, bmh *bmov1alpha1.BareMetalHost, pool string, renderer poolv1.NetworkRenderer) ([]networkdata.File, error) {
	switch {
	case renderer == poolv1.NetworkRendererNone, renderer == "" && bmh.Spec.NetworkData == nil:
		return nil, nil
	case renderer == "":
		return nil, rendererNotSet(fmt.Sprintf("spec.networkData of BareMetalHost %s", klog.KObj(bmh)), pool)
	}
	data, where, err := networkData(ctx, secrets, bmh)
	if err != nil || data == nil {
		return nil, err
	}
	hardware, _, err := Hardware(ctx, c, bmh)
	if err != nil {
		return nil, err
	}
	if hardware != nil && len(hardware.NIC) > 0 {
		var macs []string
		for _, nic := range hardware.NIC {
			macs = append(macs, nic.MAC)
		}
		if err := data.CheckInterfaces(macs); err != nil {
			return nil, networkDataInvalid("%s: %s", where, err)
		}
	}
	if renderer == poolv1.NetworkRendererNetworkManager {
		return data.NetworkManager(), nil
	}
	return data.Networkd(), nil
}

// AllAddresses returns what Addresses returns, and the static addresses in the network data of the host.
func AllAddresses(ctx context.Context, c, secrets client.Reader, bmh *bmov1alpha1.BareMetalHost) ([]netip.Addr, error) {
	addresses, err := Addresses(ctx, c, bmh)
	if err != nil {
		return nil, err
	}
	static, err := StaticAddresses(ctx, secrets, bmh)
	return append(addresses, static...), err
}

// StaticAddresses returns the static addresses in the network data of a host. Network data that can't be used has none.
func StaticAddresses(ctx context.Context, secrets client.Reader, bmh *bmov1alpha1.BareMetalHost) ([]netip.Addr, error) {
	data, _, err := networkData(ctx, secrets, bmh)
	if _, isInvalid := errors.AsType[*NetworkDataError](err); isInvalid || err == nil && data == nil {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return data.Addresses(), nil
}

// CheckNetworkRenderer returns a *NetworkDataError if a Machine will have network data, from its Metal3Machine or the
// Metal3DataTemplate, and its pool does not say what applies it. Objects that c, which reads from a cache, has not yet
// are read from the API server.
func CheckNetworkRenderer(ctx context.Context, c, live client.Reader, m *clusterv1.Machine, pool string, renderer poolv1.NetworkRenderer) error {
	if m == nil || m.Spec.InfrastructureRef.GroupKind() != metal3MachineKind || renderer != "" {
		return nil
	}
	key := types.NamespacedName{Namespace: m.Namespace, Name: m.Spec.InfrastructureRef.Name}
	metal3Machine, err := readMetal3Machine(ctx, c, key)
	if apierrors.IsNotFound(err) {
		metal3Machine, err = readMetal3Machine(ctx, live, key)
	}
	if err != nil {
		return client.IgnoreNotFound(err) // the host waits when it requests its configuration
	}
	if name, _, _ := unstructured.NestedString(metal3Machine.Object, "spec", "networkData", "name"); name != "" {
		return rendererNotSet(fmt.Sprintf("spec.networkData of Metal3Machine %s", key), pool)
	}
	name := dataTemplateOf(metal3Machine)
	if name == "" {
		return nil
	}
	template, err := readMetal3(ctx, live, metal3Machine, "Metal3DataTemplate", name)
	if err != nil || template == nil {
		return err
	}
	if _, ok, _ := unstructured.NestedMap(template.Object, "spec", "networkData"); ok {
		return rendererNotSet(fmt.Sprintf("spec.networkData of Metal3DataTemplate %s/%s", m.Namespace, name), pool)
	}
	return nil
}

// HasDataTemplate reports whether the host of a Machine gets data from a Metal3DataTemplate. m can be nil.
func HasDataTemplate(ctx context.Context, c client.Reader, m *clusterv1.Machine) (bool, error) {
	if m == nil || m.Spec.InfrastructureRef.GroupKind() != metal3MachineKind {
		return false, nil
	}
	metal3Machine, err := readMetal3Machine(ctx, c, types.NamespacedName{Namespace: m.Namespace, Name: m.Spec.InfrastructureRef.Name})
	if err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return dataTemplateOf(metal3Machine) != "", nil
}

func dataTemplateOf(m *unstructured.Unstructured) string {
	name, _, _ := unstructured.NestedString(m.Object, "spec", "dataTemplate", "name")
	return name
}

// readMetal3 reads an object of CAPM3 in the namespace and version of a Metal3Machine. It returns nil if there is none.
func readMetal3(ctx context.Context, live client.Reader, m *unstructured.Unstructured, kind, name string) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(m.GroupVersionKind().GroupVersion().WithKind(kind))
	err := live.Get(ctx, client.ObjectKey{Namespace: m.GetNamespace(), Name: name}, object)
	switch {
	case IsAbsent(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("%s %s/%s: %w", kind, m.GetNamespace(), name, err)
	}
	return object, nil
}

// DataTrouble returns why CAPM3 has not rendered the metadata and the network data of a host, for example because an
// IPPool has no free address, or "" if nothing is known. Until then, Metal3 does not install the host. c reads from a
// cache.
func DataTrouble(ctx context.Context, c, live client.Reader, h *Host) (string, error) {
	if h.Metal3Machine.Name == "" || h.Object.Spec.Image != nil {
		return "", nil
	}
	metal3Machine, err := readMetal3Machine(ctx, c, h.Metal3Machine)
	if err != nil {
		return "", client.IgnoreNotFound(err)
	}
	template := dataTemplateOf(metal3Machine)
	if template == "" {
		return "", nil
	}
	claim, err := readMetal3(ctx, live, metal3Machine, "Metal3DataClaim", metal3Machine.GetName())
	if err != nil || claim == nil {
		return "", err
	}
	waits := fmt.Sprintf("Metal3Machine %s waits for the data of Metal3DataTemplate %s", h.Metal3Machine, excerpt.Line(template, validation.DNS1123SubdomainMaxLength))
	name, _, _ := unstructured.NestedString(claim.Object, "status", "renderedData", "name")
	if name == "" {
		return waits + ", which has not been rendered: check that the template exists", nil
	}
	data, err := readMetal3(ctx, live, metal3Machine, "Metal3Data", name)
	if err != nil || data == nil {
		return "", err
	}
	if isReady, _, _ := unstructured.NestedBool(data.Object, "status", "ready"); isReady {
		return "", nil
	}
	if message, _, _ := unstructured.NestedString(data.Object, "status", "errorMessage"); message != "" {
		return fmt.Sprintf("%s: Metal3Data %s: %s: if it stays, correct the cause and delete the Machine", waits, name, excerpt.Of(message, maxTrouble)), nil
	}
	return fmt.Sprintf("%s: see the IPClaims of Metal3Data %s", waits, name), nil
}
