package metal3

import (
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
)

// work is an operation that takes time. It is in memory only: a restarted simulator starts it again.
type work struct {
	state    bmov1alpha1.ProvisioningState
	started  time.Time
	userData []byte // at the start of the operation
	// on is true when the host runs the deployed image.
	on bool
}

// current returns the operation of the host's state, if it has started. It ignores the operations of earlier states:
// there is always a cleaning between two deployments.
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

// poweredOn records that a host runs the deployed image.
func (r *hostReconciler) poweredOn(host *bmov1alpha1.BareMetalHost) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.work[host.UID]
	w.on = true
	r.work[host.UID] = w
}

// takeDeployed reports once whether a host has been running since its deployment.
func (r *hostReconciler) takeDeployed(host *bmov1alpha1.BareMetalHost) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	was := r.work[host.UID].on
	if was {
		delete(r.work, host.UID)
	}
	return was
}

func (r *hostReconciler) end(host *bmov1alpha1.BareMetalHost) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.work, host.UID)
}

func (r *hostReconciler) ironicStopped() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.stopped
}
