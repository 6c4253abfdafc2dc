package metal3

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterctlv1 "sigs.k8s.io/cluster-api/cmd/clusterctl/api/v1alpha3"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// hostWorkers is how many hosts are worked on at once.
const hostWorkers = 10

// hostReconciler does the baremetal-operator's part: a host is inspected, provisioned with what its spec names, switched on
// and off, and deprovisioned when its spec names nothing more.
type hostReconciler struct {
	client.Client
	hosts   client.Reader // not a cache: what was done once must not be done again
	options Options

	mu   sync.Mutex
	work map[types.UID]work
}

// work is an operation that takes its time. It is in memory only: a simulator that is started again starts it again.
type work struct {
	state    bmov1alpha1.ProvisioningState
	started  time.Time
	userData []byte // as it was when the operation started
}

func (r *hostReconciler) setUp(mgr ctrl.Manager) error {
	r.work = map[types.UID]work{}
	return ctrl.NewControllerManagedBy(mgr).
		For(&bmov1alpha1.BareMetalHost{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: hostWorkers}).
		Complete(r)
}

func (r *hostReconciler) Reconcile(ctx context.Context, request ctrl.Request) (_ ctrl.Result, err error) {
	host := &bmov1alpha1.BareMetalHost{}
	if err := r.hosts.Get(ctx, request.NamespacedName, host); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	// clusterctl takes every other annotation off what it deletes after a move, the pause too.
	_, paused := host.Annotations[bmov1alpha1.PausedAnnotation]
	if _, moved := host.Annotations[clusterctlv1.DeleteForMoveAnnotation]; paused || moved {
		return ctrl.Result{}, nil
	}
	if moved, err := r.restore(ctx, host); moved {
		return ctrl.Result{}, err
	}
	if !host.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, r.delete(ctx, host)
	}
	if !controllerutil.ContainsFinalizer(host, bmov1alpha1.BareMetalHostFinalizer) {
		before := host.DeepCopy()
		controllerutil.AddFinalizer(host, bmov1alpha1.BareMetalHostFinalizer)
		return ctrl.Result{}, r.Patch(ctx, host, client.MergeFrom(before))
	}
	before := host.DeepCopy()
	wait, err := r.step(ctx, host)
	host.Status.OperationalStatus, host.Status.ErrorType, host.Status.ErrorMessage = bmov1alpha1.OperationalStatusOK, "", ""
	if err != nil {
		host.Status.OperationalStatus = bmov1alpha1.OperationalStatusError
		host.Status.ErrorType = bmov1alpha1.ProvisioningError
		host.Status.ErrorMessage = err.Error()
	}
	if writeErr := r.writeStatus(ctx, before, host); writeErr != nil {
		return ctrl.Result{}, writeErr
	}
	return ctrl.Result{RequeueAfter: wait}, err
}

// writeStatus writes a host's status by a patch, which keeps the fields of newer operators that these types lack. The first
// status is written whole, since a patch would leave out required fields that are empty.
func (r *hostReconciler) writeStatus(ctx context.Context, before, host *bmov1alpha1.BareMetalHost) error {
	if before.Status.OperationalStatus == "" {
		return r.Status().Update(ctx, host)
	}
	return r.Status().Patch(ctx, host, client.MergeFrom(before))
}

// step does what a host's state asks for and writes the result in its status. It returns how long to wait for the next
// step; a status that changes brings one by itself.
func (r *hostReconciler) step(ctx context.Context, host *bmov1alpha1.BareMetalHost) (time.Duration, error) {
	status := &host.Status
	switch status.Provisioning.State {
	case bmov1alpha1.StateNone:
		return 0, r.inspect(ctx, host)
	case bmov1alpha1.StateAvailable, bmov1alpha1.StateReady:
		if wanted(host) && host.Spec.Online {
			status.Provisioning.State = bmov1alpha1.StateProvisioning
		}
	case bmov1alpha1.StateProvisioning:
		if !wanted(host) {
			status.Provisioning.State = bmov1alpha1.StateDeprovisioning
			return 0, nil
		}
		return r.provision(ctx, host)
	case bmov1alpha1.StateProvisioned:
		if !wanted(host) {
			status.Provisioning.State = bmov1alpha1.StateDeprovisioning
			return 0, nil
		}
		return 0, r.power(ctx, host)
	case bmov1alpha1.StateDeprovisioning:
		return r.deprovision(ctx, host)
	}
	return 0, nil
}

// wanted says whether a host's spec names something to deploy.
func wanted(host *bmov1alpha1.BareMetalHost) bool {
	return host.Spec.Image != nil && host.Spec.Image.URL != "" ||
		host.Spec.CustomDeploy != nil && host.Spec.CustomDeploy.Method != ""
}

// provision deploys the host's image and boots it with its user data, which is read when the deployment starts.
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
	if err := r.options.Hardware.PowerOn(ctx, host, deployment.userData); err != nil {
		return 0, fmt.Errorf("power on: %w", err)
	}
	status := &host.Status
	status.PoweredOn = true
	status.Provisioning.State = bmov1alpha1.StateProvisioned
	if host.Spec.Image != nil {
		status.Provisioning.Image = *host.Spec.Image
	}
	status.Provisioning.CustomDeploy = host.Spec.CustomDeploy
	return 0, nil
}

// deprovision switches the host off and cleans it.
func (r *hostReconciler) deprovision(ctx context.Context, host *bmov1alpha1.BareMetalHost) (time.Duration, error) {
	if err := r.options.Hardware.PowerOff(ctx, host); err != nil {
		return 0, fmt.Errorf("power off: %w", err)
	}
	status := &host.Status
	status.PoweredOn = false
	cleaning, found := r.current(host)
	if !found {
		cleaning = r.begin(host, nil)
	}
	if left := r.options.Deprovisioning - time.Since(cleaning.started); left > 0 {
		return left, nil
	}
	status.Provisioning = bmov1alpha1.ProvisionStatus{State: bmov1alpha1.StateAvailable, ID: status.Provisioning.ID}
	return 0, nil
}

// power brings a provisioned host to the power state that is asked for. The annotation reboot.metal3.io asks for one
// power cycle; reboot.metal3.io/<anything> keeps the host off for as long as it is there.
func (r *hostReconciler) power(ctx context.Context, host *bmov1alpha1.BareMetalHost) error {
	_, cycle := host.Annotations[bmov1alpha1.RebootAnnotationPrefix]
	on := host.Spec.Online
	for key := range host.Annotations {
		if strings.HasPrefix(key, bmov1alpha1.RebootAnnotationPrefix+"/") {
			on = false
		}
	}
	if host.Status.PoweredOn && (cycle || !on) {
		if err := r.options.Hardware.PowerOff(ctx, host); err != nil {
			return fmt.Errorf("power off: %w", err)
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
			return fmt.Errorf("power on: %w", err)
		}
		host.Status.PoweredOn = true
	}
	return nil
}

// userData reads the bytes that a host boots with: the Secret's key userData, else value, as the baremetal-operator does.
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
		return nil, fmt.Errorf("user data of host %s: %w", host.Name, err)
	}
	for _, name := range []string{"userData", "value"} {
		if data, ok := secret.Data[name]; ok {
			return data, nil
		}
	}
	return nil, fmt.Errorf("user data of host %s: Secret %s has neither key userData nor value", host.Name, key)
}

func (r *hostReconciler) delete(ctx context.Context, host *bmov1alpha1.BareMetalHost) error {
	if err := r.options.Hardware.PowerOff(ctx, host); err != nil {
		return fmt.Errorf("power off: %w", err)
	}
	r.mu.Lock()
	delete(r.work, host.UID)
	r.mu.Unlock()
	data := &bmov1alpha1.HardwareData{ObjectMeta: metav1.ObjectMeta{Namespace: host.Namespace, Name: host.Name}}
	if err := client.IgnoreNotFound(r.Delete(ctx, data)); err != nil {
		return err
	}
	before := host.DeepCopy()
	controllerutil.RemoveFinalizer(host, bmov1alpha1.BareMetalHostFinalizer)
	return client.IgnoreNotFound(r.Patch(ctx, host, client.MergeFrom(before)))
}

// current returns the operation of the host's state, if it has begun. That of an earlier state counts for nothing: between
// two deployments there is always a cleaning.
func (r *hostReconciler) current(host *bmov1alpha1.BareMetalHost) (work, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w, ok := r.work[host.UID]
	return w, ok && w.state == host.Status.Provisioning.State
}

func (r *hostReconciler) begin(host *bmov1alpha1.BareMetalHost, userData []byte) work {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := work{state: host.Status.Provisioning.State, started: time.Now(), userData: userData}
	r.work[host.UID] = w
	return w
}
