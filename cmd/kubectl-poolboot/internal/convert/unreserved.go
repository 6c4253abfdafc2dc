package convert

import (
	"maps"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/cmd/kubectl-poolboot/internal/input"
)

// defaultEvictionHard is what the kubelet reserves for evictions without evictionHard.
var defaultEvictionHard = resource.MustParse("100Mi")

// warnUnreserved names KubeletConfigs with which kubelets start in OpenShift only because it reserves 1Gi of memory for
// the system without any KubeletConfig. Nothing is reserved in the image of most hosts, but this is not known here.
func warnUnreserved(pools []poolv1.MachineConfigPool, of map[string]*input.KubeletConfig, remark func(string, ...any)) {
	var worker poolv1.MachineConfigPool
	for _, p := range pools {
		if !pool.IsCustom(p.Spec.PoolRole) {
			worker = p
		}
		own := kubeletFields(p)
		fields := mergeFields(kubeletFields(worker), own)
		if of[p.Name] == nil || ptr.Deref(p.Spec.Kubelet.AutoSizingReserved, ptr.Deref(worker.Spec.Kubelet.AutoSizingReserved, false)) {
			continue // the pool has what is worker's, or hosts compute what they reserve
		}
		numaNodes, _, _ := unstructured.NestedSlice(own, "reservedMemory")
		reserved, eviction := reservedMemoryOf(fields), defaultEvictionHard.DeepCopy()
		if hard, isSet := fields["evictionHard"].(map[string]any); isSet {
			value, _ := hard["memory.available"].(string)
			if value == "" {
				value = "0"
			}
			parsed, err := resource.ParseQuantity(value)
			if err != nil {
				continue // a percentage of the memory of the host
			}
			eviction = parsed
		}
		reserved.Add(eviction)
		var total resource.Quantity
		for _, numaNode := range numaNodes {
			of, _ := numaNode.(map[string]any)
			total.Add(quantityAt(of, "limits", "memory"))
		}
		if fields["memoryManagerPolicy"] == "Static" && len(numaNodes) > 0 && !total.Equal(*reserved) {
			remark("warning: KubeletConfig %q: spec.kubeletConfig.reservedMemory: the kubelets of the pool %s do not start: its memory is %s, and kubeReserved, "+
				"systemReserved and evictionHard are %s together: in OpenShift, systemReserved is 1Gi by default: set memory in systemReserved, so that both are the same, "+
				"unless the image of the hosts sets it", of[p.Name].Name, p.Name, total.String(), reserved.String())
		}
	}
}

// mergeFields returns fields over others, objects by key.
func mergeFields(base, over map[string]any) map[string]any {
	merged := maps.Clone(base)
	if merged == nil {
		merged = map[string]any{}
	}
	for name, value := range over {
		inBase, _ := merged[name].(map[string]any)
		if inOver, isObject := value.(map[string]any); isObject {
			value = mergeFields(inBase, inOver)
		}
		merged[name] = value
	}
	return merged
}

// reservedMemoryOf returns the memory that kubelets with the fields reserve.
func reservedMemoryOf(fields map[string]any) *resource.Quantity {
	sum := &resource.Quantity{}
	for _, name := range []string{"systemReserved", "kubeReserved"} {
		sum.Add(quantityAt(fields, name, "memory"))
	}
	return sum
}

// quantityAt returns the quantity at a path, and zero if there is none.
func quantityAt(in map[string]any, path ...string) resource.Quantity {
	text, _, _ := unstructured.NestedString(in, path...)
	quantity, err := resource.ParseQuantity(text)
	if err != nil {
		return resource.Quantity{}
	}
	return quantity
}
