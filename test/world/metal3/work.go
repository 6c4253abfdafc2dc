package metal3

import (
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
)

// work is an operation that takes its time. It is in memory only: a simulator that is started again starts it again.
type work struct {
	state    bmov1alpha1.ProvisioningState
	started  time.Time
	userData []byte // as it was when the operation started
	// on is true once the host runs what was deployed.
	on bool
}

// current returns the operation of the host's state, if it has begun. That of an earlier state counts for nothing:
// between two deployments there is always a cleaning.
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

// poweredOn notes that a host runs what is being deployed on it.
func (r *hostReconciler) poweredOn(host *bmov1alpha1.BareMetalHost) {
	r.mu.Lock()
	defer r.mu.Unlock()
	w := r.work[host.UID]
	w.on = true
	r.work[host.UID] = w
}

// takeDeployed says, once, whether a host runs what was deployed on it since its deployment.
func (r *hostReconciler) takeDeployed(host *bmov1alpha1.BareMetalHost) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	was := r.work[host.UID].on
	delete(r.work, host.UID)
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
