package boot

import (
	"context"
	"errors"
	"fmt"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
)

// What Metal3 deploys on a host, and when it takes that back, is in this file. The watch on BareMetalHosts leads here.

// announce says in one write which host was chosen or, of one whose image can't read user data, that it is waited for
// in vain. Until one is chosen there is nothing to say.
func (r *Reconciler) announce(ctx context.Context, s *scope) error {
	err := r.findHost(ctx, s)
	if is[*host.NotReadyError](err) && !conditions.Has(s.config, bootstrapv1.BootPreparedCondition) || err == nil && s.machine != nil && s.host.Object == nil {
		return nil
	}
	if err == nil {
		err = readsUserData(s.host)
	}
	if why := (*failure)(nil); errors.As(err, &why) {
		_, err := r.setCondition(ctx, s, why)
		return err
	}
	if err != nil {
		_, err := r.setCondition(ctx, s, waiting(err))
		return err
	}
	err = r.patchStatus(ctx, s, func(config *bootstrapv1.PoolbootConfig) {
		if need := needOf(config); need != announcement && need != adoption {
			return
		}
		s.chooseHost(&config.Status)
		conditions.Set(config, metav1.Condition{Type: bootstrapv1.BootPreparedCondition, Status: metav1.ConditionUnknown,
			Reason: bootstrapv1.WaitingForHostReason, Message: fmt.Sprintf("host %s was chosen and has not asked for its configuration yet", s.host.Name)})
	})
	if errors.Is(err, errAbandoned) {
		return nil
	}
	return err
}

// readsUserData finds a host that will never ask: baremetal-operator hands no user data to one that boots a live ISO.
func readsUserData(h *host.Host) error {
	if h.Object == nil || !h.Object.Spec.Image.IsLiveISO() {
		return nil
	}
	cure := "give it a disk image"
	if h.Metal3Machine.Name != "" {
		cure = "give the Metal3MachineTemplate of Metal3Machine " + h.Metal3Machine.Name + " a disk image"
	}
	return fault(bootstrapv1.HostImageIgnoresUserDataReason, "BareMetalHost %s: spec.image.format is live-iso, and such an image gets no user data, so the host "+
		"will never ask for its configuration: %s", h.Name, cure)
}

// isDeployed says whether a host runs, or is about to run, what its Machine wants of it.
func isDeployed(h *host.Host) bool {
	switch h.State {
	case bmov1alpha1.StateDeprovisioning, bmov1alpha1.StatePoweringOffBeforeDelete, bmov1alpha1.StateDeleting,
		bmov1alpha1.StateAvailable, bmov1alpha1.StateReady, bmov1alpha1.StatePreparing:
		return false
	}
	return true
}

// findDeployedHost finds the host that boots. One that is being wiped, or is not being installed yet, boots what it had
// before: it gets nothing, or two hosts could join with one Node's credential.
func (r *Reconciler) findDeployedHost(ctx context.Context, s *scope) error {
	if err := r.findHost(ctx, s); err != nil {
		return err
	}
	if !isDeployed(s.host) {
		return &host.NotReadyError{Why: fmt.Sprintf("BareMetalHost %s is %s: whatever asks is not what Metal3Machine %s wants on it",
			s.host.Name, s.host.State, s.host.Metal3Machine.Name)}
	}
	return nil
}

// hostLeft says why the host that a configuration was made for no longer is the Machine's, or no longer has what was
// deployed on it; "" while it is and has.
func (s *scope) hostLeft(ctx context.Context, c client.Reader) (string, error) {
	made := s.config.Status.HostRef
	if s.machine == nil || !made.IsDefined() {
		return "", nil
	}
	is, err := host.ForConfig(ctx, c, s.config, s.machine)
	notReady := (*host.NotReadyError)(nil)
	switch {
	case errors.As(err, &notReady):
		return notReady.Why, nil
	case err != nil || is == nil:
		return "", err
	case is.Name != made.Name:
		return fmt.Sprintf("BareMetalHost %s has taken the place of %s", is.Name, made.Name), nil
	case !isDeployed(is):
		return fmt.Sprintf("BareMetalHost %s is %s", is.Name, is.State), nil
	}
	return "", nil
}

// guard takes back what was made for a host when the host is wiped or another one takes its place before it has joined:
// its overlay, its join credential, and the Node unless a kubelet has come. The token stays: with it the next host
// asks, or the same one once it is installed again. It says whether there is nothing more to do for this boot.
func (r *Reconciler) guard(ctx context.Context, s *scope) (bool, error) {
	if left, err := s.hostLeft(ctx, r.Client); err != nil || left == "" {
		return false, err
	}
	// The cache has been behind before, and a host that is there would need another provisioning.
	why, err := s.hostLeft(ctx, r.APIReader)
	if err != nil || why == "" {
		return false, err
	}
	config := &bootstrapv1.PoolbootConfig{}
	if err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(s.config), config); err != nil {
		return true, client.IgnoreNotFound(err)
	}
	if s.config = config; !isStanding(needOf(config)) {
		return true, nil
	}
	if err := r.remote(r.connect)(ctx, s); err != nil {
		return true, err
	}
	boot := config.Status.Boot
	s.credential.ID = boot.CredentialID
	if made := config.Status.NodeRef; made.IsDefined() {
		s.node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: made.Name}}
		if err := s.workload.Get(ctx, client.ObjectKey{Name: made.Name}, s.node); client.IgnoreNotFound(err) != nil {
			return true, err
		}
	}
	withdrawn := metav1.Condition{Type: bootstrapv1.BootPreparedCondition, Status: metav1.ConditionUnknown,
		Reason: bootstrapv1.WaitingForHostReason, Message: why + ": no host has asked for its configuration since"}
	// Ahead of the deletions, so that nobody takes the Node for one that was lost.
	err = r.patchStatus(ctx, s, func(config *bootstrapv1.PoolbootConfig) {
		if record.IsCredential(config, boot.CredentialID) {
			conditions.Set(config, withdrawn)
		}
	})
	if errors.Is(err, errAbandoned) {
		return true, nil
	} else if err != nil {
		return true, err
	}
	if err := r.withdraw(ctx, s); err != nil {
		return true, err
	}
	nodeStays := s.node != nil && s.node.UID != "" && record.HasKubelet(s.node)
	err = r.patchStatus(ctx, s, func(config *bootstrapv1.PoolbootConfig) {
		if !record.IsCredential(config, boot.CredentialID) {
			return // the host has asked anew meanwhile
		}
		status := &config.Status
		status.Boot.CredentialID, status.Boot.CredentialExpirationTime = "", nil
		status.Boot.PreparedTime = &metav1.MicroTime{Time: time.Now()} // what was asked before is answered
		status.HostRef, status.DerivedNodeLabels = bootstrapv1.HostReference{}, nil
		status.Boot.HostChosenTime, status.Boot.ServedTime, status.Boot.Addresses = nil, nil, nil
		if !nodeStays {
			status.NodeRef = bootstrapv1.NodeReference{}
			conditions.Delete(config, bootstrapv1.NodeInPoolCondition) // it is about a Node that does not exist any more
		}
		conditions.Set(config, withdrawn)
	})
	if errors.Is(err, errAbandoned) {
		return true, nil
	}
	if err == nil {
		r.Recorder.Eventf(s.config, s.related(), corev1.EventTypeNormal, bootstrapv1.EventBootWithdrawn, action,
			"%s before its Node was Ready: its join credential and its overlay are deleted", why)
	}
	return true, err
}

// isStanding says whether a host has its configuration, or may fetch it any moment.
func isStanding(n need) bool { return n == upkeep || n == standing }

// replaceNode makes the Node anew that was made for another host, which its spec.providerID, that can't be changed,
// names. No kubelet has come to it.
func (s *scope) replaceNode(ctx context.Context) error {
	err := s.workload.Delete(ctx, s.node, client.Preconditions{UID: &s.node.UID, ResourceVersion: &s.node.ResourceVersion})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	s.node, s.otherHost = s.registration.Node(), true
	return s.workload.Create(ctx, s.node)
}
