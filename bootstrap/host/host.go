// Package host finds the bare metal host of a Machine: from the Machine to its Metal3Machine to its BareMetalHost. It
// reads with the client of the caller, and writes nothing. It reads Metal3Machines as unstructured objects, by the
// contract of Cluster API. No other package of Poolboot knows that kind.
package host

import (
	"context"
	"fmt"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/external"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
)

// Annotation is the annotation of a Metal3Machine that names its BareMetalHost, as <namespace>/<name>.
const Annotation = "metal3.io/BareMetalHost"

// Host is a bare metal host.
type Host struct {
	// Name and Namespace are those of the BareMetalHost.
	Name, Namespace string

	// UID is the UID of the BareMetalHost. It is the value of the Node label metal3.io/uuid.
	UID string

	// ProviderID is the providerID that the Node must have. It is empty for a host without a Machine.
	ProviderID string

	// State is the provisioning state of the BareMetalHost.
	State bmov1alpha1.ProvisioningState

	// Metal3Machine is the Metal3Machine that uses the host. It is empty for a host without a Machine.
	Metal3Machine types.NamespacedName

	// Object is the BareMetalHost. It is from a cache: do not change it.
	Object *bmov1alpha1.BareMetalHost
}

// NotReadyError reports that there is no usable host yet. It is not a failure: the caller waits.
type NotReadyError struct {
	// Why names the object and what it lacks, for users.
	Why string
	// NeedsUser is true if waiting alone does not help: Metal3 keeps the host where Poolboot does not use it.
	NeedsUser bool
}

func (e *NotReadyError) Error() string { return e.Why }

// Reason returns the reason of the condition that reports the error.
func (e *NotReadyError) Reason() string {
	if e.NeedsUser {
		return bootstrapv1.HostNotUsableReason
	}
	return bootstrapv1.HostNotReadyReason
}

// notReady returns a NotReadyError with a formatted message.
func notReady(format string, args ...any) error {
	return &NotReadyError{Why: fmt.Sprintf(format, args...)}
}

// notUsable returns a NotReadyError about a host that Poolboot can't use where it is.
func notUsable(format string, args ...any) error {
	return &NotReadyError{NeedsUser: true, Why: fmt.Sprintf(format, args...) +
		": Poolboot boots only a BareMetalHost in the namespace of the Machine that a Metal3Machine consumes: register the host there"}
}

// ForMachine returns the host of a Machine. It returns nil for a Machine of another infrastructure provider. The error
// is a *NotReadyError while there is no host.
func ForMachine(ctx context.Context, c client.Reader, m *clusterv1.Machine) (*Host, error) {
	ref := m.Spec.InfrastructureRef
	switch ref.GroupKind() {
	case metal3MachineKind:
	case hostClaimKind:
		return nil, notUsable("spec.infrastructureRef of Machine %s is HostClaim %s", klog.KObj(m), ref.Name)
	default:
		return nil, nil
	}
	metal3Machine, err := readMetal3Machine(ctx, c, types.NamespacedName{Namespace: m.Namespace, Name: ref.Name})
	if apierrors.IsNotFound(err) {
		return nil, notReady("Metal3Machine %s does not exist yet", klog.KRef(m.Namespace, ref.Name))
	}
	if err != nil {
		return nil, fmt.Errorf("host of Machine %s: %w", klog.KObj(m), err)
	}
	return ForMetal3Machine(ctx, c, metal3Machine)
}

// ForMetal3Machine returns the host of a Metal3Machine. The error is a *NotReadyError while there is no host. The host
// must name the Metal3Machine in its spec.consumerRef. The annotation of the Metal3Machine does not prove that it uses
// the host, because users can write it.
func ForMetal3Machine(ctx context.Context, c client.Reader, m *unstructured.Unstructured) (*Host, error) {
	name := hostName(m)
	if name == "" {
		return nil, notReady("Metal3Machine %s has no host yet: it has no annotation %s", klog.KObj(m), Annotation)
	}
	bmh := &bmov1alpha1.BareMetalHost{}
	if err := c.Get(ctx, types.NamespacedName{Namespace: m.GetNamespace(), Name: name}, bmh); IsAbsent(err) {
		if value := m.GetAnnotations()[Annotation]; value != name && value != m.GetNamespace()+"/"+name {
			return nil, notUsable("the annotation %s of Metal3Machine %s is %s, which is in another namespace", Annotation, klog.KObj(m), value)
		}
		return nil, notReady("BareMetalHost %s of Metal3Machine %s does not exist", klog.KRef(m.GetNamespace(), name), klog.KObj(m))
	} else if err != nil {
		return nil, fmt.Errorf("BareMetalHost %s: %w", klog.KRef(m.GetNamespace(), name), err)
	}
	consumer, ok := consumerOf(bmh)
	if ref := bmh.Spec.ConsumerRef; ref != nil && ref.GroupVersionKind().GroupKind() == hostClaimKind {
		return nil, notUsable("BareMetalHost %s of Metal3Machine %s belongs to HostClaim %s by its spec.consumerRef", klog.KObj(bmh), klog.KObj(m), klog.KRef(ref.Namespace, ref.Name))
	}
	if !ok || consumer != client.ObjectKeyFromObject(m) {
		return nil, notReady("BareMetalHost %s does not name Metal3Machine %s in spec.consumerRef", klog.KObj(bmh), klog.KObj(m))
	}
	providerID, err := providerIDOf(m, bmh)
	if err != nil {
		return nil, err
	}
	h := newHost(bmh)
	h.ProviderID, h.Metal3Machine = providerID, consumer
	return h, nil
}

func newHost(bmh *bmov1alpha1.BareMetalHost) *Host {
	return &Host{Name: bmh.Name, Namespace: bmh.Namespace, UID: string(bmh.UID), State: bmh.Status.Provisioning.State, Object: bmh}
}

// IsAbsent reports whether an object or its kind does not exist. Metal3 can be installed after Poolboot.
func IsAbsent(err error) bool { return apierrors.IsNotFound(err) || meta.IsNoMatchError(err) }

// MachineOf returns the Machine that uses a BareMetalHost, for watches. The name is empty if there is none.
func MachineOf(ctx context.Context, c client.Reader, bmh *bmov1alpha1.BareMetalHost) (types.NamespacedName, error) {
	consumer, ok := consumerOf(bmh)
	if !ok {
		return types.NamespacedName{}, nil
	}
	metal3Machine, err := readMetal3Machine(ctx, c, consumer)
	if err != nil {
		return types.NamespacedName{}, client.IgnoreNotFound(err)
	}
	return MachineOfMetal3Machine(metal3Machine), nil
}

// MachineOfMetal3Machine returns the Machine that owns a Metal3Machine, for watches. The name is empty if there is
// none.
func MachineOfMetal3Machine(m client.Object) types.NamespacedName {
	for _, owner := range m.GetOwnerReferences() {
		gv, err := schema.ParseGroupVersion(owner.APIVersion)
		if err == nil && gv.Group == clusterv1.GroupVersion.Group && owner.Kind == "Machine" {
			return types.NamespacedName{Namespace: m.GetNamespace(), Name: owner.Name}
		}
	}
	return types.NamespacedName{}
}

// ForConfig returns the host of a PoolbootConfig: the host of its Machine or, if machine is nil, the BareMetalHost that
// the PoolbootConfig names. It returns nil if the host is not a BareMetalHost: it enrolled, or its Machine is from
// another infrastructure provider. The errors are those of ForMachine and WithoutMachine.
func ForConfig(ctx context.Context, c client.Reader, config *bootstrapv1.PoolbootConfig, machine *clusterv1.Machine) (*Host, error) {
	switch {
	case machine != nil:
		return ForMachine(ctx, c, machine)
	case record.HostKindOf(config) == record.BareMetalHost:
		return WithoutMachine(ctx, c, client.ObjectKey{Namespace: config.Namespace, Name: config.Spec.Host.BareMetalHostName})
	}
	return nil, nil
}

// WithoutMachine returns a BareMetalHost that no Machine uses, while it is being provisioned and afterwards. It has no
// providerID, because that of Metal3 contains the name of a Metal3Machine. The error is a *NotReadyError if the host is
// in another state or has a consumer.
func WithoutMachine(ctx context.Context, c client.Reader, key client.ObjectKey) (*Host, error) {
	bmh := &bmov1alpha1.BareMetalHost{}
	if err := c.Get(ctx, key, bmh); IsAbsent(err) {
		return nil, notReady("BareMetalHost %s does not exist", key)
	} else if err != nil {
		return nil, fmt.Errorf("BareMetalHost %s: %w", key, err)
	}
	if consumer := bmh.Spec.ConsumerRef; consumer != nil {
		return nil, notReady("BareMetalHost %s belongs to %s %s by its spec.consumerRef", klog.KObj(bmh), consumer.Kind, consumer.Name)
	}
	state := bmh.Status.Provisioning.State
	if !bmh.DeletionTimestamp.IsZero() || state != bmov1alpha1.StateProvisioning && state != bmov1alpha1.StateProvisioned {
		return nil, notReady("BareMetalHost %s is not being provisioned, its state is %q", klog.KObj(bmh), state)
	}
	return newHost(bmh), nil
}

var (
	metal3MachineKind = schema.GroupKind{Group: "infrastructure.cluster.x-k8s.io", Kind: "Metal3Machine"}
	// hostClaimKind is the kind by which tenants get BareMetalHosts of other namespaces. The Metal3 infrastructure
	// provider does not use it yet, and the baremetal-operator copies nothing to those hosts yet.
	hostClaimKind = schema.GroupKind{Group: bmov1alpha1.GroupVersion.Group, Kind: "HostClaim"}
)

// readMetal3Machine reads a Metal3Machine in the version that its CRD declares for the contract of Cluster API.
func readMetal3Machine(ctx context.Context, c client.Reader, key types.NamespacedName) (*unstructured.Unstructured, error) {
	return external.GetObjectFromContractVersionedRef(ctx, c, clusterv1.ContractVersionedObjectReference{
		APIGroup: metal3MachineKind.Group, Kind: metal3MachineKind.Kind, Name: key.Name,
	}, key.Namespace)
}

// hostName returns the name of the host from the annotation of a Metal3Machine. It ignores the namespace in the
// annotation: a host is always in the namespace of its Metal3Machine. Otherwise, users could access hosts in other
// namespaces. The Metal3 infrastructure provider has the same rule.
func hostName(m *unstructured.Unstructured) string {
	value := m.GetAnnotations()[Annotation]
	return value[strings.LastIndex(value, "/")+1:]
}

// consumerOf returns the Metal3Machine in spec.consumerRef of a host.
func consumerOf(bmh *bmov1alpha1.BareMetalHost) (types.NamespacedName, bool) {
	ref := bmh.Spec.ConsumerRef
	if ref == nil || ref.GroupVersionKind().GroupKind() != metal3MachineKind || ref.Namespace != bmh.Namespace {
		return types.NamespacedName{}, false
	}
	return types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}, true
}

// providerIDOf returns the providerID of a Metal3Machine, or the one that it will get.
func providerIDOf(m *unstructured.Unstructured, bmh *bmov1alpha1.BareMetalHost) (string, error) {
	id, _, err := unstructured.NestedString(m.Object, "spec", "providerID")
	if err != nil {
		return "", fmt.Errorf("Metal3Machine %s: %w", klog.KObj(m), err)
	}
	if id == "" {
		id = fmt.Sprintf("metal3://%s/%s/%s", bmh.Namespace, bmh.Name, m.GetName())
	}
	return id, nil
}
