// Package boot prepares the boot of one machine when its host requests its configuration: it pre-registers the Node in
// the workload cluster, creates the join credential, and stores the overlay of the machine for the config server. Other
// packages make the decisions. This package does the writes in an order in which a crash between any two of them does
// no harm.
package boot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	"golang.org/x/sync/singleflight"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/cluster-api/util"
	ctrl "sigs.k8s.io/controller-runtime"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/assignments"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/scope"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// Phases prepare the boots of hosts.
type Phases struct {
	scope.Env

	// outages remembers which workload clusters do not answer.
	outages outages
	// approval remembers which workload clusters leave the approval of certificates to Poolboot.
	approval workload.ApprovalChecker
	// readinessRules caches the readiness rules of workload clusters.
	readinessRules workload.ReadinessRules
	// rendered remembers the hashes of rendered configs.
	rendered *assignments.RenderedConfigs
	// rights remembers, as clusterRights, where this process has ensured the rights of join credentials.
	rights sync.Map
	// ensuring combines the calls that ensure the same rights at the same time.
	ensuring singleflight.Group
}

// Init sets what the phases remember.
func (r *Phases) Init() { r.rendered = assignments.NewRenderedConfigs(r.Client) }

// Reconcile does what the boot of a host needs next.
func (r *Phases) Reconcile(ctx context.Context, of *scope.Scope) (ctrl.Result, error) {
	return r.run(ctx, of, r.reconcile)
}

// ReconcilePaused does what cannot wait until a pause ends.
func (r *Phases) ReconcilePaused(ctx context.Context, of *scope.Scope) (ctrl.Result, error) {
	return r.run(ctx, of, r.reconcilePaused)
}

// run runs what a boot needs, unless it needs nothing: the Machine or host does not exist yet, the Machine is being
// deleted, or it belongs to the control plane.
func (r *Phases) run(ctx context.Context, of *scope.Scope, reconcile func(context.Context, *state, need) (ctrl.Result, error)) (ctrl.Result, error) {
	need := needOf(of.Config)
	switch machine := of.Machine; {
	case need == nothing, of.Cluster == nil,
		machine == nil && !record.IsMachineless(of.Config),
		machine != nil && (!machine.DeletionTimestamp.IsZero() || util.IsControlPlaneMachine(machine)):
		return ctrl.Result{}, nil
	}
	result, err := reconcile(ctx, &state{Scope: of}, need)
	switch failed := failureOf(err); {
	case err == nil:
		return result, nil
	case errors.Is(err, errDeleting), errors.Is(err, errUpToDate):
		return ctrl.Result{}, nil
	case failed.waits:
		return ctrl.Result{RequeueAfter: failed.retry}, nil
	}
	return ctrl.Result{}, err
}

// reconcile decides from the caches. It reads the config live before it changes what a host already has: such a boot
// usually needs no write.
func (r *Phases) reconcile(ctx context.Context, s *state, need need) (ctrl.Result, error) {
	switch need {
	case preparation:
		return r.reportResult(ctx, s, s.run(ctx, r.preparation()...))
	case adoption:
		return r.adopt(ctx, s)
	case announcement:
		return r.announce(ctx, s)
	case inlineRenewal:
		return r.reconcileInline(ctx, s)
	}
	if err := r.withdrawIfHostLost(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	if need == expiration {
		return r.awaitExpiration(ctx, s)
	}
	if wait := untilExtension(s.Config); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	if err := s.run(ctx, r.refresh(renewal), r.connect, r.remote(r.extendCredential)); err != nil {
		return ctrl.Result{}, err
	}
	return requeueForExtension(s, ctrl.Result{}), nil
}

// need is what a PoolbootConfig needs from these phases.
type need int

const (
	nothing       need = iota
	announcement       // no host has sent a request yet: report which host was chosen, and whether it will never send one
	preparation        // a host has sent a request, or its pre-registered Node was deleted before a kubelet registered
	renewal            // a host has its configuration, or can get it, and has not joined yet: its join credential is renewed
	expiration         // like renewal, but for longer than joinPatience or since an unknown time: the join credential expires
	inlineRenewal      // a host can boot at any time from its data Secret
	adoption           // clusterctl move or a restore dropped the status of a host that can have its configuration
)

// needOf derives the need from the PoolbootConfig alone.
func needOf(config *bootstrapv1.PoolbootConfig) need {
	switch {
	case !config.DeletionTimestamp.IsZero(),
		record.IsBootComplete(config),
		config.Status.DataSecretName == "" && !record.IsEnrolled(config):
		return nothing
	case config.Spec.IsInline():
		if !record.HasCredential(config) {
			return nothing
		}
		return inlineRenewal
	case record.IsRequestPending(config) && !record.IsTokenExpired(config):
		return preparation
	case record.WasPrepared(config) && record.HasCredential(config) && record.IsNodeMissing(config):
		return preparation
	case record.HasCredential(config) && time.Since(deliveryTime(config)) < joinPatience:
		return renewal
	case record.HasCredential(config):
		return expiration
	case !record.HasRequested(config) && !record.WasPrepared(config) && record.HasNode(config):
		return adoption
	case !record.HasRequested(config):
		return announcement
	default:
		return nothing
	}
}

// NeedsCluster reports whether the next step of a boot depends on its Cluster or on a pool, and not only on its host.
func NeedsCluster(config *bootstrapv1.PoolbootConfig) bool {
	need := needOf(config)
	return need != nothing && need != announcement && need != expiration
}

// deliveryTime returns the latest time at which a host can have received its configuration. The preparation counts too,
// because a config server can stop before it records that it has served the host.
func deliveryTime(config *bootstrapv1.PoolbootConfig) time.Time {
	var last time.Time
	for _, at := range []*metav1.MicroTime{config.Status.Boot.PreparedTime, config.Status.Requests.ServedTime} {
		if at != nil && at.After(last) {
			last = at.Time
		}
	}
	return last
}

// preparation returns the phases, in order, for a host that sent a request to the config server.
func (r *Phases) preparation() []phase {
	return []phase{
		r.findDeployedHost,
		r.choosePool,
		r.register,
		r.configureNetwork,
		r.connect,
		r.remote(r.checkApproval),
		r.remote(r.ensureRights),
		r.remote(r.ensureNode),
		r.refreshIfRetried,
		r.remote(r.ensureCredential),
		r.storeAssignment,
		r.storeOverlay,
		r.record,
	}
}

// reportResult reports the error of a run. It returns the time of the
// next try if the cause resolves on its own.
func (r *Phases) reportResult(ctx context.Context, s *state, err error) (ctrl.Result, error) {
	switch {
	case err == nil, errors.Is(err, errUpToDate):
		return ctrl.Result{}, nil
	case errors.Is(err, errDeleting):
		return ctrl.Result{}, r.withdraw(ctx, s)
	}
	failed := failureOf(err)
	r.reportFailure(s, failed)
	if failed.waits {
		return ctrl.Result{RequeueAfter: failed.retry}, nil
	}
	return ctrl.Result{}, failed
}

// reconcileInline handles a host that boots from its data Secret alone. It ensures the rights of the join credential in
// that Secret immediately, renews the credential until the Node is in its pool, and pre-registers the Node as soon as
// the host is being provisioned.
func (r *Phases) reconcileInline(ctx context.Context, s *state) (ctrl.Result, error) {
	if err := r.refresh(inlineRenewal)(ctx, s); err != nil {
		return ctrl.Result{}, err
	}
	why, err := s.findHostLoss(ctx, r.Client)
	if err != nil {
		return ctrl.Result{}, err
	}
	phases := []phase{r.connect, r.remote(r.ensureRights), r.remote(r.extendCredential)}
	if why != "" && record.IsCredentialUsed(s.Config) { // the next host has the same credential and another key
		phases = append(phases, r.forgetCertificate)
	}
	if !record.IsPrepared(s.Config) || record.IsNodeMissing(s.Config) || why != "" {
		phases = append(phases, r.choosePool, r.findProvisioningHost, r.register, r.remote(r.ensureNode), r.record)
	}
	result, err := r.reportResult(ctx, s, s.run(ctx, phases...))
	return requeueForExtension(s, result), err
}

// forgetCertificate allows the join credential in a data Secret to obtain another certificate. The Secret is written
// once, so the credential cannot be replaced.
func (r *Phases) forgetCertificate(ctx context.Context, s *state) error {
	return s.recordStatus(ctx, func(config *bootstrapv1.PoolbootConfig) {
		config.Status.Certificate = bootstrapv1.GrantedCertificate{}
	})
}

// findProvisioningHost sets the host of the Machine once it can boot from the data Secret. Until then, it returns a
// failure that is not an error, with why Metal3 does not get on with the host. A host of another infrastructure
// provider can boot at any time.
func (r *Phases) findProvisioningHost(ctx context.Context, s *state) error {
	err := r.findHost(ctx, s)
	if err == nil {
		err = checkUserData(s.host)
	}
	if notReady, ok := errors.AsType[*host.NotReadyError](err); ok && !notReady.NeedsUser {
		return waiting(err)
	}
	if err != nil || s.host.Object == nil {
		return err
	}
	switch s.host.State {
	case bmov1alpha1.StateProvisioned, bmov1alpha1.StateExternallyProvisioned:
		return nil
	case bmov1alpha1.StateProvisioning:
		missing, _, err := host.MissingSecrets(ctx, r.APIReader, s.host.Object, s.Config.Status.DataSecretName)
		if err != nil || len(missing) == 0 {
			return err
		}
		return &failure{reason: bootstrapv1.WaitingForHostReason, err: errors.New(strings.Join(missing, "; ")), waits: true, retry: secretsInterval}
	}
	trouble, result, err := r.findTrouble(ctx, s)
	if err != nil {
		return err
	}
	failed := waiting(errors.New(cmp.Or(trouble, fmt.Sprintf("BareMetalHost %s is not being provisioned yet", s.host.Name))))
	failed.retry = result.RequeueAfter
	return failed
}

// reconcilePaused does what cannot wait until the pause ends: it renews the join credential of a host that has its
// configuration, because such a host does not send another request. It writes only to the workload cluster, and deletes
// nothing there: during clusterctl move, the PoolbootConfig with this credential can already belong to another
// management cluster. So the new expiration time is not recorded, and the credential is extended each time that half of
// its life has passed.
func (r *Phases) reconcilePaused(ctx context.Context, s *state, need need) (ctrl.Result, error) {
	switch {
	case need == expiration && s.Config.Status.Boot.CredentialExpirationTime != nil: // reported after the pause
		return ctrl.Result{RequeueAfter: join.Lifetime / 2}, nil
	case need != renewal && need != inlineRenewal:
		return ctrl.Result{}, nil
	}
	why, err := s.findHostLoss(ctx, r.Client)
	if err != nil {
		return ctrl.Result{}, err
	}
	if why == "" || need == inlineRenewal { // otherwise, the boot is withdrawn after the pause
		if wait := untilExtension(s.Config); wait > 0 {
			return ctrl.Result{RequeueAfter: wait}, nil
		}
		err = s.run(ctx, r.connect, r.remote(func(ctx context.Context, s *state) error {
			_, err := join.ExtendCredential(ctx, s.workload, s.Config.Status.Boot.CredentialID, join.Lifetime)
			if apierrors.IsNotFound(err) {
				return errUpToDate // it is restored, or reported as lost, after the pause
			}
			return err
		}))
	}
	return ctrl.Result{RequeueAfter: join.Lifetime / 2}, err
}
