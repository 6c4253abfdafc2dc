package integration

import (
	"context"
	"fmt"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/clusterapi"
	infrav1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/metal3/v1beta2"
)

// tenant is a namespace of the management cluster with a Cluster in it. All tenants share the workload control plane.
type tenant struct {
	namespace string
	cluster   *clusterv1.Cluster
}

// newTenant makes a namespace with a Cluster, a worker and an infra pool, and as many free hosts as asked for.
func newTenant(ctx context.Context, freeHosts int) *tenant {
	t := newEmptyTenant(ctx)
	t.createCluster(ctx, clusterapi.ClusterOptions{})
	t.create(ctx, t.pool("worker"), t.pool("infra"),
		t.machineConfig("00-worker", "worker", "/etc/workertest", "worker"), t.machineConfig("51-infra", "infra", "/etc/infratest", "infra"))
	t.addHosts(ctx, freeHosts)
	return t
}

// newEmptyTenant makes a namespace with nothing in it.
func newEmptyTenant(ctx context.Context) *tenant {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "t-"}}
	Expect(lab.ManagementClient.Create(ctx, namespace)).To(Succeed())
	return &tenant{namespace: namespace.Name}
}

// createCluster makes the tenant's Cluster, named as its namespace.
func (t *tenant) createCluster(ctx context.Context, options clusterapi.ClusterOptions) {
	options.Namespace, options.Name, options.Workload = t.namespace, t.namespace, lab.Workload
	var err error
	t.cluster, err = clusterapi.CreateCluster(ctx, lab.ManagementClient, options)
	ExpectWithOffset(1, err).NotTo(HaveOccurred())
}

func (t *tenant) create(ctx context.Context, objects ...client.Object) {
	for _, object := range objects {
		object.SetNamespace(t.namespace)
		ExpectWithOffset(1, lab.ManagementClient.Create(ctx, object)).To(Succeed(), object.GetName())
	}
}

func (t *tenant) addHosts(ctx context.Context, n int) {
	for i := range n {
		t.create(ctx, &bmov1alpha1.BareMetalHost{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("host-%d", i), Labels: map[string]string{"tenant": t.namespace}},
			Spec:       bmov1alpha1.BareMetalHostSpec{Online: true, BootMACAddress: "52:54:00:00:00:01", BMC: bmov1alpha1.BMCDetails{Address: "redfish://bmc.example.com/1", CredentialsName: "bmc"}},
		})
	}
}

func (t *tenant) pool(role string) *poolv1.MachineConfigPool {
	return &poolv1.MachineConfigPool{
		ObjectMeta: metav1.ObjectMeta{Name: role, Namespace: t.namespace},
		Spec: poolv1.MachineConfigPoolSpec{
			ClusterName: t.namespace, Role: role,
			MachineConfigSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"role": role}},
		},
	}
}

func (t *tenant) machineConfig(name, role, path, content string) *poolv1.MachineConfig {
	return &poolv1.MachineConfig{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: t.namespace, Labels: map[string]string{"role": role}},
		Spec: poolv1.MachineConfigSpec{Config: &runtime.RawExtension{Raw: fmt.Appendf(nil,
			`{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":%q,"mode":420,"contents":{"source":"data:,%s"}}]}}`, path, content)}},
	}
}

// deploy makes a MachineDeployment with a Poolboot template.
func (t *tenant) deploy(ctx context.Context, name string, replicas int32, labels map[string]string, change func(*bootstrapv1.PoolbootConfigSpec)) *clusterv1.MachineDeployment {
	template := &bootstrapv1.PoolbootConfigTemplate{ObjectMeta: metav1.ObjectMeta{Name: name}}
	template.Spec.Template.Spec.Join.Kubelet = &bootstrapv1.KubeletJoin{}
	if change != nil {
		change(&template.Spec.Template.Spec)
	}
	machines := &infrav1.Metal3MachineTemplate{ObjectMeta: metav1.ObjectMeta{Name: name}}
	machines.Spec.Template.Spec.Image = infrav1.Image{URL: "http://images.example.com/os.qcow2", Checksum: "http://images.example.com/os.qcow2.sha256sum"}
	all := map[string]string{clusterv1.MachineDeploymentNameLabel: name}
	for key, value := range labels {
		all[key] = value
	}
	deployment := &clusterv1.MachineDeployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{clusterv1.ClusterNameLabel: t.namespace}},
		Spec: clusterv1.MachineDeploymentSpec{
			ClusterName: t.namespace, Replicas: ptr.To(replicas),
			Selector: metav1.LabelSelector{MatchLabels: map[string]string{clusterv1.MachineDeploymentNameLabel: name}},
			Template: clusterv1.MachineTemplateSpec{
				ObjectMeta: clusterv1.ObjectMeta{Labels: all},
				Spec: clusterv1.MachineSpec{
					ClusterName: t.namespace, Version: "v1.36.3",
					Bootstrap: clusterv1.Bootstrap{ConfigRef: clusterv1.ContractVersionedObjectReference{
						APIGroup: bootstrapv1.GroupVersion.Group, Kind: "PoolbootConfigTemplate", Name: name}},
					InfrastructureRef: clusterv1.ContractVersionedObjectReference{
						APIGroup: infrav1.GroupVersion.Group, Kind: "Metal3MachineTemplate", Name: name},
				},
			},
		},
	}
	t.create(ctx, template, machines, deployment)
	return deployment
}

// configs returns the PoolbootConfigs of a MachineDeployment.
func (t *tenant) configs(ctx context.Context, deployment string) []bootstrapv1.PoolbootConfig {
	var list bootstrapv1.PoolbootConfigList
	Expect(lab.ManagementClient.List(ctx, &list, client.InNamespace(t.namespace),
		client.MatchingLabels{clusterv1.MachineDeploymentNameLabel: deployment})).To(Succeed())
	return list.Items
}

// config waits for the one PoolbootConfig of a MachineDeployment.
func (t *tenant) config(ctx context.Context, deployment string) *bootstrapv1.PoolbootConfig {
	var configs []bootstrapv1.PoolbootConfig
	Eventually(ctx, func() []bootstrapv1.PoolbootConfig {
		configs = t.configs(ctx, deployment)
		return configs
	}).Should(HaveLen(1))
	return &configs[0]
}

// condition reads a condition of a PoolbootConfig afresh, as "Status Reason: message".
func condition(config *bootstrapv1.PoolbootConfig, kind string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		if err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(config), config); err != nil {
			return "", err
		}
		c := conditions.Get(config, kind)
		if c == nil {
			return "", nil
		}
		return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message), nil
	}
}

// asking waits until the host of a config has its whole configuration and returns the host.
func (t *tenant) asking(ctx context.Context, config *bootstrapv1.PoolbootConfig) *askingHost {
	Eventually(ctx, condition(config, bootstrapv1.BootPreparedCondition)).Should(HavePrefix("True"))
	host := hosts.of(client.ObjectKey{Namespace: config.Status.Host.Namespace, Name: config.Status.Host.Name})
	Eventually(ctx, func() error { _, err := host.got(); return err }).Should(Succeed())
	return host
}

// node returns the Node that was made for a config.
func node(ctx context.Context, config *bootstrapv1.PoolbootConfig) *corev1.Node {
	node := &corev1.Node{}
	Expect(lab.WorkloadClient.Get(ctx, client.ObjectKey{Name: config.Status.Node.Name}, node)).To(Succeed())
	return node
}

// pointer returns what is in a config's data Secret.
func pointer(ctx context.Context, config *bootstrapv1.PoolbootConfig) ignition.Pointer {
	secret := &corev1.Secret{}
	ExpectWithOffset(1, lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(config), secret)).To(Succeed())
	pointer, err := ignition.ParsePointer(secret.Data["value"])
	ExpectWithOffset(1, err).NotTo(HaveOccurred())
	return pointer
}

// machine returns the Machine of a config.
func (t *tenant) machine(ctx context.Context, config *bootstrapv1.PoolbootConfig) *clusterv1.Machine {
	machine := &clusterv1.Machine{}
	for _, owner := range config.OwnerReferences {
		if owner.Kind == "Machine" {
			Expect(lab.ManagementClient.Get(ctx, client.ObjectKey{Namespace: t.namespace, Name: owner.Name}, machine)).To(Succeed())
		}
	}
	return machine
}

func (t *tenant) scale(ctx context.Context, deployment *clusterv1.MachineDeployment, replicas int32) {
	before := deployment.DeepCopy()
	deployment.Spec.Replicas = ptr.To(replicas)
	Expect(lab.ManagementClient.Patch(ctx, deployment, client.MergeFrom(before))).To(Succeed())
}

func (t *tenant) pause(ctx context.Context, paused bool) {
	before := t.cluster.DeepCopy()
	t.cluster.Spec.Paused = ptr.To(paused)
	Expect(lab.ManagementClient.Patch(ctx, t.cluster, client.MergeFrom(before))).To(Succeed())
}
