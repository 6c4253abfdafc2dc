package tenant

import (
	"context"
	"fmt"
	"maps"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/ignition"
	infrav1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/metal3/v1beta2"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
)

// Deployment describes a MachineDeployment with a Poolboot template.
type Deployment struct {
	Name     string
	Replicas int32
	// Labels are the labels of its Machines.
	Labels map[string]string
	// Taints are the taints of its Machines.
	Taints []clusterv1.MachineTaint
	// Image is the URL of the servers' image. Default: site.KubeletImageURL.
	Image string
	// DiskFormat is the format of the image. Default: the provider's default.
	DiskFormat string
	// NodeReuse makes the provider keep the servers of deleted Machines for the next Machines.
	NodeReuse bool
	// DataTemplate is the name of the Metal3DataTemplate of its servers' metadata and network data. Default: none.
	DataTemplate string
	// Config changes the spec of its PoolbootConfigs, which have a join with the kubelet only.
	Config func(*bootstrapv1.BootSpec)
	// Bootstrap is the template of its bootstrap configs, of any provider. Deploy sets its name. Default: a
	// PoolbootConfigTemplate changed by Config.
	Bootstrap client.Object
}

// Deploy creates a MachineDeployment with its templates.
func (t *Tenant) Deploy(ctx context.Context, d Deployment) *clusterv1.MachineDeployment {
	bootstrap, kind := t.bootstrap(d)
	if d.Image == "" {
		d.Image = site.KubeletImageURL
	}
	machines := &infrav1.Metal3MachineTemplate{ObjectMeta: metav1.ObjectMeta{Name: d.Name}}
	if d.NodeReuse {
		machines.Spec.NodeReuse = ptr.To(true)
	}
	machines.Spec.Template.Spec.Image = infrav1.Image{URL: d.Image, Checksum: d.Image + ".sha256sum", DiskFormat: d.DiskFormat}
	if d.DataTemplate != "" {
		machines.Spec.Template.Spec.DataTemplate = &infrav1.ObjectReference{Name: d.DataTemplate}
	}
	labels := map[string]string{clusterv1.MachineDeploymentNameLabel: d.Name}
	selector := metav1.LabelSelector{MatchLabels: maps.Clone(labels)}
	maps.Copy(labels, d.Labels)
	deployment := &clusterv1.MachineDeployment{
		ObjectMeta: metav1.ObjectMeta{Name: d.Name, Labels: map[string]string{clusterv1.ClusterNameLabel: t.Namespace}},
		Spec: clusterv1.MachineDeploymentSpec{
			ClusterName: t.Namespace, Replicas: ptr.To(d.Replicas), Selector: selector,
			Template: clusterv1.MachineTemplateSpec{
				ObjectMeta: clusterv1.ObjectMeta{Labels: labels},
				Spec: clusterv1.MachineSpec{
					ClusterName: t.Namespace, Version: "v1.36.3", Taints: d.Taints,
					Bootstrap: clusterv1.Bootstrap{ConfigRef: clusterv1.ContractVersionedObjectReference{
						APIGroup: kind.Group, Kind: kind.Kind, Name: d.Name}},
					InfrastructureRef: clusterv1.ContractVersionedObjectReference{
						APIGroup: infrav1.GroupVersion.Group, Kind: "Metal3MachineTemplate", Name: d.Name},
				},
			},
		},
	}
	t.Create(ctx, bootstrap, machines, deployment)
	return deployment
}

// bootstrap returns the template of a MachineDeployment's bootstrap configs and its kind.
func (t *Tenant) bootstrap(d Deployment) (client.Object, schema.GroupVersionKind) {
	if d.Bootstrap == nil {
		template := &bootstrapv1.PoolbootConfigTemplate{}
		template.Spec.Template.Spec.Join.Type = bootstrapv1.JoinTypeKubelet
		if d.Config != nil {
			d.Config(&template.Spec.Template.Spec)
		}
		d.Bootstrap = template
	}
	d.Bootstrap.SetName(d.Name)
	kind, err := t.site.ManagementClient.GroupVersionKindFor(d.Bootstrap)
	ExpectWithOffset(2, err).NotTo(HaveOccurred())
	return d.Bootstrap, kind
}

// Configs returns the PoolbootConfigs of a MachineDeployment.
func (t *Tenant) Configs(ctx context.Context, deployment string) []bootstrapv1.PoolbootConfig {
	var list bootstrapv1.PoolbootConfigList
	ExpectWithOffset(1, t.site.ManagementClient.List(ctx, &list, client.InNamespace(t.Namespace),
		client.MatchingLabels{clusterv1.MachineDeploymentNameLabel: deployment})).To(Succeed())
	return list.Items
}

// Config waits for the one PoolbootConfig of a MachineDeployment.
func (t *Tenant) Config(ctx context.Context, deployment string) *bootstrapv1.PoolbootConfig {
	var configs []bootstrapv1.PoolbootConfig
	EventuallyWithOffset(1, func() []bootstrapv1.PoolbootConfig {
		configs = t.Configs(ctx, deployment)
		return configs
	}).WithContext(ctx).Should(HaveLen(1))
	return &configs[0]
}

// Condition returns a function for Eventually that reads a condition of a PoolbootConfig as "Status Reason: message".
func (t *Tenant) Condition(config *bootstrapv1.PoolbootConfig, kind string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		if err := t.site.ManagementClient.Get(ctx, client.ObjectKeyFromObject(config), config); err != nil {
			return "", err
		}
		c := conditions.Get(config, kind)
		if c == nil {
			return "", nil
		}
		return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message), nil
	}
}

// Machine returns the Machine of a config. It waits until the Machine is the config's owner, which is the MachineSet at
// first.
func (t *Tenant) Machine(ctx context.Context, config *bootstrapv1.PoolbootConfig) *clusterv1.Machine {
	GinkgoHelper()
	var machine *clusterv1.Machine
	current := config.DeepCopy()
	Eventually(ctx, func() (_ *clusterv1.Machine, err error) {
		if machine, err = util.GetOwnerMachine(ctx, t.site.ManagementClient, current.ObjectMeta); machine != nil || err != nil {
			return machine, err
		}
		return nil, t.site.ManagementClient.Get(ctx, client.ObjectKeyFromObject(config), current)
	}).ShouldNot(BeNil())
	return machine
}

// Node returns the Node of a config.
func (t *Tenant) Node(ctx context.Context, config *bootstrapv1.PoolbootConfig) *corev1.Node {
	node := &corev1.Node{}
	ExpectWithOffset(1, t.site.WorkloadClient.Get(ctx, client.ObjectKey{Name: config.Status.NodeRef.Name}, node)).To(Succeed())
	return node
}

// Pointer returns the pointer in a config's data Secret.
func (t *Tenant) Pointer(ctx context.Context, config *bootstrapv1.PoolbootConfig) ignition.Pointer {
	secret := &corev1.Secret{}
	ExpectWithOffset(1, t.site.ManagementClient.Get(ctx, client.ObjectKeyFromObject(config), secret)).To(Succeed())
	pointer, err := ignition.ParsePointer(secret.Data["value"])
	ExpectWithOffset(1, err).NotTo(HaveOccurred())
	return pointer
}

// Rotate requests rotation of a config's token by annotation, as a user does, and waits until the token is rotated.
func (t *Tenant) Rotate(ctx context.Context, config *bootstrapv1.PoolbootConfig) {
	GinkgoHelper()
	key := client.ObjectKeyFromObject(config)
	Expect(t.site.ManagementClient.Get(ctx, key, config)).To(Succeed())
	before := config.DeepCopy()
	metav1.SetMetaDataAnnotation(&config.ObjectMeta, bootstrapv1.RotateTokenAnnotation, "now")
	Expect(t.site.ManagementClient.Patch(ctx, config, client.MergeFrom(before))).To(Succeed())
	Eventually(ctx, func() (map[string]string, error) {
		err := t.site.ManagementClient.Get(ctx, key, config)
		return config.Annotations, err
	}).ShouldNot(HaveKey(bootstrapv1.RotateTokenAnnotation))
}
