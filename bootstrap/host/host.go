// Package host finds the bare metal host of a Machine: from the Machine to its Metal3Machine to its BareMetalHost. It
// reads with the client of the caller, and writes nothing. It reads Metal3Machines as unstructured objects, by the
// contract of Cluster API. No other package of Poolboot knows that kind.
package host

import (
	"context"
	"fmt"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
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
}

func (e *NotReadyError) Error() string { return e.Why }

// Reason returns the reason of the condition that reports the error.
func (e *NotReadyError) Reason() string { return bootstrapv1.HostNotReadyReason }

// notReady returns a NotReadyError with a formatted message.
func notReady(format string, args ...any) error {
	return &NotReadyError{Why: fmt.Sprintf(format, args...)}
}

// ForMachine returns the host of a Machine. It returns nil for a Machine of another infrastructure provider. The error
// is a *NotReadyError while there is no host.
func ForMachine(ctx context.Context, c client.Reader, m *clusterv1.Machine) (*Host, error) {
	ref := m.Spec.InfrastructureRef
	if ref.GroupKind() != metal3MachineKind {
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
		return nil, notReady("BareMetalHost %s of Metal3Machine %s does not exist", klog.KRef(m.GetNamespace(), name), klog.KObj(m))
	} else if err != nil {
		return nil, fmt.Errorf("BareMetalHost %s: %w", klog.KRef(m.GetNamespace(), name), err)
	}
	consumer, ok := consumerOf(bmh)
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
