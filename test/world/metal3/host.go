package metal3

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// hostWorkers is the number of workers, and maxBackoffs the number of times that the backoff doubles.
const hostWorkers, maxBackoffs = 10, 6

// nextStep is the time between two steps without a wait.
const nextStep = time.Millisecond

// hostReconciler simulates the Bare Metal Operator: it inspects hosts, provisions the image in their spec, powers them
// on and off, and deprovisions them when their spec has no image.
type hostReconciler struct {
	client.Client
	live    client.Reader // not cached: a stale read of a host could repeat an operation
	secrets client.Reader // a cache of the Secrets with environmentLabel
	options Options

	mu   sync.Mutex
	work map[types.UID]work
	// firmware are the settings of hosts that were changed.
	firmware map[client.ObjectKey]bmov1alpha1.SettingsMap
	// stopped is true while Ironic is stopped.
	stopped bool
}

func (r *hostReconciler) setUp(mgr ctrl.Manager) error {
	r.work, r.firmware = map[types.UID]work{}, map[client.ObjectKey]bmov1alpha1.SettingsMap{}
	return ctrl.NewControllerManagedBy(mgr).
		For(&bmov1alpha1.BareMetalHost{}, builder.WithPredicates(specChanged())).
		Owns(&corev1.Secret{}, builder.MatchEveryOwner).
		WithOptions(controller.Options{MaxConcurrentReconciles: hostWorkers}).
		Complete(r)
}

func (r *hostReconciler) Reconcile(ctx context.Context, request ctrl.Request) (_ ctrl.Result, err error) {
	host := &bmov1alpha1.BareMetalHost{}
	if err := r.live.Get(ctx, request.NamespacedName, host); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	// Only the pause annotation stops the operator. It ignores clusterctl's annotation delete-for-move, which replaces
	// all annotations, also the pause (Reconcile in baremetalhost_controller.go of the Bare Metal Operator).
	if _, paused := host.Annotations[bmov1alpha1.PausedAnnotation]; paused {
		return ctrl.Result{}, nil
	}
	if moved, err := r.restore(ctx, host); moved {
		return ctrl.Result{RequeueAfter: nextStep}, err
	}
	if host.DeletionTimestamp.IsZero() && !controllerutil.ContainsFinalizer(host, bmov1alpha1.BareMetalHostFinalizer) {
		before := host.DeepCopy()
		controllerutil.AddFinalizer(host, bmov1alpha1.BareMetalHostFinalizer)
		return ctrl.Result{}, r.Patch(ctx, host, client.MergeFrom(before))
	}
	before := host.DeepCopy()
	if host.Status.OperationalStatus == "" {
		host.Status.OperationalStatus = bmov1alpha1.OperationalStatusOK
	}
	wait, err := r.stepWithCredentials(ctx, host)
	if failed := (*failure)(nil); errors.As(err, &failed) {
		wait, err = r.fail(host, failed), nil
	}
	if err != nil {
		return ctrl.Result{}, err // retried, without an error in the status
	}
	if host.Status.Provisioning.State == bmov1alpha1.StateDeleting {
		return ctrl.Result{}, r.delete(ctx, host)
	}
	recordOperations(before.Status.Provisioning.State, host)
	if equality.Semantic.DeepEqual(before.Status, host.Status) {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	if wait == 0 {
		wait = nextStep
	}
	return ctrl.Result{RequeueAfter: wait}, r.writeStatus(ctx, before, host)
}

// specChanged is a predicate for changes of the generation, annotations and finalizers. Changes of the status are
// ignored, because they would bypass the backoff (updateEventHandler in baremetalhost_controller.go of the operator).
func specChanged() predicate.Predicate {
	return predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}, predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			return !slices.Equal(e.ObjectOld.GetFinalizers(), e.ObjectNew.GetFinalizers())
		},
	})
}

// recordOperations records in the status when the operations of a host started and ended (recordStateBegin and
// recordStateEnd in host_state_machine.go of the Bare Metal Operator).
func recordOperations(before bmov1alpha1.ProvisioningState, host *bmov1alpha1.BareMetalHost) {
	after, now := host.Status.Provisioning.State, metav1.Now()
	if before == after {
		return
	}
	if ended := host.OperationMetricForState(before); ended != nil && !ended.Start.IsZero() && ended.End.IsZero() {
		ended.End = now
	}
	if begun := host.OperationMetricForState(after); begun != nil && (begun.Start.IsZero() || !begun.End.IsZero()) {
		*begun = bmov1alpha1.OperationMetric{Start: now}
	}
}

// writeStatus patches a host's status, which keeps fields of newer operators that these types lack. It updates the
// first status, because a patch omits empty required fields.
func (r *hostReconciler) writeStatus(ctx context.Context, before, host *bmov1alpha1.BareMetalHost) error {
	if before.Status.OperationalStatus == "" {
		return r.Status().Update(ctx, host)
	}
	return r.Status().Patch(ctx, host, client.MergeFrom(before))
}

// step performs one step of the operator's state machine and sets the host's status. It returns the time to the next
// step. 0 is for the next step when the status has changed.
func (r *hostReconciler) step(ctx context.Context, host *bmov1alpha1.BareMetalHost) (time.Duration, error) {
	status := &host.Status
	next := func(state bmov1alpha1.ProvisioningState) { status.Provisioning.State = state }
	if !host.DeletionTimestamp.IsZero() {
		if state, changed := nextWhenDeleting(status.Provisioning.State); changed {
			next(state)
			return 0, nil
		}
	}
	switch status.Provisioning.State {
	case bmov1alpha1.StateNone, bmov1alpha1.StateUnmanaged:
		if host.HasBMCDetails() {
			next(bmov1alpha1.StateRegistering)
		} else {
			status.OperationalStatus = bmov1alpha1.OperationalStatusDiscovered
			next(bmov1alpha1.StateUnmanaged)
		}
	case bmov1alpha1.StateRegistering:
		status.ErrorCount = 0
		status.OperationalStatus = bmov1alpha1.OperationalStatusOK
		status.Provisioning.ID = string(host.UID)
		next(bmov1alpha1.StateInspecting)
	case bmov1alpha1.StateInspecting:
		if err := r.inspect(ctx, host); err != nil {
			return 0, err
		}
		next(bmov1alpha1.StatePreparing)
	case bmov1alpha1.StatePreparing:
		next(bmov1alpha1.StateAvailable)
	case bmov1alpha1.StateAvailable, bmov1alpha1.StateReady:
		if isImageWanted(host) && host.Spec.Online {
			r.end(host) // remains of an earlier operation
			next(bmov1alpha1.StateProvisioning)
		}
	case bmov1alpha1.StateProvisioning:
		// A failed deployment is cleaned before the next one (handleProvisioning in host_state_machine.go).
		if status.ErrorType != "" || !isImageWanted(host) {
			next(bmov1alpha1.StateDeprovisioning)
			return 0, nil
		}
		return r.provision(ctx, host)
	case bmov1alpha1.StateProvisioned:
		if !isImageWanted(host) {
			next(bmov1alpha1.StateDeprovisioning)
			return 0, nil
		}
		if wait, err := r.power(ctx, host); err != nil || wait > 0 {
			return wait, err
		}
		if status.ErrorType != "" {
			status.ErrorCount = 0
			clearError(host)
		}
	case bmov1alpha1.StateDeprovisioning:
		return r.deprovision(ctx, host)
	case bmov1alpha1.StatePoweringOffBeforeDelete:
		if err := r.options.Hardware.PowerOff(ctx, host); err != nil {
			return 0, &failure{kind: bmov1alpha1.PowerManagementError, err: fmt.Errorf("power off: %w", err)}
		}
		status.PoweredOn = false
		next(bmov1alpha1.StateDeleting)
	}
	return 0, nil
}

// nextWhenDeleting returns the next state of a host that is being deleted, and whether it differs: a deployed host is
// deprovisioned first (checkInitiateDelete in host_state_machine.go).
func nextWhenDeleting(state bmov1alpha1.ProvisioningState) (bmov1alpha1.ProvisioningState, bool) {
	switch state {
	case bmov1alpha1.StateNone, bmov1alpha1.StateUnmanaged, bmov1alpha1.StateRegistering:
		return bmov1alpha1.StateDeleting, true
	case bmov1alpha1.StateProvisioning, bmov1alpha1.StateProvisioned:
		return bmov1alpha1.StateDeprovisioning, true
	case bmov1alpha1.StateDeprovisioning, bmov1alpha1.StatePoweringOffBeforeDelete, bmov1alpha1.StateDeleting:
		return state, false
	}
	return bmov1alpha1.StatePoweringOffBeforeDelete, true
}

// failure is an error that the operator reports in the status and retries. It logs and retries all other errors.
type failure struct {
	kind bmov1alpha1.ErrorType
	err  error
	// retry is the time to the next try. 0 is for the backoff.
	retry time.Duration
}

func (f *failure) Error() string { return f.err.Error() }

// fail reports a failure in the status and returns the time to the next try. The backoff grows with each failure
// (setErrorMessage and calculateBackoff of the operator).
func (r *hostReconciler) fail(host *bmov1alpha1.BareMetalHost, f *failure) time.Duration {
	status := &host.Status
	status.OperationalStatus, status.ErrorType, status.ErrorMessage = bmov1alpha1.OperationalStatusError, f.kind, f.Error()
	status.ErrorCount++
	if f.retry > 0 {
		return f.retry
	}
	return r.options.Backoff << min(status.ErrorCount-1, maxBackoffs)
}

func clearError(host *bmov1alpha1.BareMetalHost) {
	host.Status.OperationalStatus, host.Status.ErrorType, host.Status.ErrorMessage = bmov1alpha1.OperationalStatusOK, "", ""
}

// isImageWanted reports whether a host's spec has something to deploy that does not differ from the deployed image
// (provisioningCancelled in host_state_machine.go).
func isImageWanted(host *bmov1alpha1.BareMetalHost) bool {
	if host.Spec.CustomDeploy != nil && host.Spec.CustomDeploy.Method != "" {
		return true
	}
	deployed := host.Status.Provisioning.Image.URL
	return host.Spec.Image != nil && host.Spec.Image.URL != "" && (deployed == "" || deployed == host.Spec.Image.URL)
}

// provision deploys the host's image and boots it with its user data, which is read when the deployment starts. Like
// Ironic, it reports the host as provisioned some time after the host runs. The host can have joined before that. Its
// power state is not read until then.
func (r *hostReconciler) provision(ctx context.Context, host *bmov1alpha1.BareMetalHost) (time.Duration, error) {
	deployment, found := r.current(host)
	if !found {
		userData, err := r.secretData(ctx, host, host.Spec.UserData, "userData")
		if err != nil {
			return 0, err
		}
		for key, ref := range map[string]*corev1.SecretReference{"metaData": host.Spec.MetaData, "networkData": host.Spec.NetworkData} {
			if _, err := r.secretData(ctx, host, ref, key); err != nil {
				return 0, err
			}
		}
		if host.Spec.Image.IsLiveISO() {
			userData = []byte{} // the real operator creates no config drive for it
		}
		deployment = r.begin(host, userData)
	}
	if left := r.options.Provisioning - time.Since(deployment.started); left > 0 {
		return left, nil
	}
	if !deployment.on {
		if err := r.options.Hardware.PowerOn(ctx, host, deployment.userData); err != nil {
			r.end(host)
			return 0, &failure{kind: bmov1alpha1.ProvisioningError, err: fmt.Errorf("power on: %w", err)}
		}
		r.poweredOn(host)
	}
	if left := r.options.Provisioning + r.options.Reporting - time.Since(deployment.started); left > 0 {
		return left, nil
	}
	status := &host.Status
	status.ErrorCount = 0
	status.Provisioning.State = bmov1alpha1.StateProvisioned
	if host.Spec.Image != nil {
		status.Provisioning.Image = *host.Spec.Image
	}
	status.Provisioning.CustomDeploy = host.Spec.CustomDeploy
	return 0, nil
}

// deprovision powers off the host and cleans it.
func (r *hostReconciler) deprovision(ctx context.Context, host *bmov1alpha1.BareMetalHost) (time.Duration, error) {
	status := &host.Status
	cleaning, found := r.current(host)
	if !found {
		if err := r.options.Hardware.PowerOff(ctx, host); err != nil {
			return 0, &failure{kind: bmov1alpha1.ProvisioningError, err: fmt.Errorf("power off: %w", err)}
		}
		clearError(host)
		status.PoweredOn = false
		cleaning = r.begin(host, nil)
	}
	if left := r.options.Deprovisioning - time.Since(cleaning.started); left > 0 {
		return left, nil
	}
	status.Provisioning = bmov1alpha1.ProvisionStatus{State: bmov1alpha1.StateAvailable, ID: status.Provisioning.ID}
	if !host.DeletionTimestamp.IsZero() {
		status.Provisioning.State = bmov1alpha1.StatePoweringOffBeforeDelete
	}
	return 0, nil
}

// power sets the power state of a provisioned host, and applies firmware to one that is off. The annotation
// reboot.metal3.io requests a power cycle, and is removed when the host is off. reboot.metal3.io/<anything> keeps the
// host off. It returns a time if it must be called again first (manageHostPower in baremetalhost_controller.go).
func (r *hostReconciler) power(ctx context.Context, host *bmov1alpha1.BareMetalHost) (time.Duration, error) {
	if !host.Status.PoweredOn && r.takeDeployed(host) {
		host.Status.PoweredOn = true // on since its deployment
		return 0, nil
	}
	_, cycle := host.Annotations[bmov1alpha1.RebootAnnotationPrefix]
	if !host.Status.PoweredOn && cycle {
		without := &bmov1alpha1.BareMetalHost{ObjectMeta: *host.ObjectMeta.DeepCopy()}
		before := without.DeepCopy()
		delete(without.Annotations, bmov1alpha1.RebootAnnotationPrefix)
		if err := r.Patch(ctx, without, client.MergeFrom(before)); err != nil {
			return 0, err
		}
		return nextStep, nil
	}
	if !host.Status.PoweredOn && host.Spec.Online || host.Status.OperationalStatus == bmov1alpha1.OperationalStatusServicing || host.Status.ErrorType == bmov1alpha1.ServicingError {
		if wait, err := r.service(ctx, host); err != nil || wait > 0 {
			return wait, err
		}
	}
	on := host.Spec.Online && !cycle
	for key := range host.Annotations {
		if strings.HasPrefix(key, bmov1alpha1.RebootAnnotationPrefix+"/") {
			on = false
		}
	}
	switch {
	case host.Status.PoweredOn && !on:
		if err := r.options.Hardware.PowerOff(ctx, host); err != nil {
			return 0, &failure{kind: bmov1alpha1.PowerManagementError, err: fmt.Errorf("power off: %w", err)}
		}
		host.Status.PoweredOn = false
	case !host.Status.PoweredOn && on:
		if err := r.options.Hardware.PowerOn(ctx, host, nil); err != nil {
			return 0, &failure{kind: bmov1alpha1.PowerManagementError, err: fmt.Errorf("power on: %w", err)}
		}
		host.Status.PoweredOn = true
	}
	return 0, nil
}

// delete removes the finalizer of a host that is cleaned and powered off.
func (r *hostReconciler) delete(ctx context.Context, host *bmov1alpha1.BareMetalHost) error {
	r.end(host)
	data := &bmov1alpha1.HardwareData{ObjectMeta: metav1.ObjectMeta{Namespace: host.Namespace, Name: host.Name}}
	if err := client.IgnoreNotFound(r.Delete(ctx, data)); err != nil {
		return err
	}
	before := host.DeepCopy()
	controllerutil.RemoveFinalizer(host, bmov1alpha1.BareMetalHostFinalizer)
	return client.IgnoreNotFound(r.Patch(ctx, host, client.MergeFrom(before)))
}
