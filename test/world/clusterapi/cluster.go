package clusterapi

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/kubeconfig"
	"sigs.k8s.io/cluster-api/util/test/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/controlplane"
	infrav1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/metal3/v1beta2"
)

// kubernetesVersion is the version of the programs in the bin directory.
const kubernetesVersion = "v1.36.3"

// ClusterOptions are the options of a Cluster.
type ClusterOptions struct {
	// Namespace is the namespace of its objects. It must exist.
	Namespace string
	// Name is the name of the Cluster and of its Metal3Cluster and control plane.
	Name string
	// Version is the Kubernetes version that the control plane reports. Default: v1.36.3.
	Version string
	// Workload is the control plane of the Cluster's Nodes.
	Workload *controlplane.ControlPlane
	// Kubeconfig is the content of the Cluster's kubeconfig Secret. Default: the administrator's kubeconfig of
	// Workload.
	Kubeconfig []byte
	// WithoutMetal3 creates a Cluster without a Metal3Cluster, for hosts that are not in the management cluster.
	WithoutMetal3 bool
	// Uninitialized leaves the control plane uninitialized until InitializeControlPlane.
	Uninitialized bool
}

// CreateCluster creates a Cluster for a running control plane, with a Metal3Cluster, an initialized control plane
// object, and the Secret with the workload cluster's kubeconfig. The scheme of c must be Scheme.
func CreateCluster(ctx context.Context, c client.Client, options ClusterOptions) (*clusterv1.Cluster, error) {
	endpoint, err := apiEndpoint(options.Workload.Endpoint)
	if err != nil {
		return nil, err
	}
	if err := createControlPlane(ctx, c, options); err != nil {
		return nil, err
	}
	cluster, err := createCluster(ctx, c, options, endpoint, builder.ControlPlaneGroupVersion.WithKind(builder.GenericControlPlaneKind))
	if err != nil {
		return nil, err
	}
	content := options.Kubeconfig
	if content == nil {
		if content, err = os.ReadFile(options.Workload.Kubeconfig); err != nil {
			return nil, err
		}
	}
	return cluster, c.Create(ctx, kubeconfig.GenerateSecret(cluster, content))
}

// createCluster creates a Cluster with a kind of control plane, and its Metal3Cluster.
func createCluster(ctx context.Context, c client.Client, options ClusterOptions, endpoint clusterv1.APIEndpoint, plane schema.GroupVersionKind) (*clusterv1.Cluster, error) {
	meta := metav1.ObjectMeta{Namespace: options.Namespace, Name: options.Name}
	cluster := &clusterv1.Cluster{
		ObjectMeta: meta,
		Spec: clusterv1.ClusterSpec{
			ControlPlaneEndpoint: endpoint,
			ControlPlaneRef:      clusterv1.ContractVersionedObjectReference{APIGroup: plane.Group, Kind: plane.Kind, Name: options.Name},
		},
	}
	if !options.WithoutMetal3 {
		infrastructure := &infrav1.Metal3Cluster{ObjectMeta: meta, Spec: infrav1.Metal3ClusterSpec{ControlPlaneEndpoint: endpoint}}
		if err := c.Create(ctx, infrastructure); err != nil {
			return nil, err
		}
		cluster.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
			APIGroup: infrav1.GroupVersion.Group, Kind: "Metal3Cluster", Name: options.Name,
		}
	}
	return cluster, c.Create(ctx, cluster)
}

func createControlPlane(ctx context.Context, c client.Client, options ClusterOptions) error {
	version := options.Version
	if version == "" {
		version = kubernetesVersion
	}
	plane := &unstructured.Unstructured{}
	plane.SetGroupVersionKind(builder.ControlPlaneGroupVersion.WithKind(builder.GenericControlPlaneKind))
	plane.SetNamespace(options.Namespace)
	plane.SetName(options.Name)
	plane.Object["spec"] = map[string]any{"version": version}
	if err := c.Create(ctx, plane); err != nil || options.Uninitialized {
		return err
	}
	return InitializeControlPlane(ctx, c, client.ObjectKeyFromObject(plane))
}

// InitializeControlPlane sets the status of a Cluster's control plane object to initialized.
func InitializeControlPlane(ctx context.Context, c client.Client, cluster client.ObjectKey) error {
	plane := &unstructured.Unstructured{}
	plane.SetGroupVersionKind(builder.ControlPlaneGroupVersion.WithKind(builder.GenericControlPlaneKind))
	if err := c.Get(ctx, cluster, plane); err != nil {
		return err
	}
	version, _, err := unstructured.NestedString(plane.Object, "spec", "version")
	if err != nil {
		return err
	}
	before := plane.DeepCopy()
	plane.Object["status"] = map[string]any{
		"version":                     version,
		"externalManagedControlPlane": true,
		"initialization":              map[string]any{"controlPlaneInitialized": true},
	}
	return c.Status().Patch(ctx, plane, client.MergeFrom(before)) // Cluster API also writes it
}

func apiEndpoint(address string) (clusterv1.APIEndpoint, error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return clusterv1.APIEndpoint{}, err
	}
	port, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return clusterv1.APIEndpoint{}, fmt.Errorf("port of %s: %w", address, err)
	}
	return clusterv1.APIEndpoint{Host: host, Port: int32(port)}, nil
}
