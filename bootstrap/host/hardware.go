package host

import (
	"context"
	"fmt"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Where the facts of a host's hardware were found.
const (
	HardwareFromData   = "HardwareData"
	HardwareFromStatus = "status.hardware"
)

// Hardware returns what is known of a host's hardware, and where it was found: in the HardwareData of its name or,
// failing that, in the BareMetalHost's status.hardware. Both results are empty when nothing is known. Older releases of
// Metal3 have no HardwareData; that is no error.
func Hardware(ctx context.Context, c client.Reader, bmh *bmov1alpha1.BareMetalHost) (*bmov1alpha1.HardwareDetails, string, error) {
	data := &bmov1alpha1.HardwareData{}
	err := c.Get(ctx, client.ObjectKeyFromObject(bmh), data)
	switch {
	case err == nil && data.Spec.HardwareDetails != nil:
		return data.Spec.HardwareDetails, HardwareFromData, nil
	case err != nil && !IsAbsent(err):
		return nil, "", fmt.Errorf("HardwareData %s: %w", klog.KObj(bmh), err)
	case bmh.Status.HardwareDetails != nil:
		return bmh.Status.HardwareDetails, HardwareFromStatus, nil
	}
	return nil, "", nil
}

// CPUArch returns the CPU architecture in what Hardware returned, such as x86_64, and the field that it is in; "" when
// it is not known.
func CPUArch(hardware *bmov1alpha1.HardwareDetails, from string) (arch, field string) {
	switch {
	case hardware == nil || hardware.CPU.Arch == "":
		return "", ""
	case from == HardwareFromData:
		return hardware.CPU.Arch, "HardwareData spec.hardware.cpu.arch"
	}
	return hardware.CPU.Arch, "BareMetalHost status.hardware.cpu.arch"
}
