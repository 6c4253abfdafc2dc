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

// FieldManager is the field manager with which Poolboot writes in workload clusters.
const FieldManager = "poolboot"

// Labels are the labels of every object that grants permissions. A watch selects exactly these objects with them.
var Labels = map[string]string{poolv1.ManagedByLabel: poolv1.ManagedByPoolboot}

// Names of the objects that grant the permissions to join.
const (
	bootstrapperName = "poolboot:node-bootstrapper"
	renewalName      = "poolboot:node-certificate-renewal"
	kubeadmName      = "poolboot:kubeadm-join"
)

// EnsureRBAC grants the permissions to join to the group of the credentials. With kubeadm, it also grants what kubeadm
// join needs. It is idempotent. It is enough to call it once for each cluster after the manager starts.
//
// The group can create certificate signing requests, but they are not approved automatically. Nodes can renew their own
// certificates: kube-controller-manager approves these requests.
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
			return fmt.Errorf("permissions to join: %w", err)
		}
	}
	return nil
}

// kubeadmRBAC returns the permissions to read what kubeadm join reads: the Node with the name of the host, because
// kubeadm refuses to join as a Node that is Ready, and two ConfigMaps of the cluster. kubeadm continues if it cannot
// read the ConfigMap of kube-proxy and the public cluster-info.
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
