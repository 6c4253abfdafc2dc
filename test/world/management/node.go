package management

import (
	"context"
	"encoding/base64"
	"encoding/json"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/kubeadm"
)

const (
	joinToken  = "abcdef.0123456789abcdef"
	kubeRouter = "system:kube-router"
)

const joinUnit = `[Unit]
After=containerd.service network-online.target
Wants=network-online.target
ConditionPathExists=!/etc/kubernetes/kubelet.conf
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/bin/kubeadm join --config=/etc/kubernetes/join.yaml
[Install]
WantedBy=multi-user.target
`

// userData returns the Ignition configuration of a Node.
func (c *Cluster) userData() ([]byte, error) {
	proxy, err := c.UserKubeconfig("system:kube-proxy")
	if err != nil {
		return nil, err
	}
	router, err := c.UserKubeconfig(kubeRouter)
	if err != nil {
		return nil, err
	}
	type object map[string]any
	file := func(path string, content []byte) object {
		return object{"path": path, "mode": 0o600, "contents": object{"source": "data:;base64," + base64.StdEncoding.EncodeToString(content)}}
	}
	return json.Marshal(object{
		"ignition": object{"version": "3.4.0"},
		"storage": object{"files": []object{
			file("/etc/kubernetes/kube-proxy.conf", proxy),
			file("/etc/kubernetes/kube-router.conf", router),
			file("/etc/kubernetes/join.yaml", kubeadm.JoinConfiguration(c.ControlPlane, joinToken)),
		}},
		"systemd": object{"units": []object{
			{"name": "kubelet.service", "enabled": true},
			{"name": "kube-proxy.service", "enabled": true},
			{"name": "kube-router.service", "enabled": true},
			{"name": "join.service", "enabled": true, "contents": joinUnit},
		}},
	})
}

// grantRights gives kube-router the rights of its own manifests. Those of kube-proxy come with Kubernetes.
func grantRights(ctx context.Context, clients *kubernetes.Clientset) error {
	read := []string{"get", "list", "watch"}
	meta := metav1.ObjectMeta{Name: kubeRouter}
	role := &rbacv1.ClusterRole{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"namespaces", "pods", "services", "nodes", "endpoints"}, Verbs: read},
		{APIGroups: []string{"networking.k8s.io"}, Resources: []string{"networkpolicies"}, Verbs: read},
		{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: read},
	}}
	if _, err := clients.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err := clients.RbacV1().ClusterRoleBindings().Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: kubeRouter},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: kubeRouter}},
	}, metav1.CreateOptions{})
	return err
}
