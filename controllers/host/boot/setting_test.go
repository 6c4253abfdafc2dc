package boot

import (
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/host"
)

const (
	namespace        = "metal"
	overlayNamespace = "poolboot-system"
	machineName      = "edge-x7k2p"
	hostName         = "rack1-u12"
	infraLabel       = poolv1.NodeRoleLabelPrefix + "infra"
)

// setting is a Machine of the pool infra whose host was chosen and has not sent a request yet.
type setting struct {
	cluster       *clusterv1.Cluster
	worker, infra *poolv1.MachineConfigPool
	machine       *clusterv1.Machine
	config        *bootstrapv1.PoolbootConfig
	metal3Machine *unstructured.Unstructured
	host          *bmov1alpha1.BareMetalHost
}

func newSetting() *setting {
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID("uid-of-" + name),
			Labels: map[string]string{clusterv1.ClusterNameLabel: "edge"}}
	}
	s := &setting{
		cluster: &clusterv1.Cluster{ObjectMeta: meta("edge"), Spec: clusterv1.ClusterSpec{
			ControlPlaneEndpoint: clusterv1.APIEndpoint{Host: "192.0.2.10", Port: 6443},
		}},
		worker: newPool("edge-worker", poolv1.RoleWorker),
		infra:  newPool("edge-infra", "infra"),
		machine: &clusterv1.Machine{ObjectMeta: meta(machineName), Spec: clusterv1.MachineSpec{
			ClusterName: "edge",
			Bootstrap: clusterv1.Bootstrap{ConfigRef: clusterv1.ContractVersionedObjectReference{
				APIGroup: bootstrapv1.GroupVersion.Group, Kind: "PoolbootConfig", Name: machineName}},
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{
				APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "Metal3Machine", Name: machineName},
		}},
		config: &bootstrapv1.PoolbootConfig{
			ObjectMeta: meta(machineName),
			Spec: bootstrapv1.PoolbootConfigSpec{BootSpec: bootstrapv1.BootSpec{
				ConfigSource:   bootstrapv1.ConfigSource{Type: bootstrapv1.ConfigSourceTypeServer},
				Join:           bootstrapv1.Join{Type: bootstrapv1.JoinTypeKubelet},
				NodeNameSource: bootstrapv1.NodeNameSourceMachine,
			}},
			Status: bootstrapv1.PoolbootConfigStatus{DataSecretName: machineName},
		},
		metal3Machine: &unstructured.Unstructured{},
		host: &bmov1alpha1.BareMetalHost{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: hostName, UID: "uid-of-the-host"},
			Spec: bmov1alpha1.BareMetalHostSpec{ConsumerRef: &corev1.ObjectReference{
				APIVersion: "infrastructure.cluster.x-k8s.io/v1beta2", Kind: "Metal3Machine", Namespace: namespace, Name: machineName}},
			Status: bmov1alpha1.BareMetalHostStatus{Provisioning: bmov1alpha1.ProvisionStatus{State: bmov1alpha1.StateProvisioned}},
		},
	}
	s.machine.Labels[infraLabel] = ""
	owner := metav1.OwnerReference{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: machineName, UID: "uid-of-the-machine"}
	s.config.Annotations = map[string]string{bootstrapv1.PointerIDAnnotation: "1-2"}
	s.config.UID, s.config.Finalizers, s.config.OwnerReferences = "uid-of-the-config", []string{bootstrapv1.Finalizer}, []metav1.OwnerReference{owner}
	s.metal3Machine.SetAPIVersion("infrastructure.cluster.x-k8s.io/v1beta2")
	s.metal3Machine.SetKind("Metal3Machine")
	s.metal3Machine.SetNamespace(namespace)
	s.metal3Machine.SetName(machineName)
	s.metal3Machine.SetAnnotations(map[string]string{host.Annotation: namespace + "/" + hostName})
	s.metal3Machine.SetOwnerReferences([]metav1.OwnerReference{owner})
	return s
}

func newPool(name, role string) *poolv1.MachineConfigPool {
	return &poolv1.MachineConfigPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{poolv1.ClusterIdentityAnnotation: "first-uid"}},
		Spec:       poolv1.MachineConfigPoolSpec{ClusterName: "edge", PoolRole: role},
		Status:     poolv1.MachineConfigPoolStatus{Configuration: poolv1.PoolConfiguration{Name: "rendered-" + name + "-1"}},
	}
}

// inline makes the machine boot from its data Secret alone, with the join credential abcdef, which expires at the given
// time.
func (s *setting) inline(expires time.Time) {
	s.config.Spec.ConfigSource = bootstrapv1.ConfigSource{Type: bootstrapv1.ConfigSourceTypeInline}
	s.config.Status.PoolRole, s.config.Status.Boot.ServedConfiguration.Name = "infra", "rendered-edge-infra-1"
	s.config.Status.Boot.CredentialID = "abcdef"
	s.config.Status.Boot.CredentialExpirationTime = &metav1.Time{Time: expires}
}

// world returns a world that contains the setting and more objects.
func (s *setting) world(more ...client.Object) *world {
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{
		Name:   "metal3machines.infrastructure.cluster.x-k8s.io",
		Labels: map[string]string{"cluster.x-k8s.io/v1beta2": "v1beta2"},
	}}
	return newWorld(append(more, crd, s.cluster, s.worker, s.infra, s.machine, s.config, s.metal3Machine, s.host)...)
}

func microTime(t time.Time) *metav1.MicroTime {
	return &metav1.MicroTime{Time: t.Truncate(time.Microsecond)}
}
