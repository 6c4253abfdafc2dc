package host

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
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

// maxNetworkData limits the Secrets whose network data is remembered. unwatchedNetworkData is how long a Secret counts
// that is not as the cache of metadata has it: no watch reports a change of it.
const (
	maxNetworkData       = 20000
	unwatchedNetworkData = time.Minute
)

// NetworkData reads the network data of hosts. It reads each version of a Secret once: a pool can have thousands of
// hosts, each of which causes many decisions, and a certificate is checked against the addresses of all others.
type NetworkData struct {
	secrets, metadata client.Reader
	known             *cache.LRUExpireCache
}

// NewNetworkData returns a reader. secrets reads Secrets from the API server, and metadata the metadata of those that
// Metal3 has read, from a cache.
func NewNetworkData(secrets, metadata client.Reader, clock cache.Clock) *NetworkData {
	return &NetworkData{secrets: secrets, metadata: metadata, known: cache.NewLRUExpireCacheWithClock(maxNetworkData, clock)}
}

// networkSecret has what a version of a Secret has as network data.
type networkSecret struct {
	version string
	// exists is false if there is no Secret, and hasData if it has no key with network data.
	exists, hasData bool
	owner           *metav1.OwnerReference
	data            *networkdata.Data
	files           map[poolv1.NetworkRenderer][]networkdata.File
	// err is why the network data is not valid, or nil.
	err error
}

// secret returns what a Secret has.
func (n *NetworkData) secret(ctx context.Context, key client.ObjectKey) (networkSecret, error) {
	metadata := &metav1.PartialObjectMetadata{}
	metadata.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	if err := n.metadata.Get(ctx, key, metadata); client.IgnoreNotFound(err) != nil {
		return networkSecret{}, err
	}
	version := string(metadata.UID) + metadata.ResourceVersion
	if known, ok := n.known.Get(key); ok && known.(networkSecret).version == version {
		return known.(networkSecret), nil
	}
	secret, read, lifetime := &corev1.Secret{}, networkSecret{version: version}, unwatchedNetworkData
	if err := n.secrets.Get(ctx, key, secret); client.IgnoreNotFound(err) != nil {
		return read, err
	} else if read.exists = err == nil; read.exists {
		read.owner = metav1.GetControllerOf(secret)
		var document []byte
		if document, read.hasData = secret.Data["networkData"]; !read.hasData {
			document, read.hasData = secret.Data["value"]
		}
		if read.hasData {
			if read.data, read.err = networkdata.Parse(document); read.err == nil {
				read.files = map[poolv1.NetworkRenderer][]networkdata.File{
					poolv1.NetworkRendererSystemdNetworkd: read.data.Networkd(), poolv1.NetworkRendererNetworkManager: read.data.NetworkManager(),
				}
			}
		}
		if version == string(secret.UID)+secret.ResourceVersion {
			lifetime = 24 * time.Hour
		}
	}
	n.known.Add(key, read, lifetime)
	return read, nil
}

// of returns what the Secret of a host has, without data if the host has no network data, and where that is. It reads
// only Secrets in the namespace of the host: a user who names one in another must not get what is in it.
func (n *NetworkData) of(ctx context.Context, bmh *bmov1alpha1.BareMetalHost) (none networkSecret, where string, err error) {
	name, field := NetworkDataSecret(bmh)
	if name == "" {
		return none, "", nil
	}
	where = fmt.Sprintf("%s of BareMetalHost %s", field, klog.KObj(bmh))
	if ref := bmh.Spec.NetworkData; ref != nil && ref.Namespace != "" && ref.Namespace != bmh.Namespace {
		return none, where, networkDataInvalid("%s names a Secret in another namespace: use one in the namespace of the host", where)
	}
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		return none, where, networkDataInvalid("%s is not the name of a Secret: correct it, or remove the field", where)
	}
	where += " is Secret " + name
	secret, err := n.secret(ctx, client.ObjectKey{Namespace: bmh.Namespace, Name: name})
	switch {
	case err != nil:
		return none, where, err
	case !secret.exists:
		return none, where, networkDataInvalid("%s, which does not exist: create the Secret, or remove the field", where)
	case secret.isLeftOver(name, bmh.Spec.ConsumerRef):
		return none, where, networkDataInvalid("%s, which Metal3 rendered for another Machine: remove the field", where)
	case !secret.hasData && bmh.Spec.NetworkData == nil: // it is only for the inspection, in another format
		return none, where, nil
	case !secret.hasData:
		return none, where, networkDataInvalid("%s, which has no key networkData: add it, or remove the field", where)
	case secret.err != nil:
		return none, where, networkDataInvalid("%s: %s", where, secret.err)
	}
	return secret, where, nil
}

// isLeftOver reports whether CAPM3 rendered a Secret for another Metal3Machine than the one that uses a host: the
// network data of a deleted Machine can stay on the host that it releases.
func (s *networkSecret) isLeftOver(name string, consumer *corev1.ObjectReference) bool {
	return s.owner != nil && s.owner.Kind == "Metal3Data" && (consumer == nil || name != consumer.Name+"-networkdata")
}

// Files returns the files that configure the network of a host according to its network data, in a pool. c reads from a
// cache. The error is a *NetworkDataError if the network data can't be used.
func (n *NetworkData) Files(ctx context.Context, c client.Reader, bmh *bmov1alpha1.BareMetalHost, pool string, renderer poolv1.NetworkRenderer) ([]networkdata.File, error) {
	switch {
	case renderer == poolv1.NetworkRendererNone, renderer == "" && bmh.Spec.NetworkData == nil:
		return nil, nil
	case renderer == "":
		return nil, rendererNotSet(fmt.Sprintf("spec.networkData of BareMetalHost %s", klog.KObj(bmh)), pool)
	}
	secret, where, err := n.of(ctx, bmh)
	if err != nil || secret.data == nil {
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
		if err := secret.data.CheckInterfaces(macs); err != nil {
			return nil, networkDataInvalid("%s: %s", where, err)
		}
	}
	return secret.files[renderer], nil
}

// Addresses returns the static addresses in the network data of a host, in a pool with a renderer. There are none with
// None, with which the host uses DHCP, and in network data that can't be used.
func (n *NetworkData) Addresses(ctx context.Context, bmh *bmov1alpha1.BareMetalHost, renderer poolv1.NetworkRenderer) ([]netip.Addr, error) {
	if renderer == poolv1.NetworkRendererNone {
		return nil, nil
	}
	secret, _, err := n.of(ctx, bmh)
	if _, isInvalid := errors.AsType[*NetworkDataError](err); isInvalid || err == nil && secret.data == nil {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return secret.data.Addresses(), nil
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
