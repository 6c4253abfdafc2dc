package clusternodes

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/record"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/registration"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// kubeconfigRetry is when an invalid kubeconfig is checked again.
const kubeconfigRetry = time.Minute

// namePrefix is the prefix of the names of policies. The namespace and name of the Cluster follow, so a workload
// cluster with several Cluster objects has one policy for each.
const namePrefix = "poolboot-node-guard."

// guard applies the policy and the RBAC objects of a Cluster. It returns when to do so again, or 0.
func (r *Reconciler) guard(ctx context.Context, cluster *clusterv1.Cluster, pools []poolv1.MachineConfigPool) (time.Duration, error) {
	err := r.apply(ctx, client.ObjectKeyFromObject(cluster), pools)
	switch {
	case errors.Is(err, clustercache.ErrClusterNotConnected):
		if workload.UnreachableReason(err) == bootstrapv1.KubeconfigInvalidReason { // reported before a host boots
			r.Recorder.Eventf(cluster, nil, corev1.EventTypeWarning, bootstrapv1.KubeconfigInvalidReason, "Connect", "%s", err)
			return kubeconfigRetry, nil
		}
		return 0, nil // the cluster source triggers a reconcile after the connection is established
	case meta.IsNoMatchError(err):
		r.Recorder.Eventf(cluster, nil, corev1.EventTypeWarning, poolv1.EventNodesUnguarded, "GuardNodes",
			"The cluster has no ValidatingAdmissionPolicy (admissionregistration.k8s.io/v1, Kubernetes 1.30): root on a host can change the labels of its "+
				"Node that NodeRestriction allows kubelets to set: upgrade the cluster, or select Nodes by node-role.kubernetes.io/ labels only")
		return 0, nil
	}
	return 0, err
}

// apply applies the RBAC objects and the policy.
func (r *Reconciler) apply(ctx context.Context, cluster client.ObjectKey, pools []poolv1.MachineConfigPool) error {
	w, err := workload.Client(ctx, r.ClusterCache, cluster)
	if err != nil {
		return err
	}
	if err := r.applyRBAC(ctx, cluster, w); err != nil {
		return err
	}
	name := namePrefix + cluster.Namespace + "." + cluster.Name
	for _, object := range registration.Guard(name, pools) {
		if err := w.Apply(ctx, object, client.FieldOwner(join.FieldManager), client.ForceOwnership); err != nil {
			return fmt.Errorf("policy %s: %w", name, err)
		}
	}
	return r.watch(ctx, cluster, name, "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
}

// applyRBAC applies the RBAC objects for joins, if a boot was prepared for the cluster. The host controller applies
// them before it creates the first join credential.
func (r *Reconciler) applyRBAC(ctx context.Context, cluster client.ObjectKey, w client.Client) error {
	configs := &bootstrapv1.PoolbootConfigList{}
	if err := r.Client.List(ctx, configs, client.InNamespace(cluster.Namespace), client.MatchingLabels{clusterv1.ClusterNameLabel: cluster.Name},
		client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	booted, kubeadm := false, false
	for i := range configs.Items {
		config := &configs.Items[i]
		if record.HasNode(config) || record.HasCredential(config) {
			booted, kubeadm = true, kubeadm || config.Spec.Join.Type == bootstrapv1.JoinTypeKubeadm && record.HasCredential(config)
		}
	}
	if booted {
		if err := join.EnsureRBAC(ctx, w, kubeadm); err != nil {
			return err
		}
	}
	return r.watch(ctx, cluster, "", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
}

// watch watches the objects of some kinds that Poolboot manages, or those with a name.
func (r *Reconciler) watch(ctx context.Context, cluster client.ObjectKey, name string, kinds ...string) error {
	watch := workload.Watch{Clusters: r.ClusterCache, Controller: r.controller, Name: "clusternodes"}
	for _, kind := range kinds {
		version := rbacv1.SchemeGroupVersion
		if strings.HasPrefix(kind, "Validating") {
			version = admissionregistrationv1.SchemeGroupVersion
		}
		if err := watch.ManagedObjects(ctx, cluster, version.WithKind(kind), name); err != nil {
			return err
		}
	}
	return nil
}
