package metal3

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// RefusedValue is the value of a firmware setting, or a part of the URL of a firmware update, that Metal3 takes for
// valid and the BMC refuses.
const RefusedValue = "Refused"

// changes are what is pending for the firmware of a host, nil if nothing is.
type changes struct {
	settings   *bmov1alpha1.HostFirmwareSettings
	components *bmov1alpha1.HostFirmwareComponents
	// hasSpec is true if something is specified at all: without it, the operator gives up what has failed.
	hasSpec bool
}

// refused returns what the BMC refuses, or "".
func (c changes) refused() string {
	if c.settings != nil {
		for name, value := range c.settings.Spec.Settings {
			if value.String() == RefusedValue {
				return "the BMC refused the value of " + name
			}
		}
	}
	if c.components != nil {
		for _, update := range c.components.Spec.Updates {
			if strings.Contains(update.URL, RefusedValue) {
				return "the BMC refused the update of " + update.Component
			}
		}
	}
	return ""
}

// service applies pending firmware to a provisioned host that is off and should be on, if its HostUpdatePolicy has it
// for a reboot. Ironic powers the host on at the end. It returns 0 when there is nothing to do. An error keeps the host
// off (doServiceIfNeeded in baremetalhost_controller.go of the Bare Metal Operator).
func (r *hostReconciler) service(ctx context.Context, host *bmov1alpha1.BareMetalHost) (time.Duration, error) {
	pending, err := r.pendingChanges(ctx, host)
	if err != nil {
		return 0, err
	}
	hasChanges, status := pending.settings != nil || pending.components != nil, &host.Status
	isServicing, hasFailed := status.OperationalStatus == bmov1alpha1.OperationalStatusServicing, status.ErrorType == bmov1alpha1.ServicingError
	servicing := func() { clearError(host); status.OperationalStatus = bmov1alpha1.OperationalStatusServicing }
	started, isStarted := r.current(host)
	switch {
	case !isServicing && !hasFailed && !hasChanges:
		return 0, nil
	case hasFailed && !pending.hasSpec, isServicing && !isStarted && !hasChanges:
		r.end(host)
		clearError(host)
		return nextStep, nil
	case !isServicing && !hasFailed: // the operator writes this before it calls Ironic
		servicing()
		return nextStep, nil
	case !isStarted:
		r.begin(host, nil)
		servicing()
		if pending.components != nil {
			pending.components.Status.Updates = pending.components.Spec.Updates
			return nextStep, r.Status().Update(ctx, pending.components)
		}
		return nextStep, nil
	}
	if left := r.options.Servicing - time.Since(started.started); left > 0 {
		return left, nil
	}
	r.end(host)
	components := &bmov1alpha1.HostFirmwareComponents{}
	if err := client.IgnoreNotFound(r.live.Get(ctx, client.ObjectKeyFromObject(host), components)); err != nil {
		return 0, err
	}
	pending.components = components // its status has them already
	if refused := pending.refused(); refused != "" {
		if len(components.Status.Updates) > 0 {
			components.Status.Updates = nil
			if err := r.Status().Update(ctx, components); err != nil {
				return 0, err
			}
		}
		return 0, &failure{kind: bmov1alpha1.ServicingError, err: errors.New(refused)}
	}
	if pending.settings != nil {
		r.flash(host, pending.settings.Spec.Settings)
	}
	if err := r.options.Hardware.PowerOn(ctx, host, nil); err != nil {
		return 0, &failure{kind: bmov1alpha1.ServicingError, err: fmt.Errorf("power on: %w", err)}
	}
	clearError(host)
	status.PoweredOn = true
	return nextStep, nil
}

// pendingChanges returns the valid changes of the firmware of a host that its policy has for a reboot. If the operator
// has not compared an object with the host since it was changed, that is an error.
func (r *hostReconciler) pendingChanges(ctx context.Context, host *bmov1alpha1.BareMetalHost) (pending changes, err error) {
	policy, key := &bmov1alpha1.HostUpdatePolicy{}, client.ObjectKeyFromObject(host)
	if err := r.live.Get(ctx, key, policy); err != nil {
		return pending, client.IgnoreNotFound(err)
	}
	isPending := func(object client.Object, conditions []metav1.Condition) (bool, error) {
		changed := meta.FindStatusCondition(conditions, string(bmov1alpha1.FirmwareSettingsChangeDetected))
		switch {
		case changed == nil:
			return false, nil
		case changed.ObservedGeneration != object.GetGeneration():
			return false, fmt.Errorf("generation %d of the firmware of host %s was not compared with it", object.GetGeneration(), host.Name)
		}
		return changed.Status == metav1.ConditionTrue && meta.IsStatusConditionTrue(conditions, string(bmov1alpha1.FirmwareSettingsValid)), nil
	}
	settings, components := &bmov1alpha1.HostFirmwareSettings{}, &bmov1alpha1.HostFirmwareComponents{}
	if policy.Spec.FirmwareSettings == bmov1alpha1.HostUpdatePolicyOnReboot {
		if err := r.live.Get(ctx, key, settings); client.IgnoreNotFound(err) != nil {
			return pending, err
		}
		is, err := isPending(settings, settings.Status.Conditions)
		if err != nil {
			return pending, err
		}
		if is {
			pending.settings = settings
		}
	}
	if policy.Spec.FirmwareUpdates == bmov1alpha1.HostUpdatePolicyOnReboot {
		if err := r.live.Get(ctx, key, components); client.IgnoreNotFound(err) != nil {
			return pending, err
		}
		is, err := isPending(components, components.Status.Conditions)
		if err != nil {
			return pending, err
		}
		if is {
			pending.components = components
		}
	}
	pending.hasSpec = len(settings.Spec.Settings)+len(components.Spec.Updates) > 0
	return pending, nil
}

// settings returns the firmware settings of a host.
func (r *hostReconciler) settings(key client.ObjectKey) bmov1alpha1.SettingsMap {
	r.mu.Lock()
	defer r.mu.Unlock()
	settings := bmov1alpha1.SettingsMap{"LogicalProc": "Enabled", "SriovGlobalEnable": "Disabled"}
	maps.Copy(settings, r.firmware[key])
	return settings
}

// flash changes the firmware settings of a host.
func (r *hostReconciler) flash(host *bmov1alpha1.BareMetalHost, settings bmov1alpha1.DesiredSettingsMap) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := client.ObjectKeyFromObject(host)
	if r.firmware[key] == nil {
		r.firmware[key] = bmov1alpha1.SettingsMap{}
	}
	for name, value := range settings {
		r.firmware[key][name] = value.String()
	}
}
