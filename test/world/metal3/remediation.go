package metal3

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/version"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	deprecatedv1beta1conditions "sigs.k8s.io/cluster-api/util/conditions/deprecated/v1beta1"
	"sigs.k8s.io/cluster-api/util/patch"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	infrav1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/metal3/v1beta2"
)

// remediationPoll is the interval of polling, remediationNext the time to the next step, and defaultRemediationTimeout
// the time in which a Node must become healthy, as in metal3remediation_controller.go and metal3remediation_manager.go
// of the provider.
const remediationPoll, remediationNext, defaultRemediationTimeout = 5 * time.Second, time.Second, 10 * time.Minute

// outOfServiceSince is the first version of API servers with which the provider keeps Nodes (main.go of the provider).
var outOfServiceSince = version.MustParseGeneric("1.28.0")

// remediationReconciler reconciles Metal3Remediations: it powers off the host of an unhealthy Machine, has the Pods of
// its Node evicted, powers on the host and restores the Node's metadata, with retries up to the limit. It has one
// worker. Unlike the provider, it always requires the right to read the Node.
type remediationReconciler struct {
	client.Client
	live         client.Reader // not cached: a stale read could repeat an operation
	workloads    workloads
	deletesNodes atomic.Bool
}

// remediationScope has the objects of a reconcile.
type remediationScope struct {
	remediation *infrav1.Metal3Remediation
	machine     *clusterv1.Machine
	host        *bmov1alpha1.BareMetalHost
	workload    client.Client
	node        *corev1.Node // nil if it does not exist
}

// setUp decides by the version of the management cluster's API server how Pods are evicted, as the provider does
// (isOutOfServiceTaintSupported in main.go).
func (r *remediationReconciler) setUp(mgr ctrl.Manager, cfg *rest.Config) error {
	apiServer, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return err
	}
	info, err := apiServer.ServerVersion()
	if err != nil {
		return fmt.Errorf("version of the API server: %w", err)
	}
	current, err := version.ParseGeneric(info.GitVersion)
	if err != nil {
		return fmt.Errorf("version of the API server: %w", err)
	}
	r.deletesNodes.Store(current.LessThan(outOfServiceSince))
	return ctrl.NewControllerManagedBy(mgr).For(&infrav1.Metal3Remediation{}).Complete(r)
}

// Reconcile also continues a remediation that is being deleted: its finalizer is removed when the Node exists again.
func (r *remediationReconciler) Reconcile(ctx context.Context, request ctrl.Request) (_ ctrl.Result, err error) {
	s := &remediationScope{remediation: &infrav1.Metal3Remediation{}}
	if err := r.live.Get(ctx, request.NamespacedName, s.remediation); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if s.machine, err = util.GetOwnerMachine(ctx, r.Client, s.remediation.ObjectMeta); err != nil {
		return ctrl.Result{}, err
	}
	if s.machine == nil {
		return ctrl.Result{}, fmt.Errorf("Metal3Remediation %s has no owner Machine: set metadata.ownerReferences", request)
	}
	metal3Machine := &infrav1.Metal3Machine{}
	if err := r.live.Get(ctx, client.ObjectKey{Namespace: s.machine.Namespace, Name: s.machine.Spec.InfrastructureRef.Name}, metal3Machine); err != nil {
		return ctrl.Result{}, err
	}
	if s.host, err = associatedHost(ctx, r.live, metal3Machine); err != nil {
		return ctrl.Result{}, err
	}
	if s.host == nil {
		return ctrl.Result{}, fmt.Errorf("Metal3Machine %s has no host to remediate", client.ObjectKeyFromObject(metal3Machine))
	}
	helper, err := patch.NewHelper(s.remediation, r.Client)
	if err != nil {
		return ctrl.Result{}, err
	}
	wait, err := r.step(ctx, s)
	return ctrl.Result{RequeueAfter: wait}, kerrors.NewAggregate([]error{err, helper.Patch(ctx, s.remediation)})
}

// step performs the current phase and returns when to reconcile again (reconcileNormal in
// metal3remediation_controller.go).
func (r *remediationReconciler) step(ctx context.Context, s *remediationScope) (time.Duration, error) {
	status, strategy := &s.remediation.Status, s.remediation.Spec.Strategy
	if !s.host.Spec.Online {
		status.Phase = infrav1.RemediationFailed
		return 0, nil
	}
	if strategy == nil || strategy.Type != infrav1.RebootRemediationStrategy {
		return 0, nil
	}
	switch status.Phase {
	case "":
		return s.begin(), nil
	case infrav1.RemediationRunning:
		if err := r.findNode(ctx, s); err != nil {
			return 0, err
		}
		return r.powerOff(ctx, s)
	case infrav1.RemediationWaiting:
		if err := r.findNode(ctx, s); err != nil {
			return 0, err
		}
		return r.powerOn(ctx, s)
	}
	return 0, nil // completed
}

func (s *remediationScope) begin() time.Duration {
	now := metav1.Now()
	s.remediation.Status.Phase, s.remediation.Status.LastRemediated = infrav1.RemediationRunning, &now
	return remediationNext
}

// powerOff powers off the host and has the Node's Pods evicted after that (remediateRebootStrategy).
func (r *remediationReconciler) powerOff(ctx context.Context, s *remediationScope) (time.Duration, error) {
	if controllerutil.AddFinalizer(s.remediation, infrav1.RemediationFinalizer) {
		return remediationNext, nil
	}
	if _, asked := s.host.Annotations[s.powerOffAnnotation()]; !asked {
		return remediationPoll, r.annotate(ctx, s.host, s.powerOffAnnotation(), `{"mode":"hard"}`)
	}
	if s.host.Status.PoweredOn {
		return remediationPoll, nil
	}
	switch {
	case s.node == nil:
	case r.deletesNodes.Load():
		if modified, err := s.backUp(); modified || err != nil {
			return remediationNext, err
		}
		if !s.node.DeletionTimestamp.IsZero() {
			return remediationPoll, nil
		}
		return remediationPoll, s.workload.Delete(ctx, s.node)
	case !slices.ContainsFunc(s.node.Spec.Taints, isOutOfService):
		taint, now := outOfService, metav1.Now()
		taint.TimeAdded = &now
		s.node.Spec.Taints = append(s.node.Spec.Taints, taint)
		return remediationNext, s.workload.Update(ctx, s.node) // Pods are deleted after this write
	default:
		if cleared, err := s.cleared(ctx); !cleared || err != nil {
			return remediationPoll, err
		}
	}
	s.remediation.Status.Phase = infrav1.RemediationWaiting
	return remediationPoll, nil
}

// powerOn powers on the host, restores the Node's metadata, and waits for the health check to delete the remediation
// when the Node is healthy. It retries or gives up after a timeout.
func (r *remediationReconciler) powerOn(ctx context.Context, s *remediationScope) (time.Duration, error) {
	if _, asked := s.host.Annotations[s.powerOffAnnotation()]; asked {
		if err := r.annotate(ctx, s.host, s.powerOffAnnotation(), ""); err != nil {
			return 0, err
		}
	}
	if !s.host.Status.PoweredOn {
		return remediationPoll, nil
	}
	if s.node != nil && controllerutil.ContainsFinalizer(s.remediation, infrav1.RemediationFinalizer) {
		if err := r.restoreNode(ctx, s); err != nil {
			return 0, err
		}
		controllerutil.RemoveFinalizer(s.remediation, infrav1.RemediationFinalizer)
		return remediationPoll, nil
	}
	status, strategy := &s.remediation.Status, s.remediation.Spec.Strategy
	timeout := defaultRemediationTimeout
	if strategy.TimeoutSeconds != 0 {
		timeout = time.Duration(strategy.TimeoutSeconds) * time.Second
	}
	if status.LastRemediated == nil || time.Since(status.LastRemediated.Time) <= timeout {
		return remediationPoll, nil
	}
	if strategy.RetryLimit > 0 && status.RetryCount != strategy.RetryLimit {
		status.RetryCount++
		return s.begin(), nil
	}
	return 0, r.giveUp(ctx, s)
}

// giveUp leaves the Machine to its owner and marks the host as unhealthy. It sets the condition of v1beta1, as the
// provider does (SetOwnerRemediatedConditionNew in metal3remediation_manager.go).
func (r *remediationReconciler) giveUp(ctx context.Context, s *remediationScope) error {
	helper, err := patch.NewHelper(s.machine, r.Client)
	if err != nil {
		return err
	}
	deprecatedv1beta1conditions.MarkFalse(s.machine, clusterv1.MachineOwnerRemediatedV1Beta1Condition, clusterv1.WaitingForRemediationV1Beta1Reason,
		clusterv1.ConditionSeverityWarning, "")
	if err := helper.Patch(ctx, s.machine); err != nil {
		return err
	}
	if err := r.annotate(ctx, s.host, unhealthyAnnotation, "capm3/UnhealthyNode"); err != nil {
		return err
	}
	s.remediation.Status.Phase = infrav1.RemediationDeleting
	return nil
}

// powerOffAnnotation returns the annotation that keeps the host off, see power.
func (s *remediationScope) powerOffAnnotation() string {
	return bmov1alpha1.RebootAnnotationPrefix + "/metal3-remediation-" + string(s.remediation.UID)
}

// annotate sets an annotation of a host, or removes it if the value is empty.
func (r *remediationReconciler) annotate(ctx context.Context, host *bmov1alpha1.BareMetalHost, key, value string) error {
	before := host.DeepCopy()
	if value == "" {
		delete(host.Annotations, key)
	} else {
		metav1.SetMetaDataAnnotation(&host.ObjectMeta, key, value)
	}
	return r.Patch(ctx, host, client.MergeFrom(before))
}
