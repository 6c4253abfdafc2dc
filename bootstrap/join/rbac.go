package join

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	applyrbacv1 "k8s.io/client-go/applyconfigurations/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

// FieldManager is the field manager of what Poolboot applies to workload clusters.
const FieldManager = "poolboot"

// Labels are on every object that gives rights, so that a watch holds these and no others.
var Labels = map[string]string{poolv1.ManagedByLabel: poolv1.ManagedByPoolboot}

// Names of the objects that give the rights to join.
const (
	bootstrapperName = "poolboot:node-bootstrapper"
	renewalName      = "poolboot:node-certificate-renewal"
	kubeadmName      = "poolboot:kubeadm-join"
)

// EnsureRBAC gives the credentials' group the rights to join, and kubeadm's own needs only when kubeadm is set. It may
// be called any number of times; once for every cluster and start of the manager is enough.
//
// The group may ask for certificates; it gets none approved by itself. Nodes may renew their own certificate, which
// is approved by kube-controller-manager.
func EnsureRBAC(ctx context.Context, w client.Client, kubeadm bool) error {
	objects := []runtime.ApplyConfiguration{
		clusterRoleBinding(bootstrapperName, "system:node-bootstrapper", Group),
		clusterRoleBinding(renewalName, "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient", "system:nodes"),
	}
	if kubeadm {
		objects = append(objects, kubeadmRBAC()...)
	}
	for _, object := range objects {
		if err := w.Apply(ctx, object, client.FieldOwner(FieldManager), client.ForceOwnership); err != nil {
			return fmt.Errorf("rights to join: %w", err)
		}
	}
	return nil
}

// kubeadmRBAC lets the group read what kubeadm join reads: the Node of its name, to refuse one that is Ready, and the
// cluster's two ConfigMaps. kubeadm does without kube-proxy's ConfigMap and the public cluster-info when it may not
// read them.
func kubeadmRBAC() []runtime.ApplyConfiguration {
	return []runtime.ApplyConfiguration{
		applyrbacv1.ClusterRole(kubeadmName).WithLabels(Labels).WithRules(
			applyrbacv1.PolicyRule().WithAPIGroups("").WithResources("nodes").WithVerbs("get")),
		clusterRoleBinding(kubeadmName, kubeadmName, Group),
		applyrbacv1.Role(kubeadmName, metav1.NamespaceSystem).WithLabels(Labels).WithRules(
			applyrbacv1.PolicyRule().WithAPIGroups("").WithResources("configmaps").WithVerbs("get").
				WithResourceNames("kubeadm-config", "kubelet-config")),
		applyrbacv1.RoleBinding(kubeadmName, metav1.NamespaceSystem).WithLabels(Labels).
			WithRoleRef(roleRef("Role", kubeadmName)).WithSubjects(group(Group)),
	}
}

func clusterRoleBinding(name, clusterRole, groupName string) runtime.ApplyConfiguration {
	return applyrbacv1.ClusterRoleBinding(name).WithLabels(Labels).
		WithRoleRef(roleRef("ClusterRole", clusterRole)).WithSubjects(group(groupName))
}

func roleRef(kind, name string) *applyrbacv1.RoleRefApplyConfiguration {
	return applyrbacv1.RoleRef().WithAPIGroup(rbacv1.GroupName).WithKind(kind).WithName(name)
}

func group(name string) *applyrbacv1.SubjectApplyConfiguration {
	return applyrbacv1.Subject().WithAPIGroup(rbacv1.GroupName).WithKind(rbacv1.GroupKind).WithName(name)
}
