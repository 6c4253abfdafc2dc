// Package controllertest has what the tests of several controllers share: a scheme, clients whose writes can fail, and
// the events of a recorder. What is specific to a test, such as its objects, is in the test.
package controllertest

import (
	"context"
	"math/rand/v2"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/events"
	controlplanev1 "sigs.k8s.io/cluster-api/api/controlplane/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/controllers/internal/workload"
)

// Scheme returns a scheme with all kinds that the controllers read and write, and no others: for each write, a fake
// client maps all of them again, which took half of the time of the tests with those of all groups of Kubernetes.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		admissionregistrationv1.AddToScheme, appsv1.AddToScheme, authorizationv1.AddToScheme, certificatesv1.AddToScheme, coordinationv1.AddToScheme, corev1.AddToScheme,
		eventsv1.AddToScheme, policyv1.AddToScheme, rbacv1.AddToScheme, storagev1.AddToScheme, apiextensionsv1.AddToScheme, clusterv1.AddToScheme,
		controlplanev1.AddToScheme, bmov1alpha1.AddToScheme, bootstrapv1.AddToScheme, poolv1.AddToScheme,
	} {
		utilruntime.Must(add(scheme))
	}
	return scheme
}

// Events returns the events that a recorder has received since the last call.
func Events(recorder *events.FakeRecorder) (received []string) {
	for {
		select {
		case event := <-recorder.Events:
			received = append(received, event)
		default:
			return received
		}
	}
}

// NewCache returns a cache that reads from a client. It has no informers.
func NewCache(reader client.Reader) cache.Cache {
	return struct {
		client.Reader
		cache.Informers
	}{Reader: reader}
}

// NewClientBuilder returns a builder of a fake client with the scheme of the controllers and these objects. It lists
// objects in any order, as the cache of a manager does, and has the indexes of workload.Watch.
func NewClientBuilder(objects ...client.Object) *fake.ClientBuilder {
	return fake.NewClientBuilder().WithScheme(Scheme()).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{List: listInAnyOrder}).
		WithIndex(&bootstrapv1.PoolbootConfig{}, workload.HostUserIndex, workload.HostUsers).
		WithIndex(&bootstrapv1.PoolbootConfig{}, workload.AwaitedNodeIndex, workload.AwaitedNodes)
}

// NewCluster returns a Cluster whose control plane is initialized.
func NewCluster(key client.ObjectKey) *clusterv1.Cluster {
	cluster := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	conditions.Set(cluster, metav1.Condition{
		Type: clusterv1.ClusterControlPlaneInitializedCondition, Status: metav1.ConditionTrue, Reason: clusterv1.ClusterControlPlaneInitializedReason,
	})
	return cluster
}

// NewPool returns a pool of a Cluster, whose name is its role.
func NewPool(cluster client.ObjectKey, role string) *poolv1.MachineConfigPool {
	return &poolv1.MachineConfigPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: role},
		Spec:       poolv1.MachineConfigPoolSpec{ClusterName: cluster.Name, PoolRole: role},
	}
}

// NewConfig returns a PoolbootConfig of a Cluster.
func NewConfig(cluster client.ObjectKey, name string) *bootstrapv1.PoolbootConfig {
	return &bootstrapv1.PoolbootConfig{ObjectMeta: metav1.ObjectMeta{
		Namespace: cluster.Namespace, Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: cluster.Name},
	}}
}

// NewTemplate returns a template whose PoolbootConfigs join with the kubelet and have a label.
func NewTemplate(namespace, name string) *bootstrapv1.PoolbootConfigTemplate {
	template := &bootstrapv1.PoolbootConfigTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	template.Spec.Template.Spec.Join.Type = bootstrapv1.JoinTypeKubelet
	template.Spec.Template.ObjectMeta.Labels = map[string]string{"example.com/of": "the-template"}
	return template
}

// NewHost returns a BareMetalHost whose inspection found network cards with these addresses.
func NewHost(key client.ObjectKey, state bmov1alpha1.ProvisioningState, addresses ...string) *bmov1alpha1.BareMetalHost {
	host := &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	host.Status.Provisioning.State = state
	SetAddresses(host, addresses...)
	return host
}

// SetAddresses sets the addresses that the inspection of a host found.
func SetAddresses(host *bmov1alpha1.BareMetalHost, addresses ...string) {
	host.Status.HardwareDetails = &bmov1alpha1.HardwareDetails{}
	for _, address := range addresses {
		host.Status.HardwareDetails.NIC = append(host.Status.HardwareDetails.NIC, bmov1alpha1.NIC{IP: address})
	}
}

// NewNode returns a Node with role labels.
func NewNode(name string, roles ...string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	for _, role := range roles {
		node.Labels[poolv1.NodeRoleLabelPrefix+role] = ""
	}
	return node
}

func listInAnyOrder(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
	if err := c.List(ctx, list, opts...); err != nil {
		return err
	}
	items, err := meta.ExtractList(list)
	if err != nil {
		return err
	}
	rand.Shuffle(len(items), func(i, j int) { items[i], items[j] = items[j], items[i] })
	return meta.SetList(list, items)
}
