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
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// hostWorkers is how many hosts are worked on at once, and maxBackoffs how often the wait after a failure doubles.
const hostWorkers, maxBackoffs = 10, 6

// nextStep is the wait between two steps that need none.
const nextStep = time.Millisecond

// hostReconciler does the baremetal-operator's part: a host is inspected, provisioned with what its spec names,
// switched on and off, and deprovisioned when its spec names nothing more.
type hostReconciler struct {
	client.Client
	hosts   client.Reader // not a cache: what was done once must not be done again
	options Options

	mu   sync.Mutex
	work map[types.UID]work
	// stopped is true while Ironic, which does everything to hardware, is.
	stopped bool
	// again brings hosts back when Ironic runs again.
	again chan event.GenericEvent
}

func (r *hostReconciler) setUp(mgr ctrl.Manager) error {
	r.work = map[types.UID]work{}
	return ctrl.NewControllerManagedBy(mgr).
		For(&bmov1alpha1.BareMetalHost{}, builder.WithPredicates(asked())).
		WatchesRawSource(source.Channel(r.again, &handler.EnqueueRequestForObject{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: hostWorkers}).
		Complete(r)
}

func (r *hostReconciler) Reconcile(ctx context.Context, request ctrl.Request) (_ ctrl.Result, err error) {
	host := &bmov1alpha1.BareMetalHost{}
	if err := r.hosts.Get(ctx, request.NamespacedName, host); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	// The pause is all that keeps the operator from a host: it knows nothing of clusterctl's annotation
	// delete-for-move, which takes the place of all others, the pause too (Reconcile in baremetalhost_controller.go of
	// the baremetal-operator).
	if _, paused := host.Annotations[bmov1alpha1.PausedAnnotation]; paused || r.ironicStopped() {
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
	wait, err := r.step(ctx, host)
	if failed := (*failure)(nil); errors.As(err, &failed) {
		wait, err = r.fail(host, failed), nil
	}
	if err != nil {
		return ctrl.Result{}, err // it is not told in the status, and tried again
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

// asked lets those changes of a host through that ask for something: its own status does not bring it back, or there
// would be no backoff (updateEventHandler in baremetalhost_controller.go of the operator).
func asked() predicate.Predicate {
	return predicate.Or(predicate.GenerationChangedPredicate{}, predicate.AnnotationChangedPredicate{}, predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			return !slices.Equal(e.ObjectOld.GetFinalizers(), e.ObjectNew.GetFinalizers())
		},
	})
}

// recordOperations notes in the status when the operations of a host began and ended (recordStateBegin and
// recordStateEnd in host_state_machine.go of the baremetal-operator).
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

// writeStatus writes a host's status by a patch, which keeps the fields of newer operators that these types lack. The
// first status is written whole, since a patch would leave out required fields that are empty.
func (r *hostReconciler) writeStatus(ctx context.Context, before, host *bmov1alpha1.BareMetalHost) error {
	if before.Status.OperationalStatus == "" {
		return r.Status().Update(ctx, host)
	}
	return r.Status().Patch(ctx, host, client.MergeFrom(before))
}

// step does what a host's state asks for and writes the result in its status: one state at a time, as the operator's
// state machine does. It returns how long to wait for the next step; without a wait it is next when the status has
// changed.
func (r *hostReconciler) step(ctx context.Context, host *bmov1alpha1.BareMetalHost) (time.Duration, error) {
	status := &host.Status
	next := func(state bmov1alpha1.ProvisioningState) { status.Provisioning.State = state }
	if !host.DeletionTimestamp.IsZero() {
		if state, goes := onItsWayOut(status.Provisioning.State); goes {
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
		if wanted(host) && host.Spec.Online {
			r.end(host) // whatever is left of an earlier one
			next(bmov1alpha1.StateProvisioning)
		}
	case bmov1alpha1.StateProvisioning:
		// A deployment that failed is cleaned away before the next one (handleProvisioning in host_state_machine.go).
		if status.ErrorType != "" || !wanted(host) {
			next(bmov1alpha1.StateDeprovisioning)
			return 0, nil
		}
		return r.provision(ctx, host)
	case bmov1alpha1.StateProvisioned:
		if !wanted(host) {
			next(bmov1alpha1.StateDeprovisioning)
			return 0, nil
		}
		if err := r.power(ctx, host); err != nil {
			return 0, err
		}
		if status.ErrorType != "" {
			status.ErrorCount = 0
			clearError(host)
		}
	case bmov1alpha1.StateDeprovisioning:
		return r.deprovision(ctx, host)
	case bmov1alpha1.StatePoweringOffBeforeDelete:
		if err := r.options.Hardware.PowerOff(ctx, host); err != nil {
			return 0, &failure{bmov1alpha1.PowerManagementError, fmt.Errorf("power off: %w", err)}
		}
		status.PoweredOn = false
		next(bmov1alpha1.StateDeleting)
	}
	return 0, nil
}

// onItsWayOut returns the next state of a host that is being deleted, and whether that is another one: what is deployed
// is cleaned away first (checkInitiateDelete in host_state_machine.go).
func onItsWayOut(state bmov1alpha1.ProvisioningState) (bmov1alpha1.ProvisioningState, bool) {
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

// failure is an error that the operator tells in the status; it tries again when the backoff is over. Any other one it
// logs and retries.
type failure struct {
	kind bmov1alpha1.ErrorType
	err  error
}

func (f *failure) Error() string { return f.err.Error() }

// fail tells a failure and returns when to go on: later after each (setErrorMessage and calculateBackoff of the
// operator).
func (r *hostReconciler) fail(host *bmov1alpha1.BareMetalHost, f *failure) time.Duration {
	status := &host.Status
	status.OperationalStatus, status.ErrorType, status.ErrorMessage = bmov1alpha1.OperationalStatusError, f.kind, f.Error()
	status.ErrorCount++
	return r.options.Backoff << min(status.ErrorCount-1, maxBackoffs)
}

func clearError(host *bmov1alpha1.BareMetalHost) {
	host.Status.OperationalStatus, host.Status.ErrorType, host.Status.ErrorMessage = bmov1alpha1.OperationalStatusOK, "", ""
}

// wanted says whether a host's spec names something to deploy, and nothing else than what is deployed
// (provisioningCancelled in host_state_machine.go).
func wanted(host *bmov1alpha1.BareMetalHost) bool {
	if host.Spec.CustomDeploy != nil && host.Spec.CustomDeploy.Method != "" {
		return true
	}
	deployed := host.Status.Provisioning.Image.URL
	return host.Spec.Image != nil && host.Spec.Image.URL != "" && (deployed == "" || deployed == host.Spec.Image.URL)
}

// provision deploys the host's image and boots it with its user data, which is read when the deployment starts. Like
// Ironic it calls the host provisioned some time after that runs: the host may have asked and joined by then. Until
// then nobody looks whether it is on.
func (r *hostReconciler) provision(ctx context.Context, host *bmov1alpha1.BareMetalHost) (time.Duration, error) {
	deployment, found := r.current(host)
	if !found {
		userData, err := r.userData(ctx, host)
		if err != nil {
			return 0, err
		}
		if host.Spec.Image.IsLiveISO() {
			userData = []byte{} // the real operator makes no config drive for it
		}
		deployment = r.begin(host, userData)
	}
	if left := r.options.Provisioning - time.Since(deployment.started); left > 0 {
		return left, nil
	}
	if !deployment.on {
		if err := r.options.Hardware.PowerOn(ctx, host, deployment.userData); err != nil {
			r.end(host)
			return 0, &failure{bmov1alpha1.ProvisioningError, fmt.Errorf("power on: %w", err)}
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

// deprovision switches the host off and cleans it.
func (r *hostReconciler) deprovision(ctx context.Context, host *bmov1alpha1.BareMetalHost) (time.Duration, error) {
	status := &host.Status
	cleaning, found := r.current(host)
	if !found {
		if err := r.options.Hardware.PowerOff(ctx, host); err != nil {
			return 0, &failure{bmov1alpha1.ProvisioningError, fmt.Errorf("power off: %w", err)}
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

// power brings a provisioned host to the power state that is asked for. The annotation reboot.metal3.io asks for one
// power cycle; reboot.metal3.io/<anything> keeps the host off for as long as it is there.
func (r *hostReconciler) power(ctx context.Context, host *bmov1alpha1.BareMetalHost) error {
	if !host.Status.PoweredOn && r.takeDeployed(host) {
		host.Status.PoweredOn = true // it has been since it was deployed
		return nil
	}
	_, cycle := host.Annotations[bmov1alpha1.RebootAnnotationPrefix]
	on := host.Spec.Online
	for key := range host.Annotations {
		if strings.HasPrefix(key, bmov1alpha1.RebootAnnotationPrefix+"/") {
			on = false
		}
	}
	if host.Status.PoweredOn && (cycle || !on) {
		if err := r.options.Hardware.PowerOff(ctx, host); err != nil {
			return &failure{bmov1alpha1.PowerManagementError, fmt.Errorf("power off: %w", err)}
		}
		host.Status.PoweredOn = false
	}
	if cycle {
		without := &bmov1alpha1.BareMetalHost{ObjectMeta: *host.ObjectMeta.DeepCopy()}
		before := without.DeepCopy()
		delete(without.Annotations, bmov1alpha1.RebootAnnotationPrefix)
		if err := r.Patch(ctx, without, client.MergeFrom(before)); err != nil {
			return err
		}
	}
	if on && !host.Status.PoweredOn {
		if err := r.options.Hardware.PowerOn(ctx, host, nil); err != nil {
			return &failure{bmov1alpha1.PowerManagementError, fmt.Errorf("power on: %w", err)}
		}
		host.Status.PoweredOn = true
	}
	return nil
}

// environmentLabel is on Secrets that the operator reads, so that its cache has them (pkg/secretutils of the
// baremetal-operator).
const environmentLabel, environment = "environment.metal3.io", "baremetal"

// userData reads the bytes that a host boots with: the Secret's key userData, else value, as the baremetal-operator
// does, which labels the Secret.
func (r *hostReconciler) userData(ctx context.Context, host *bmov1alpha1.BareMetalHost) ([]byte, error) {
	if host.Spec.UserData == nil {
		return []byte{}, nil
	}
	key := client.ObjectKey{Namespace: host.Spec.UserData.Namespace, Name: host.Spec.UserData.Name}
	if key.Namespace == "" {
		key.Namespace = host.Namespace
	}
	secret := &corev1.Secret{}
	if err := r.Get(ctx, key, secret); err != nil {
		return nil, fmt.Errorf("could not retrieve user data: host %s: %w", host.Name, err)
	}
	if secret.Labels[environmentLabel] == "" {
		before := secret.DeepCopy()
		metav1.SetMetaDataLabel(&secret.ObjectMeta, environmentLabel, environment)
		if err := r.Patch(ctx, secret, client.MergeFrom(before)); err != nil {
			return nil, fmt.Errorf("label %s on Secret %s: %w", environmentLabel, key, err)
		}
	}
	for _, name := range []string{"userData", "value"} {
		if data, ok := secret.Data[name]; ok {
			return data, nil
		}
	}
	return nil, fmt.Errorf("could not retrieve user data: host %s: Secret %s has neither key userData nor value", host.Name, key)
}

// delete lets a host go that is cleaned and off.
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
