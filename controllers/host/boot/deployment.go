package boot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/cluster-api/util/conditions"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/pool"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
)

// announce reports which host was chosen and why Metal3 does not get on with it, or that the host will
// never send a request because its image gets no user data. Before a host is chosen, there is nothing to report.
func (r *Phases) announce(ctx context.Context, s *state) (ctrl.Result, error) {
	err := r.findHost(ctx, s)
	notReady, isNotReady := errors.AsType[*host.NotReadyError](err)
	if isNotReady && !notReady.NeedsUser && !conditions.Has(s.Config, bootstrapv1.BootPreparedCondition) {
		result := ctrl.Result{}
		hasTemplate, err := host.HasDataTemplate(ctx, r.Client, s.Machine)
		if hasTemplate { // no watch reports that CAPM3 has chosen a host and waits for its data
			result.RequeueAfter = secretsInterval
		}
		return result, err
	}
	if err == nil && s.Machine != nil && s.host.Object == nil {
		return ctrl.Result{}, nil
	}
	if err == nil {
		err = checkUserData(s.host)
	}
	if err != nil {
		failed, ok := errors.AsType[*failure](err)
		switch {
		case isNotReady && notReady.NeedsUser:
			failed = failureOf(err)
		case !ok:
			failed = waiting(err)
		}
		r.reportFailure(s, failed)
		return ctrl.Result{}, nil
	}
	trouble, result, err := r.findTrouble(ctx, s)
	if err != nil {
		return ctrl.Result{}, err
	}
	message := fmt.Sprintf("host %s was chosen and has not requested its configuration from %s yet: %s", s.host.Name, r.ServerURL,
		cmp.Or(trouble, checkConsole(s.host.Object)))
	s.chooseHost(&s.Config.Status)
	conditions.Set(s.Config, bootPrepared(metav1.ConditionUnknown, bootstrapv1.WaitingForRequestReason, message))
	return result, nil
}

// checkConsole returns what to do while nothing is known to be wrong. Metal3 does not know whether an image has a boot
// loader for the firmware of the host. bmh can be nil.
func checkConsole(bmh *bmov1alpha1.BareMetalHost) string {
	if bmh == nil {
		return "when it boots its image, check on its console that it can connect to this URL"
	}
	return fmt.Sprintf("when it boots its image, check on its console that the image starts with the firmware in the boot mode %s (spec.bootMode of the BareMetalHost), "+
		"and that it can connect to this URL", cmp.Or(bmh.Status.Provisioning.BootMode, bmh.BootMode()))
}

// secretsInterval is how often it is checked whether the Secrets exist that Metal3 needs besides the data Secret.
// Metal3 does not report a missing one, and no watch reports that one is deleted.
const secretsInterval = time.Minute

// findTrouble returns why Metal3 does not get on with the host, or "" if nothing is known.
func (r *Phases) findTrouble(ctx context.Context, s *state) (string, ctrl.Result, error) {
	bmh, result := s.host.Object, ctrl.Result{}
	if bmh == nil {
		return "", result, nil
	}
	var found []string
	if trouble := host.Trouble(bmh); trouble != "" {
		found = append(found, trouble)
	}
	waits, err := host.DataTrouble(ctx, r.Client, r.APIReader, s.host)
	if err != nil {
		return "", result, err
	}
	if waits != "" {
		found, result.RequeueAfter = append(found, waits), secretsInterval
	}
	missing, needsSome, err := host.MissingSecrets(ctx, r.APIReader, bmh, s.Config.Status.DataSecretName)
	if needsSome {
		result.RequeueAfter = secretsInterval
	}
	found = append(found, missing...)
	if err != nil || len(missing) > 0 {
		return strings.Join(found, "; "), result, err
	}
	invalid, err := r.checkNetworkData(ctx, s)
	if invalid != nil {
		found, result.RequeueAfter = append(found, invalid.Why), secretsInterval
	}
	return strings.Join(found, "; "), result, err
}

// checkNetworkData returns why the network data of the host can't be used, or nil. An image that reads it in the
// initramfs can have no network because of that, and then the host never sends a request.
func (r *Phases) checkNetworkData(ctx context.Context, s *state) (*host.NetworkDataError, error) {
	if name, _ := host.NetworkDataSecret(s.host.Object); name == "" {
		return nil, nil
	}
	pools, err := s.Pools(ctx)
	if err != nil {
		return nil, err
	}
	p, err := pool.OfRole(pools, s.Config.Status.PoolRole)
	if err != nil {
		return nil, nil //nolint:nilerr // The data Secret, or the request, reports it.
	}
	_, err = r.NetworkData.Files(ctx, r.Client, s.host.Object, p.Name, pool.NetworkRendererOf(p, pools))
	if invalid, ok := errors.AsType[*host.NetworkDataError](err); ok {
		return invalid, nil
	}
	return nil, err
}

// checkUserData returns an error if the host will never send a request: baremetal-operator gives no user data to a host
// that boots a live ISO.
func checkUserData(h *host.Host) error {
	if h.Object == nil || !h.Object.Spec.Image.IsLiveISO() {
		return nil
	}
	remedy := "give it a disk image"
	if h.Metal3Machine.Name != "" {
		remedy = "give the Metal3MachineTemplate of Metal3Machine " + h.Metal3Machine.Name + " a disk image"
	}
	return fault(bootstrapv1.HostImageIgnoresUserDataReason, "BareMetalHost %s: spec.image.format is live-iso, and such an image gets no user data, so the host "+
		"never requests its configuration: %s", h.Name, remedy)
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

// configureNetwork sets the files for the network data of the host. Network data that can't be used is read again after
// a minute, because not all Secrets are watched.
func (r *Phases) configureNetwork(ctx context.Context, s *state) (err error) {
	if s.host.Object == nil {
		return nil
	}
	s.network, err = r.NetworkData.Files(ctx, r.Client, s.host.Object, s.pool.Name, pool.NetworkRendererOf(&s.pool, s.pools))
	if invalid, ok := errors.AsType[*host.NetworkDataError](err); ok {
		return &failure{reason: invalid.Reason(), err: err, waits: true, retry: secretsInterval}
	}
	return err
}

// findDeployedHost sets the host that boots. A host that is being wiped, or is not being provisioned yet, runs what it
// had before. It gets nothing, because otherwise two hosts could join with the credential of one Node.
func (r *Phases) findDeployedHost(ctx context.Context, s *state) error {
	if err := r.findHost(ctx, s); err != nil {
		return err
	}
	if !isDeployed(s.host) {
		return &host.NotReadyError{Why: fmt.Sprintf("BareMetalHost %s is %s: the request is not from the image that Metal3Machine %s deploys",
			s.host.Name, s.host.State, s.host.Metal3Machine.Name)}
	}
	return nil
}

// findHostLoss returns why the recorded host no longer belongs to the Machine, or no longer has what was deployed on
// it. It returns "" if neither is the case.
func (s *state) findHostLoss(ctx context.Context, c client.Reader) (string, error) {
	recorded := s.Config.Status.HostRef
	if s.Machine == nil || !recorded.IsDefined() {
		return "", nil
	}
	current, err := host.ForConfig(ctx, c, s.Config, s.Machine)
	if notReady, ok := errors.AsType[*host.NotReadyError](err); ok {
		return notReady.Why, nil
	}
	switch {
	case err != nil || current == nil:
		return "", err
	case current.Name != recorded.Name:
		return fmt.Sprintf("BareMetalHost %s has replaced %s", current.Name, recorded.Name), nil
	case !isDeployed(current):
		return fmt.Sprintf("BareMetalHost %s is %s", current.Name, current.State), nil
	}
	return "", nil
}

// withdrawIfHostLost withdraws the boot if its host is wiped or replaced before it has joined: it deletes the overlay,
// the join credential, and the Node unless a kubelet has registered. The token stays valid: the next host uses it, or
// the same host after it is provisioned again. The error is errUpToDate if nothing more is to be done for this boot.
func (r *Phases) withdrawIfHostLost(ctx context.Context, s *state) error {
	if why, err := s.findHostLoss(ctx, r.Client); err != nil || why == "" {
		return err
	}
	// The cache can be stale, and a host whose boot is withdrawn by mistake must be provisioned again.
	why, err := s.findHostLoss(ctx, r.APIReader)
	if err != nil || why == "" {
		return err
	}
	if err := s.run(ctx, r.refresh(renewal, expiration), r.connect, r.readNode); err != nil {
		return err
	}
	s.credential.ID = s.Config.Status.Boot.CredentialID
	answered := s.Config.Status.Requests.RequestedTime
	withdrawn := bootPrepared(metav1.ConditionUnknown, bootstrapv1.WaitingForHostReason,
		why+": no host has requested its configuration since")
	// This write precedes the deletions. Otherwise the next comparison would report the Node as missing.
	err = s.recordStatus(ctx, func(config *bootstrapv1.PoolbootConfig) {
		if record.IsCredential(config, s.credential.ID) {
			conditions.Set(config, withdrawn)
		}
	})
	if err != nil {
		return err
	}
	if err := r.withdraw(ctx, s); err != nil {
		return err
	}
	err = s.recordStatus(ctx, func(config *bootstrapv1.PoolbootConfig) {
		if !record.IsCredential(config, s.credential.ID) {
			return // the host has sent another request in the meantime
		}
		status := &config.Status
		status.Boot.CredentialID, status.Boot.CredentialExpirationTime = "", nil
		status.Boot.AnsweredRequestTime = answered
		status.HostRef, status.DerivedNodeLabels = bootstrapv1.HostReference{}, nil
		status.Boot.HostChosenTime, status.Requests.ServedTime, status.Requests.Addresses = nil, nil, nil
		status.Requests.IgnitionFailure = bootstrapv1.IgnitionFailure{}
		if s.node == nil || !record.HasKubelet(s.node) {
			status.NodeRef = bootstrapv1.NodeReference{}
			conditions.Delete(config, bootstrapv1.NodeInPoolCondition) // it describes a Node that no longer exists
		}
		conditions.Set(config, withdrawn)
	})
	if err != nil {
		return err
	}
	r.event(s, corev1.EventTypeNormal, bootstrapv1.EventBootWithdrawn,
		"%s before its Node was Ready: its join credential and its overlay are deleted", why)
	return errUpToDate
}

// replaceNode recreates a Node that was pre-registered for another host. Its spec.providerID names that host and is
// immutable. No kubelet has registered as this Node.
func (s *state) replaceNode(ctx context.Context, replacement *corev1.Node) error {
	err := s.workload.Delete(ctx, s.node, client.Preconditions{UID: &s.node.UID, ResourceVersion: &s.node.ResourceVersion})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	s.node, s.wasOtherHost = replacement, true
	return s.workload.Create(ctx, s.node)
}

// findHost sets the host that boots. Of a host that enrolled, only the name is known. Of a host of another
// infrastructure provider, only what its Machine contains is known.
func (r *Phases) findHost(ctx context.Context, s *state) (err error) {
	s.host, err = host.ForConfig(ctx, r.Client, s.Config, s.Machine)
	switch {
	case err != nil || s.host != nil:
		return err
	case s.Machine == nil:
		s.host = &host.Host{Name: s.Config.Spec.Host.NodeName}
	case registration.NamedAfterHost(s.Config):
		return &failure{reason: bootstrapv1.BootFailedReason, waits: true, err: fmt.Errorf("spec.nodeNameSource is Host, but Machine %s has the infrastructure "+
			"provider of %s, so the name of its host is not known: set spec.nodeNameSource to Machine", s.Machine.Name, s.Machine.Spec.InfrastructureRef.Kind)}
	default:
		s.host = &host.Host{Name: s.Machine.Name, ProviderID: s.Machine.Spec.ProviderID}
	}
	return nil
}

// related returns the second object of events about the config: the Machine, or nil without one.
func (s *state) related() runtime.Object {
	if s.Machine == nil {
		return nil
	}
	return s.Machine
}
