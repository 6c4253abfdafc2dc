package host

import (
	"context"
	"net/netip"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

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
