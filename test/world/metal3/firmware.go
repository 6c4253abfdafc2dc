package metal3

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// values are those that the schema of each setting has.
var values = []string{"Enabled", "Disabled", RefusedValue}

// settingsReconciler compares HostFirmwareSettings with the hosts of the same name
// (hostfirmwaresettings_controller.go of the Bare Metal Operator).
type settingsReconciler struct {
	client.Client
	hosts *hostReconciler
	// interval is how often changes are compared again, because nothing reports that they were applied.
	interval time.Duration
}

func (r *settingsReconciler) setUp(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).For(&bmov1alpha1.HostFirmwareSettings{}).Complete(r)
}

func (r *settingsReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	settings := &bmov1alpha1.HostFirmwareSettings{}
	if err := r.Get(ctx, request.NamespacedName, settings); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	status := bmov1alpha1.HostFirmwareSettingsStatus{Settings: r.hosts.settings(request.NamespacedName)}
	isChanged, isValid := false, true
	for name, value := range settings.Spec.Settings {
		is, exists := status.Settings[name]
		isChanged = isChanged || is != value.String()
		isValid = isValid && exists && slices.Contains(values, value.String())
	}
	status.Conditions = compare(settings, isChanged, isValid, "Invalid BIOS setting")
	result := ctrl.Result{}
	if isChanged {
		result.RequeueAfter = r.interval
	}
	if maps.Equal(status.Settings, settings.Status.Settings) && isSame(settings.Status.Conditions, status.Conditions) {
		return result, nil
	}
	settings.Status = status
	return result, r.Status().Update(ctx, settings)
}

// componentsReconciler compares what HostFirmwareComponents request with what was applied
// (hostfirmwarecomponents_controller.go of the Bare Metal Operator).
type componentsReconciler struct{ client.Client }

func (r *componentsReconciler) setUp(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).For(&bmov1alpha1.HostFirmwareComponents{}).Complete(r)
}

func (r *componentsReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	components := &bmov1alpha1.HostFirmwareComponents{}
	if err := r.Get(ctx, request.NamespacedName, components); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	isValid := !slices.ContainsFunc(components.Spec.Updates, func(update bmov1alpha1.FirmwareUpdate) bool {
		return update.Component != "bios" && update.Component != "bmc" && !strings.HasPrefix(update.Component, bmov1alpha1.NICComponentPrefix)
	})
	conditions := compare(components, !slices.Equal(components.Spec.Updates, components.Status.Updates), isValid, "Invalid Firmware Components")
	if isSame(components.Status.Conditions, conditions) {
		return ctrl.Result{}, nil
	}
	components.Status.Conditions = conditions
	return ctrl.Result{}, r.Status().Update(ctx, components)
}

// compare returns the conditions of an object by which the operator knows that something is to be done.
func compare(object client.Object, isChanged, isValid bool, invalid string) (conditions []metav1.Condition) {
	set := func(kind string, is bool, message string) {
		status := metav1.ConditionFalse
		if is {
			status, message = metav1.ConditionTrue, ""
		}
		meta.SetStatusCondition(&conditions, metav1.Condition{Type: kind, Status: status, Reason: "Compared", Message: message, ObservedGeneration: object.GetGeneration()})
	}
	set(string(bmov1alpha1.FirmwareSettingsChangeDetected), isChanged, "")
	set(string(bmov1alpha1.FirmwareSettingsValid), isValid, invalid)
	return conditions
}

// isSame reports whether the operator does not write conditions: it ignores their generations. So it does not see a
// second change before the first one is applied, until something else changes.
func isSame(before, after []metav1.Condition) bool {
	return slices.EqualFunc(before, after, func(a, b metav1.Condition) bool { return a.Type == b.Type && a.Status == b.Status })
}
