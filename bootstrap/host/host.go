// Package host finds the bare metal host behind a Machine: Machine, Metal3Machine, BareMetalHost. It reads through the
// reader it is given and writes nothing. Metal3Machines are read as unstructured, by their contract; nothing else in
// Poolboot knows that kind.
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
)

// Annotation is on a Metal3Machine that has a host: <namespace>/<name> of the BareMetalHost.
const Annotation = "metal3.io/BareMetalHost"

// Host is the bare metal host of one Machine.
type Host struct {
	// Name and Namespace are the BareMetalHost's.
	Name, Namespace string

	// UID is the BareMetalHost's UID: the value of the Node label metal3.io/uuid.
	UID string

	// ProviderID is the providerID that the Machine's Node must have.
	ProviderID string

	// State is the BareMetalHost's provisioning state.
	State bmov1alpha1.ProvisioningState

	// Metal3Machine is the Metal3Machine that the host serves.
	Metal3Machine types.NamespacedName

	// Object is the BareMetalHost. It comes from a cache: don't change it.
	Object *bmov1alpha1.BareMetalHost
}

// NotReadyError says that a Machine has no host yet. It is a state to wait in, not a fault.
type NotReadyError struct {
	// Why is a sentence for people: which object lacks what.
	Why string
}

func (e *NotReadyError) Error() string { return e.Why }

// notReady makes a NotReadyError out of a format and its arguments.
func notReady(format string, args ...any) error {
	return &NotReadyError{Why: fmt.Sprintf(format, args...)}
}

// ForMachine returns the host of a Machine; nil when its infrastructure is not Metal3's, of which nothing is known
// here. The error is a *NotReadyError while there is none.
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

// ForMetal3Machine returns the host of a Metal3Machine. The error is a *NotReadyError while there is none. A host
// counts only when its own spec.consumerRef names the Metal3Machine: the annotation alone is a claim that anyone may
// write.
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
	return &Host{
		Name:          bmh.Name,
		Namespace:     bmh.Namespace,
		UID:           string(bmh.UID),
		ProviderID:    providerID,
		State:         bmh.Status.Provisioning.State,
		Metal3Machine: consumer,
		Object:        bmh,
	}, nil
}

// IsAbsent says whether an object does not exist, or its kind does not: Metal3 may be installed after Poolboot.
func IsAbsent(err error) bool { return apierrors.IsNotFound(err) || meta.IsNoMatchError(err) }

// MachineOf returns the Machine that a BareMetalHost serves: for watches. The name is empty when it serves none.
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

// MachineOfMetal3Machine returns the Machine that a Metal3Machine belongs to, by its ownerReference: for watches. The
// name is empty when it belongs to none.
func MachineOfMetal3Machine(m client.Object) types.NamespacedName {
	for _, owner := range m.GetOwnerReferences() {
		gv, err := schema.ParseGroupVersion(owner.APIVersion)
		if err == nil && gv.Group == clusterv1.GroupVersion.Group && owner.Kind == "Machine" {
			return types.NamespacedName{Namespace: m.GetNamespace(), Name: owner.Name}
		}
	}
	return types.NamespacedName{}
}
