package clusterapi

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	kubeadmv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/metal3/v1beta2"
)

// KubeadmClusterOptions are the options of a Cluster whose control plane runs on hosts.
type KubeadmClusterOptions struct {
	// Namespace is the namespace of its objects. It must exist.
	Namespace string
	// Name is the name of the Cluster, of its Metal3Cluster, KubeadmControlPlane and Metal3MachineTemplate.
	Name string
	// Endpoint is the host:port at which clients reach the API servers of the hosts.
	Endpoint string
	// Replicas is the number of control-plane hosts.
	Replicas int32
	// Image is the URL of their image, which has cloud-init.
	Image string
}

// CreateKubeadmCluster creates a Cluster of which Cluster API's kubeadm providers create the control plane, with
// stacked etcd and without the add-ons of kubeadm. The scheme of c must be Scheme.
func CreateKubeadmCluster(ctx context.Context, c client.Client, options KubeadmClusterOptions) (*clusterv1.Cluster, error) {
	endpoint, err := apiEndpoint(options.Endpoint)
	if err != nil {
		return nil, err
	}
	meta := metav1.ObjectMeta{Namespace: options.Namespace, Name: options.Name}
	machines := &infrav1.Metal3MachineTemplate{ObjectMeta: meta}
	machines.Spec.Template.Spec.Image = infrav1.Image{URL: options.Image, Checksum: options.Image + ".sha256sum"}
	plane := &controlplanev1.KubeadmControlPlane{
		ObjectMeta: meta,
		Spec: controlplanev1.KubeadmControlPlaneSpec{
			Replicas: ptr.To(options.Replicas), Version: kubernetesVersion, KubeadmConfigSpec: kubeadmConfigSpec(),
			// Defaults of the provider's webhook.
			Rollout: controlplanev1.KubeadmControlPlaneRolloutSpec{Strategy: controlplanev1.KubeadmControlPlaneRolloutStrategy{
				Type:          controlplanev1.RollingUpdateStrategyType,
				RollingUpdate: controlplanev1.KubeadmControlPlaneRolloutStrategyRollingUpdate{MaxSurge: ptr.To(intstr.FromInt32(1))},
			}},
		},
	}
	plane.Annotations = map[string]string{controlplanev1.SkipCoreDNSAnnotation: "", controlplanev1.SkipKubeProxyAnnotation: ""}
	plane.Spec.MachineTemplate.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: infrav1.GroupVersion.Group, Kind: "Metal3MachineTemplate", Name: options.Name,
	}
	for _, object := range []client.Object{machines, plane} {
		if err := c.Create(ctx, object); err != nil {
			return nil, err
		}
	}
	return createCluster(ctx, c, ClusterOptions{Namespace: options.Namespace, Name: options.Name}, endpoint, controlplanev1.GroupVersion.WithKind("KubeadmControlPlane"))
}

// kubeadmConfigSpec returns what all hosts of a control plane have. As in the Metal3 provider's templates, cloud-init
// replaces names and IDs with those in the metadata of the host.
func kubeadmConfigSpec() kubeadmv1.KubeadmConfigSpec {
	registration := kubeadmv1.NodeRegistrationOptions{
		Name: "{{ ds.meta_data.name }}",
		KubeletExtraArgs: []kubeadmv1.Arg{
			{Name: "node-labels", Value: ptr.To("metal3.io/uuid={{ ds.meta_data.uuid }}")},
			{Name: "config-dir", Value: ptr.To("/etc/kubernetes/kubelet.conf.d")}, // the settings for a shared machine
		},
		IgnorePreflightErrors: []string{"SystemVerification"}, // about the kernel of the machine, which hosts share
		ImagePullPolicy:       "Never",                        // they are in the image of the host
	}
	// Without these, collecting garbage is a third of the processor time of an API server.
	seldom := &[]kubeadmv1.EnvVar{
		{EnvVar: corev1.EnvVar{Name: "GOGC", Value: "400"}},
		{EnvVar: corev1.EnvVar{Name: "GOMEMLIMIT", Value: "1GiB"}},
	}
	return kubeadmv1.KubeadmConfigSpec{
		Format:               kubeadmv1.CloudConfig,
		ClusterConfiguration: kubeadmv1.ClusterConfiguration{APIServer: kubeadmv1.APIServer{ExtraEnvs: seldom}},
		InitConfiguration:    kubeadmv1.InitConfiguration{NodeRegistration: registration, SkipPhases: []string{"addon/kube-proxy", "addon/coredns"}},
		JoinConfiguration:    kubeadmv1.JoinConfiguration{NodeRegistration: registration},
	}
}
