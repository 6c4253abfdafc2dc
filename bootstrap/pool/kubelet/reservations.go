package kubelet

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	kjson "sigs.k8s.io/json"
)

// maxCPU is the largest number of a CPU in Linux (CONFIG_NR_CPUS).
const maxCPU = 8191

// validateCPUs returns why a list of CPUs is malformed, or "". Kubernetes' own parser takes time and memory for each
// CPU of a range.
func validateCPUs(list string) string {
	if list == "" {
		return ""
	}
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, err := strconv.ParseUint(first, 10, 32)
		to, err2 := strconv.ParseUint(last, 10, 32)
		switch {
		case err != nil || err2 != nil:
			return fmt.Sprintf("%q is neither a CPU nor a range", part)
		case from > to:
			return fmt.Sprintf("the range %q ends before it begins", part)
		case to > maxCPU:
			return fmt.Sprintf("%q has a CPU after %d, which is the last one that Linux can have", part, maxCPU)
		}
	}
	return ""
}

// checkReservedMemory checks each item of reservedMemory, as the kubelet does.
func (c *check) checkReservedMemory() {
	type numaResource struct {
		numaNode int32
		resource corev1.ResourceName
	}
	seen := map[numaResource]bool{}
	for i, reserved := range c.ReservedMemory {
		var names []corev1.ResourceName
		for name := range reserved.Limits {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			limit, of := reserved.Limits[name], numaResource{reserved.NumaNode, name}
			switch at := c.at.Child("reservedMemory").Index(i).Child("limits").Key(string(name)); {
			case name != corev1.ResourceMemory && !strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix):
				c.errs = append(c.errs, field.Invalid(at, field.OmitValueType{}, "only memory and hugepages-SIZE can be reserved"))
			case limit.Sign() <= 0:
				c.errs = append(c.errs, field.Invalid(at, limit.String(), "must be more than 0"))
			case seen[of]:
				c.errs = append(c.errs, field.Invalid(at, limit.String(), "an earlier item reserves it on the same NUMA node: remove one"))
			}
			seen[of] = true
		}
	}
}

// CheckReservations refuses static policies of the managers of CPUs and memory without what the kubelet must reserve
// for them: it would not start. computesReserved is true if each host computes systemReserved.
func (s Section) CheckReservations(at *field.Path, computesReserved bool) (errs field.ErrorList) {
	raw, err := s.json()
	var config kubeletv1beta1.KubeletConfiguration
	if err == nil {
		err = kjson.UnmarshalCaseSensitivePreserveInts(raw, &config)
	}
	if err != nil {
		return field.ErrorList{field.InternalError(at, err)}
	}
	reservesCPU := computesReserved || config.ReservedSystemCPUs != "" || isReserved(config.SystemReserved, "cpu") || isReserved(config.KubeReserved, "cpu")
	if config.CPUManagerPolicy == "static" && !reservesCPU {
		errs = append(errs, field.Invalid(at.Child("cpuManagerPolicy"), config.CPUManagerPolicy,
			"the kubelet does not start with it if no CPU is reserved: set reservedSystemCPUs, or cpu in systemReserved or kubeReserved"))
	}
	reservesMemory := slices.ContainsFunc(config.ReservedMemory, func(reserved kubeletv1beta1.MemoryReservation) bool {
		memory := reserved.Limits[corev1.ResourceMemory]
		return memory.Sign() > 0
	})
	if config.MemoryManagerPolicy == "Static" && !reservesMemory {
		errs = append(errs, field.Invalid(at.Child("memoryManagerPolicy"), config.MemoryManagerPolicy,
			"the kubelet does not start with it if no memory is reserved: set memory in the limits of reservedMemory, in all as much as "+
				"systemReserved, kubeReserved and evictionHard together"))
	}
	return errs
}

// isReserved reports whether some of a resource is reserved.
func isReserved(reserved map[string]string, name string) bool {
	quantity, err := resource.ParseQuantity(reserved[name])
	return err == nil && quantity.Sign() > 0
}
