package host

import (
	"context"
	"fmt"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Firmware is what Metal3 would do to the firmware of a BareMetalHost that it powers off and on.
type Firmware struct {
	// IsPending is true if it would apply settings or updates.
	IsPending bool
	// Why says why it would not apply what the HostUpdatePolicy has for a reboot, or "".
	Why string
}

// FirmwareOf returns what Metal3 would do to the firmware of a BareMetalHost if it powered it off and on: the
// HostUpdatePolicy allows it, and the HostFirmwareSettings or HostFirmwareComponents have a valid change. All have the
// name of the host (doServiceIfNeeded in baremetalhost_controller.go of the Bare Metal Operator).
//
// If Metal3 has not compared what a user wrote last with the host, it would power the host off and not on. Then nothing
// is pending.
func FirmwareOf(ctx context.Context, c client.Reader, bmh *bmov1alpha1.BareMetalHost) (Firmware, error) {
	policy := &bmov1alpha1.HostUpdatePolicy{}
	if exists, err := getOfHost(ctx, c, bmh, "HostUpdatePolicy", policy); err != nil || !exists {
		return Firmware{}, err
	}
	var firmware Firmware
	add := func(kind string, object client.Object, conditions *[]metav1.Condition) (isStale bool, err error) {
		exists, err := getOfHost(ctx, c, bmh, kind, object)
		changed := meta.FindStatusCondition(*conditions, string(bmov1alpha1.FirmwareSettingsChangeDetected))
		valid := meta.FindStatusCondition(*conditions, string(bmov1alpha1.FirmwareSettingsValid))
		switch {
		case err != nil || !exists || changed == nil:
		case changed.ObservedGeneration != object.GetGeneration():
			firmware.Why = fmt.Sprintf("Metal3 has not compared %s %s with the host since it was changed. If that stays so, remove what is pending there, and add it again", kind, klog.KObj(bmh))
			return true, nil
		case changed.Status != metav1.ConditionTrue:
		case valid == nil || valid.Status != metav1.ConditionTrue:
			firmware.Why = fmt.Sprintf("%s %s is not valid", kind, klog.KObj(bmh))
			if valid != nil && valid.Message != "" {
				firmware.Why += ": " + valid.Message
			}
		default:
			firmware.IsPending = true
		}
		return false, err
	}
	settings, components := &bmov1alpha1.HostFirmwareSettings{}, &bmov1alpha1.HostFirmwareComponents{}
	if policy.Spec.FirmwareSettings == bmov1alpha1.HostUpdatePolicyOnReboot {
		if isStale, err := add("HostFirmwareSettings", settings, &settings.Status.Conditions); err != nil || isStale {
			return Firmware{Why: firmware.Why}, err
		}
	}
	if policy.Spec.FirmwareUpdates == bmov1alpha1.HostUpdatePolicyOnReboot {
		if isStale, err := add("HostFirmwareComponents", components, &components.Status.Conditions); err != nil || isStale {
			return Firmware{Why: firmware.Why}, err
		}
	}
	if why := whyNotRebooted(bmh); firmware.IsPending && why != "" {
		return Firmware{Why: why}, nil
	}
	return firmware, nil
}

// getOfHost reads the object of a kind that belongs to a BareMetalHost by its name. Metal3 can be without the kind.
func getOfHost(ctx context.Context, c client.Reader, bmh *bmov1alpha1.BareMetalHost, kind string, object client.Object) (exists bool, err error) {
	switch err := c.Get(ctx, client.ObjectKeyFromObject(bmh), object); {
	case IsAbsent(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("%s %s: %w", kind, klog.KObj(bmh), err)
	}
	return true, nil
}

// whyNotRebooted returns why Metal3 would not power a BareMetalHost off and on, or "".
func whyNotRebooted(bmh *bmov1alpha1.BareMetalHost) string {
	is := "BareMetalHost " + klog.KObj(bmh).String()
	for _, key := range []string{bmov1alpha1.PausedAnnotation, bmov1alpha1.DetachedAnnotation} {
		if metav1.HasAnnotation(bmh.ObjectMeta, key) {
			return fmt.Sprintf("%s has the annotation %s", is, key)
		}
	}
	switch {
	case bmh.Spec.DisablePowerOff:
		return is + " has spec.disablePowerOff, and Metal3 applies firmware only to a host that it powers off"
	case bmh.Status.Provisioning.State != bmov1alpha1.StateProvisioned, !bmh.Spec.Online, !bmh.Status.PoweredOn:
		return fmt.Sprintf("%s is %s, with spec.online %t and status.poweredOn %t", is, bmh.Status.Provisioning.State, bmh.Spec.Online, bmh.Status.PoweredOn)
	case bmh.Status.OperationalStatus != bmov1alpha1.OperationalStatusOK:
		if trouble := Trouble(bmh); trouble != "" {
			return trouble
		}
		return fmt.Sprintf("the operational status of %s is %s", is, bmh.Status.OperationalStatus)
	}
	return ""
}

// IsServiced reports whether Metal3 applies firmware settings or updates to a BareMetalHost, or failed to and tries it
// again.
func IsServiced(bmh *bmov1alpha1.BareMetalHost) bool {
	return bmh.Status.OperationalStatus == bmov1alpha1.OperationalStatusServicing || bmh.Status.ErrorType == bmov1alpha1.ServicingError
}
