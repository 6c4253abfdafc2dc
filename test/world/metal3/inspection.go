package metal3

import (
	"context"
	"encoding/json"
	"fmt"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// inspect writes a host's hardware to its HardwareData and status. Tests set the hardware with the annotation
// inspect.metal3.io/hardwaredetails (JSON), which the real operator supports for hosts that can't be inspected.
func (r *hostReconciler) inspect(ctx context.Context, host *bmov1alpha1.BareMetalHost) error {
	details, err := hardware(host)
	if err != nil {
		return err
	}
	data := &bmov1alpha1.HardwareData{ObjectMeta: metav1.ObjectMeta{Namespace: host.Namespace, Name: host.Name}}
	if _, err := controllerutil.CreateOrPatch(ctx, r.Client, data, func() error {
		data.Spec.HardwareDetails = details
		return nil
	}); err != nil {
		return fmt.Errorf("HardwareData of host %s: %w", host.Name, err)
	}
	host.Status.HardwareDetails = details
	return nil
}

func hardware(host *bmov1alpha1.BareMetalHost) (*bmov1alpha1.HardwareDetails, error) {
	if given, ok := host.Annotations[bmov1alpha1.HardwareDetailsAnnotation]; ok {
		details := &bmov1alpha1.HardwareDetails{}
		if err := json.Unmarshal([]byte(given), details); err != nil {
			return nil, fmt.Errorf("annotation %s of host %s: %w", bmov1alpha1.HardwareDetailsAnnotation, host.Name, err)
		}
		return details, nil
	}
	return &bmov1alpha1.HardwareDetails{
		SystemVendor: bmov1alpha1.HardwareSystemVendor{Manufacturer: "Simulated", ProductName: "Host", SerialNumber: host.Name},
		RAMMebibytes: 262144,
		CPU:          bmov1alpha1.CPU{Arch: "x86_64", Model: "Simulated CPU", Count: 64},
		NIC:          []bmov1alpha1.NIC{{Name: "eth0", MAC: host.Spec.BootMACAddress}},
		Hostname:     host.Name,
	}, nil
}
