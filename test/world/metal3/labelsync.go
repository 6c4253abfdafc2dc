package metal3

import (
	"context"
	"strings"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/annotations"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	infrav1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/metal3/v1beta2"
)

// labelSyncAnnotation is an annotation of a Metal3Cluster with prefixes of labels, and labelSyncInterval the interval
// in which these labels are synced (metal3labelsync_controller.go of the provider).
const labelSyncAnnotation, labelSyncInterval = "metal3.io/metal3-label-sync-prefixes", time.Minute

// labelSyncReconciler syncs labels of BareMetalHosts to Nodes: of the prefixes, a Node gets those of its host, and
// loses all others. It syncs when the host or the Metal3Cluster changes, and in an interval.
type labelSyncReconciler struct {
	client.Client
	workloads workloads
}

func (r *labelSyncReconciler) setUp(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("label-sync").
		For(&bmov1alpha1.BareMetalHost{}).
		Watches(&infrav1.Metal3Cluster{}, handler.EnqueueRequestsFromMapFunc(r.hostsOf)).
		Complete(r)
}

// hostsOf returns requests for the hosts in the namespace of a Metal3Cluster.
func (r *labelSyncReconciler) hostsOf(ctx context.Context, o client.Object) (requests []ctrl.Request) {
	if _, has := o.GetAnnotations()[labelSyncAnnotation]; !has {
		return nil
	}
	hosts := &bmov1alpha1.BareMetalHostList{}
	if err := r.List(ctx, hosts, client.InNamespace(o.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "list hosts")
	}
	for i := range hosts.Items {
		requests = append(requests, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&hosts.Items[i])})
	}
	return requests
}

func (r *labelSyncReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	host := &bmov1alpha1.BareMetalHost{}
	if err := r.Get(ctx, request.NamespacedName, host); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if _, paused := host.Annotations[bmov1alpha1.PausedAnnotation]; paused || len(consumer(ctx, host)) == 0 {
		return ctrl.Result{}, nil
	}
	machine, cluster, prefixes, err := r.find(ctx, host)
	if err != nil || len(prefixes) == 0 {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !machine.Status.NodeRef.IsDefined() {
		return ctrl.Result{RequeueAfter: labelSyncInterval}, nil
	}
	workload, err := r.workloads.client(ctx, r.Client, client.ObjectKeyFromObject(cluster))
	if err != nil {
		return ctrl.Result{}, err
	}
	node := &corev1.Node{}
	if err := workload.Get(ctx, client.ObjectKey{Name: machine.Status.NodeRef.Name}, node); err != nil {
		return ctrl.Result{RequeueAfter: labelSyncInterval}, client.IgnoreNotFound(err)
	}
	synced := withPrefix(prefixes, host.Labels)
	for key := range withPrefix(prefixes, node.Labels) {
		delete(node.Labels, key)
	}
	for key, value := range synced {
		node.Labels[key] = value
	}
	return ctrl.Result{RequeueAfter: labelSyncInterval}, workload.Update(ctx, node)
}

// find returns the Machine and the Cluster of a host, and the prefixes of the labels to sync, if there are any.
func (r *labelSyncReconciler) find(ctx context.Context, host *bmov1alpha1.BareMetalHost) (*clusterv1.Machine, *clusterv1.Cluster, []string, error) {
	metal3Machine := &infrav1.Metal3Machine{}
	if err := r.Get(ctx, consumer(ctx, host)[0].NamespacedName, metal3Machine); err != nil {
		return nil, nil, nil, err
	}
	machine, err := util.GetOwnerMachine(ctx, r.Client, metal3Machine.ObjectMeta)
	if err != nil || machine == nil {
		return nil, nil, nil, err
	}
	cluster, err := util.GetClusterFromMetadata(ctx, r.Client, machine.ObjectMeta)
	if err != nil {
		return nil, nil, nil, err
	}
	metal3Cluster := &infrav1.Metal3Cluster{}
	if err := r.Get(ctx, client.ObjectKey{Namespace: cluster.Namespace, Name: cluster.Spec.InfrastructureRef.Name}, metal3Cluster); err != nil {
		return nil, nil, nil, err
	}
	if annotations.IsPaused(cluster, metal3Cluster) {
		return nil, nil, nil, nil
	}
	var prefixes []string
	for prefix := range strings.SplitSeq(metal3Cluster.Annotations[labelSyncAnnotation], ",") {
		if prefix = strings.TrimSpace(prefix); prefix != "" {
			prefixes = append(prefixes, prefix+"/")
		}
	}
	return machine, cluster, prefixes, nil
}

// withPrefix returns the labels that have one of the prefixes.
func withPrefix(prefixes []string, labels map[string]string) map[string]string {
	found := map[string]string{}
	for key, value := range labels {
		for _, prefix := range prefixes {
			if strings.HasPrefix(key, prefix) {
				found[key] = value
			}
		}
	}
	return found
}
