package clusterapi

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/kubeconfig"
	"sigs.k8s.io/cluster-api/util/test/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/controlplane"
	infrav1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/metal3/v1beta2"
)

// ClusterOptions describes a Cluster to make.
type ClusterOptions struct {
	// Namespace is where its objects are; it must exist.
	Namespace string
	// Name is the name of the Cluster and of its Metal3Cluster and control plane.
	Name string
	// Version is the Kubernetes version that the control plane reports. Left empty, it is v1.36.3.
	Version string
	// Workload is the control plane that the Cluster's Nodes are in.
	Workload *controlplane.ControlPlane
	// Kubeconfig is what is in the Cluster's kubeconfig Secret. Left empty, it is the administrator's of Workload.
	Kubeconfig []byte
	// WithoutMetal3 leaves the Cluster without infrastructure of its own, as one is whose hosts are nobody's in the
	// management cluster.
	WithoutMetal3 bool
	// Uninitialized leaves the control plane object without a word that it is initialised, until
	// InitializeControlPlane.
	Uninitialized bool
}

// CreateCluster makes a Cluster whose control plane runs already: with its Metal3Cluster, a control plane object that
// says it is initialised, and the Secret that holds the workload cluster's kubeconfig. c's scheme must be Scheme.
func CreateCluster(ctx context.Context, c client.Client, options ClusterOptions) (*clusterv1.Cluster, error) {
	endpoint, err := apiEndpoint(options.Workload.Endpoint)
	if err != nil {
		return nil, err
	}
	meta := metav1.ObjectMeta{Namespace: options.Namespace, Name: options.Name}
	if err := createControlPlane(ctx, c, options); err != nil {
		return nil, err
	}
	cluster := &clusterv1.Cluster{
		ObjectMeta: meta,
		Spec: clusterv1.ClusterSpec{
			ControlPlaneEndpoint: endpoint,
			ControlPlaneRef: clusterv1.ContractVersionedObjectReference{
				APIGroup: builder.ControlPlaneGroupVersion.Group, Kind: builder.GenericControlPlaneKind, Name: options.Name,
			},
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
	if err := c.Create(ctx, cluster); err != nil {
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

func createControlPlane(ctx context.Context, c client.Client, options ClusterOptions) error {
	version := options.Version
	if version == "" {
		version = "v1.36.3"
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

// InitializeControlPlane has a Cluster's control plane object say that it is initialised.
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
	return c.Status().Patch(ctx, plane, client.MergeFrom(before)) // Cluster API writes it too
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
