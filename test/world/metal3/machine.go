package metal3

import (
	"context"
	"errors"
	"fmt"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	deprecatedv1beta1conditions "sigs.k8s.io/cluster-api/util/conditions/deprecated/v1beta1"
	"sigs.k8s.io/cluster-api/util/patch"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	infrav1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/metal3/v1beta2"
)

// errRetry marks errors that the provider retries after an interval.
var errRetry = errors.New("trying again later")

// machineReconciler reconciles Metal3Machines: it waits for bootstrap data, takes a host and provisions it, finds the
// host's Node, and frees the host on deletion. It has one worker, therefore no host is taken twice.
type machineReconciler struct {
	client.Client
	live          client.Reader // not cached: with a stale read a host could be taken twice
	retryInterval time.Duration
	workloads     workloads
}

// machineScope has the objects of a reconcile.
type machineScope struct {
	cluster       *clusterv1.Cluster
	machine       *clusterv1.Machine
	metal3Machine *infrav1.Metal3Machine
}

func (r *machineReconciler) setUp(mgr ctrl.Manager) error {
	ofCluster, err := util.ClusterToTypedObjectsMapper(mgr.GetClient(), &infrav1.Metal3MachineList{}, mgr.GetScheme())
	if err != nil {
		return err
	}
	ofMachine := util.MachineToInfrastructureMapFunc(infrav1.GroupVersion.WithKind("Metal3Machine"))
	return ctrl.NewControllerManagedBy(mgr).
		For(&infrav1.Metal3Machine{}).
		Owns(&infrav1.Metal3DataClaim{}).
		Owns(&infrav1.Metal3Data{}, builder.MatchEveryOwner).
		Watches(&clusterv1.Machine{}, handler.EnqueueRequestsFromMapFunc(ofMachine)).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(ofCluster)).
		Watches(&bmov1alpha1.BareMetalHost{}, handler.EnqueueRequestsFromMapFunc(consumer)).
		Complete(r)
}

// consumer maps a host to the Metal3Machine that uses it.
func consumer(_ context.Context, o client.Object) []ctrl.Request {
	host, ok := o.(*bmov1alpha1.BareMetalHost)
	if !ok || host.Spec.ConsumerRef == nil || host.Spec.ConsumerRef.Kind != "Metal3Machine" {
		return nil
	}
	key := client.ObjectKey{Namespace: host.Spec.ConsumerRef.Namespace, Name: host.Spec.ConsumerRef.Name}
	return []ctrl.Request{{NamespacedName: key}}
}

func (r *machineReconciler) Reconcile(ctx context.Context, request ctrl.Request) (_ ctrl.Result, err error) {
	s := &machineScope{metal3Machine: &infrav1.Metal3Machine{}}
	if err := r.live.Get(ctx, request.NamespacedName, s.metal3Machine); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if s.machine, err = util.GetOwnerMachine(ctx, r.Client, s.metal3Machine.ObjectMeta); err != nil || s.machine == nil {
		return ctrl.Result{}, err
	}
	if s.cluster, err = util.GetClusterFromMetadata(ctx, r.Client, s.machine.ObjectMeta); err != nil {
		return ctrl.Result{}, err
	}
	if annotations.IsPaused(s.cluster, s.metal3Machine) {
		return ctrl.Result{}, r.pauseHost(ctx, s)
	}
	helper, err := patch.NewHelper(s.metal3Machine, r.Client)
	if err != nil {
		return ctrl.Result{}, err
	}
	defer func() {
		if patchErr := s.patch(ctx, helper); patchErr != nil {
			err = kerrors.NewAggregate([]error{err, patchErr})
		}
	}()
	if s.metal3Machine.DeletionTimestamp.IsZero() {
		err = r.reconcileNormal(ctx, s)
	} else {
		err = r.reconcileDelete(ctx, s)
	}
	if errors.Is(err, errRetry) {
		return ctrl.Result{RequeueAfter: r.retryInterval}, nil
	}
	return ctrl.Result{}, err
}

func (r *machineReconciler) reconcileNormal(ctx context.Context, s *machineScope) error {
	controllerutil.AddFinalizer(s.metal3Machine, infrav1.MachineFinalizer)
	if !ptr.Deref(s.cluster.Status.Initialization.InfrastructureProvisioned, false) {
		s.set(infrav1.AssociateBareMetalHostCondition, metav1.ConditionFalse, infrav1.WaitingForClusterReason, "")
		return nil
	}
	if !bootstrapReady(s.machine) {
		s.set(infrav1.AssociateBareMetalHostCondition, metav1.ConditionFalse, infrav1.WaitingForBootstrapDataReason, "")
		return nil
	}
	host, err := associatedHost(ctx, r.live, s.metal3Machine)
	isNew := err == nil && host == nil
	if isNew {
		host, err = r.chooseHost(ctx, s)
	} else if err == nil {
		if dataErr := r.waitForData(ctx, s); dataErr != nil {
			s.set(infrav1.AssociateMetal3MachineMetaDataCondition, metav1.ConditionFalse, infrav1.CreateMachineErrorReason,
				"failed to update BareMetalHost: "+dataErr.Error())
			return dataErr
		}
	}
	if err == nil {
		err = r.take(ctx, s, host, isNew)
	}
	if err != nil {
		s.set(infrav1.AssociateBareMetalHostCondition, metav1.ConditionFalse, infrav1.AssociateBareMetalHostFailedReason, err.Error())
		return err
	}
	s.set(infrav1.AssociateBareMetalHostCondition, metav1.ConditionTrue, infrav1.AssociateBareMetalHostSuccessReason, "")
	s.set(infrav1.AssociateMetal3MachineMetaDataCondition, metav1.ConditionTrue, infrav1.AssociateMetal3MachineMetaDataReason, "")
	s.metal3Machine.Status.Addresses = addresses(host)
	if host.Status.Provisioning.State != bmov1alpha1.StateProvisioned || s.provisioned() && s.machine.Status.NodeRef.IsDefined() {
		return nil
	}
	if err := r.adoptNode(ctx, s, host); err != nil {
		s.set(infrav1.AssociateMetal3MachineMetaDataCondition, metav1.ConditionFalse, infrav1.CreateMachineErrorReason, err.Error())
		return err
	}
	return nil
}

func (r *machineReconciler) reconcileDelete(ctx context.Context, s *machineScope) error {
	s.set(infrav1.AssociateMetal3MachineMetaDataCondition, metav1.ConditionFalse, infrav1.DeletingReason, "")
	if err := r.dropData(ctx, s.metal3Machine); err != nil {
		return err
	}
	host, err := associatedHost(ctx, r.live, s.metal3Machine)
	if err != nil {
		return err
	}
	if host != nil && consumes(s.metal3Machine, host) {
		if released, err := r.release(ctx, s, host); err != nil || !released {
			return err
		}
	}
	controllerutil.RemoveFinalizer(s.metal3Machine, infrav1.MachineFinalizer)
	return nil
}

// bootstrapReady applies the real provider's rule: the v1beta1 condition that mirrors the bootstrap config's Ready must
// be true. Without a bootstrap config, a data Secret is required.
func bootstrapReady(machine *clusterv1.Machine) bool {
	if !machine.Spec.Bootstrap.ConfigRef.IsDefined() {
		return machine.Spec.Bootstrap.DataSecretName != nil
	}
	ready := deprecatedv1beta1conditions.Get(machine, clusterv1.BootstrapReadyV1Beta1Condition)
	return ready != nil && ready.Status == corev1.ConditionTrue
}

func (s *machineScope) provisioned() bool {
	return s.metal3Machine.Spec.ProviderID != "" && ptr.Deref(s.metal3Machine.Status.Initialization.Provisioned, false)
}

func (s *machineScope) set(conditionType string, status metav1.ConditionStatus, reason, message string) {
	conditions.Set(s.metal3Machine, metav1.Condition{Type: conditionType, Status: status, Reason: reason, Message: message})
}

// patch patches the Metal3Machine, with a Ready condition that summarizes the others.
func (s *machineScope) patch(ctx context.Context, helper *patch.Helper) error {
	// Without a data template, Metal3DataReady is only reported when the Node is found by its label, and therefore not
	// after a move (reconcileNormal in metal3machine_controller.go of the provider).
	parts := []string{infrav1.AssociateBareMetalHostCondition, infrav1.AssociateMetal3MachineMetaDataCondition, infrav1.Metal3DataReadyCondition}
	if err := conditions.SetSummaryCondition(s.metal3Machine, s.metal3Machine, clusterv1.ReadyCondition,
		conditions.ForConditionTypes(parts)); err != nil {
		return fmt.Errorf("sum up the conditions of Metal3Machine %s: %w", s.metal3Machine.Name, err)
	}
	return helper.Patch(ctx, s.metal3Machine,
		patch.WithOwnedConditions{Conditions: append(parts, clusterv1.ReadyCondition)})
}
