package host

import (
	"context"
	"fmt"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/external"
)

var metal3MachineKind = schema.GroupKind{Group: "infrastructure.cluster.x-k8s.io", Kind: "Metal3Machine"}

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
