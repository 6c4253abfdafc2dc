// Package host finds the bare metal host behind a Machine: Machine, Metal3Machine, BareMetalHost. It reads through the
// reader it is given and writes nothing. Metal3Machines are read as unstructured, by their contract; nothing else in
// Poolboot knows that kind.
package host

import (
	"context"
	"errors"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
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

	// PoweredOn is true when the host was last seen powered on.
	PoweredOn bool

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

// ForMachine returns the host of a Machine. The error is a *NotReadyError while there is none.
func ForMachine(ctx context.Context, c client.Reader, m *clusterv1.Machine) (*Host, error) {
	return nil, errors.New("not yet")
}

// ForMetal3Machine returns the host of a Metal3Machine. The error is a *NotReadyError while there is none.
func ForMetal3Machine(ctx context.Context, c client.Reader, m *unstructured.Unstructured) (*Host, error) {
	return nil, errors.New("not yet")
}

// MachineOf returns the Machine that a BareMetalHost serves: for watches. The name is empty when it serves none.
func MachineOf(ctx context.Context, c client.Reader, bmh *bmov1alpha1.BareMetalHost) (types.NamespacedName, error) {
	return types.NamespacedName{}, errors.New("not yet")
}

// MachineOfMetal3Machine returns the Machine that a Metal3Machine belongs to, by its ownerReference: for watches. The
// name is empty when it belongs to none.
func MachineOfMetal3Machine(m client.Object) types.NamespacedName { return types.NamespacedName{} }
