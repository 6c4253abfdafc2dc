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

// This file handles what Metal3 deploys on a host, and what happens when Metal3 removes it. The watch on BareMetalHosts
// triggers it.

// announce reports in one write which host was chosen, or that the host will never send a request because its image
// gets no user data. Before a host is chosen, there is nothing to report.
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

// readsUserData returns an error if the host will never send a request: baremetal-operator gives no user data to a host
// that boots a live ISO.
func readsUserData(h *host.Host) error {
	if h.Object == nil || !h.Object.Spec.Image.IsLiveISO() {
		return nil
	}
	remedy := "give it a disk image"
	if h.Metal3Machine.Name != "" {
		remedy = "give the Metal3MachineTemplate of Metal3Machine " + h.Metal3Machine.Name + " a disk image"
	}
	return fault(bootstrapv1.HostImageIgnoresUserDataReason, "BareMetalHost %s: spec.image.format is live-iso, and such an image gets no user data, so the host "+
		"will never ask for its configuration: %s", h.Name, remedy)
}

// isDeployed reports whether a host runs what its Machine deploys, or is about to.
func isDeployed(h *host.Host) bool {
	switch h.State {
	case bmov1alpha1.StateDeprovisioning, bmov1alpha1.StatePoweringOffBeforeDelete, bmov1alpha1.StateDeleting,
		bmov1alpha1.StateAvailable, bmov1alpha1.StateReady, bmov1alpha1.StatePreparing:
		return false
	}
	return true
}

// findDeployedHost sets the host that boots. A host that is being wiped, or is not being provisioned yet, runs what it
// had before. It gets nothing, because otherwise two hosts could join with the credential of one Node.
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

// hostLeft returns why the recorded host no longer belongs to the Machine, or no longer has what was deployed on it. It
// returns "" if neither is the case.
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

// guard withdraws the boot if its host is wiped or replaced before it has joined: it deletes the overlay, the join
// credential, and the Node unless a kubelet has registered. The token stays valid: the next host uses it, or the same
// host after it is provisioned again. guard reports whether nothing more is to be done for this boot.
func (r *Reconciler) guard(ctx context.Context, s *scope) (bool, error) {
	if left, err := s.hostLeft(ctx, r.Client); err != nil || left == "" {
		return false, err
	}
	// The cache can be stale, and a host whose boot is withdrawn by mistake must be provisioned again.
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
	// This write precedes the deletions. Otherwise the node controller would report the Node as missing.
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
			return // the host has sent another request in the meantime
		}
		status := &config.Status
		status.Boot.CredentialID, status.Boot.CredentialExpirationTime = "", nil
		status.Boot.PreparedTime = &metav1.MicroTime{Time: time.Now()} // earlier requests count as answered
		status.HostRef, status.DerivedNodeLabels = bootstrapv1.HostReference{}, nil
		status.Boot.HostChosenTime, status.Boot.ServedTime, status.Boot.Addresses = nil, nil, nil
		if !nodeStays {
			status.NodeRef = bootstrapv1.NodeReference{}
			conditions.Delete(config, bootstrapv1.NodeInPoolCondition) // it describes a Node that no longer exists
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

// isStanding reports whether a host has its configuration or can get it at any time.
func isStanding(n need) bool { return n == upkeep || n == standing }

// replaceNode recreates a Node that was pre-registered for another host. Its spec.providerID names that host and is
// immutable. No kubelet has registered as this Node.
func (s *scope) replaceNode(ctx context.Context) error {
	err := s.workload.Delete(ctx, s.node, client.Preconditions{UID: &s.node.UID, ResourceVersion: &s.node.ResourceVersion})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	s.node, s.otherHost = s.registration.Node(), true
	return s.workload.Create(ctx, s.node)
}
