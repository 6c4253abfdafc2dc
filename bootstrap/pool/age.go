package pool

import (
	"cmp"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// CompareAge compares when two rendered configs were created. It is negative if a is older. Times in metadata have
// seconds, so two that were created in the same second are compared by their resource versions: nothing changes a
// rendered config after its creation, except the garbage collector and tools that move or restore it.
func CompareAge(a, b *poolv1.MachineConfig) int {
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	if err != nil { // a config that is not from an API server
		order = 0
	}
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), order, cmp.Compare(a.Name, b.Name))
}
