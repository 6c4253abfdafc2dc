package host

import (
	"context"
	"fmt"
	"net/netip"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// Sources of the facts about the hardware of a host.
const (
	HardwareFromData   = "HardwareData"
	HardwareFromStatus = "status.hardware"
)

// Hardware returns the known hardware of a host, and the source: the HardwareData with the name of the host or, if
// there is none, status.hardware of the BareMetalHost. Both results are empty if no hardware is known. It is not an
// error if the kind HardwareData does not exist, as in older releases of Metal3.
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

// CPUArch returns the CPU architecture, such as x86_64, and its field from the results of Hardware. Both are empty if
// the architecture is unknown.
func CPUArch(hardware *bmov1alpha1.HardwareDetails, from string) (arch, field string) {
	switch {
	case hardware == nil || hardware.CPU.Arch == "":
		return "", ""
	case from == HardwareFromData:
		return hardware.CPU.Arch, "HardwareData spec.hardware.cpu.arch"
	}
	return hardware.CPU.Arch, "BareMetalHost status.hardware.cpu.arch"
}

// Addresses returns the addresses of a host that are known without its kubelet: those of its network cards from the
// inspection, and those in its annotation poolv1.HostAddressesAnnotation. It ignores invalid addresses.
func Addresses(ctx context.Context, c client.Reader, bmh *bmov1alpha1.BareMetalHost) ([]netip.Addr, error) {
	hardware, _, err := Hardware(ctx, c, bmh)
	if err != nil {
		return nil, err
	}
	addresses := AnnotatedAddresses(bmh.Annotations)
	if hardware != nil {
		var inspected []string
		for _, nic := range hardware.NIC {
			inspected = append(inspected, nic.IP)
		}
		addresses = append(addresses, parseAddresses(inspected)...)
	}
	return addresses, nil
}

// AnnotatedAddresses returns the addresses in the annotation poolv1.HostAddressesAnnotation of a BareMetalHost or, for
// a host without one, of its PoolbootConfig.
func AnnotatedAddresses(annotations map[string]string) []netip.Addr {
	return parseAddresses(strings.Split(annotations[poolv1.HostAddressesAnnotation], ","))
}

func parseAddresses(texts []string) []netip.Addr {
	var addresses []netip.Addr
	for _, text := range texts {
		text, _, _ = strings.Cut(strings.TrimSpace(text), "/") // some inspectors add the prefix length
		if address, err := netip.ParseAddr(text); err == nil && !address.IsUnspecified() && !address.IsLoopback() {
			addresses = append(addresses, address.Unmap().WithZone(""))
		}
	}
	return addresses
}
