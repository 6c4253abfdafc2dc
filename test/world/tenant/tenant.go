// Package tenant creates the objects of a user of a site: a namespace with a Cluster, pools, MachineConfigs, servers
// and MachineDeployments. It is for ginkgo suites: errors fail the spec.
package tenant

import (
	"context"
	"fmt"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/clusterapi"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
)

// Tenant is a namespace of a site's management cluster with at most one Cluster in it, named as the namespace. All
// tenants of a site share its workload control plane.
type Tenant struct {
	// Namespace is the name of the namespace and of the Cluster.
	Namespace string
	// Cluster is nil until CreateCluster.
	Cluster *clusterv1.Cluster

	site *site.Site
	// hosts are the names of the tenant's servers.
	hosts []string
}

// New creates a namespace with a Cluster, the pools worker and infra with a MachineConfig each, and available hosts. It
// applies changes to both pools. At the end of the spec or container that calls New, all of them are removed.
func New(ctx context.Context, s *site.Site, freeHosts int, changes ...func(*poolv1.MachineConfigPool)) *Tenant {
	t := NewEmpty(ctx, s)
	t.createDefaults(ctx, freeHosts, changes...)
	return t
}

// NewPersistent is New for benchmarks: the servers run until the site stops.
func NewPersistent(ctx context.Context, s *site.Site, freeHosts int, changes ...func(*poolv1.MachineConfigPool)) *Tenant {
	t := newTenant(ctx, s)
	t.createDefaults(ctx, freeHosts, changes...)
	return t
}

// NewWithControlPlane is New for a site without a workload cluster: hosts run its control plane. All servers run until
// the site stops.
func NewWithControlPlane(ctx context.Context, s *site.Site, controlPlaneHosts int32, freeHosts int, changes ...func(*poolv1.MachineConfigPool)) *Tenant {
	t := newTenant(ctx, s)
	t.AddHosts(ctx, int(controlPlaneHosts)+freeHosts)
	t.createPools(ctx, changes...)
	var err error
	t.Cluster, err = s.CreateKubeadmCluster(ctx, t.Namespace, controlPlaneHosts)
	ExpectWithOffset(1, err).NotTo(HaveOccurred())
	return t
}

func (t *Tenant) createDefaults(ctx context.Context, freeHosts int, changes ...func(*poolv1.MachineConfigPool)) {
	t.CreateCluster(ctx, clusterapi.ClusterOptions{})
	t.createPools(ctx, changes...)
	t.AddHosts(ctx, freeHosts)
}

func (t *Tenant) createPools(ctx context.Context, changes ...func(*poolv1.MachineConfigPool)) {
	worker, infra := t.Pool("worker"), t.Pool("infra")
	for _, change := range changes {
		change(worker)
		change(infra)
	}
	// A pool that exists before its MachineConfigs is rendered without them, and a host can boot with that.
	t.Create(ctx, t.MachineConfig("00-worker", "worker", "/etc/workertest", "worker"), t.MachineConfig("51-infra", "infra", "/etc/infratest", "infra"),
		worker, infra)
}

// NewEmpty creates an empty namespace. At the end of the spec or container that calls it, its servers are powered off,
// and its objects are removed.
func NewEmpty(ctx context.Context, s *site.Site) *Tenant {
	t := newTenant(ctx, s)
	DeferCleanup(func(ctx SpecContext) {
		t.remove(ctx)
		for _, name := range t.hosts {
			if s.Hardware != nil {
				Expect(s.Hardware.Decommission(name)).To(Succeed())
			}
		}
	})
	return t
}

func newTenant(ctx context.Context, s *site.Site) *Tenant {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "t-"}}
	ExpectWithOffset(2, s.ManagementClient.Create(ctx, namespace)).To(Succeed())
	return &Tenant{Namespace: namespace.Name, site: s}
}

// Of returns the tenant of a namespace of a site that has one, and its Cluster elsewhere or none.
func Of(s *site.Site, namespace string) *Tenant { return &Tenant{Namespace: namespace, site: s} }

// MovedTo returns the tenant on the site to which its namespace was moved.
func (t *Tenant) MovedTo(s *site.Site) *Tenant {
	return &Tenant{Namespace: t.Namespace, Cluster: t.Cluster, site: s}
}

// CreateCluster creates the tenant's Cluster.
func (t *Tenant) CreateCluster(ctx context.Context, options clusterapi.ClusterOptions) {
	options.Namespace, options.Name, options.Workload = t.Namespace, t.Namespace, t.site.Workload
	if options.Kubeconfig == nil {
		options.Kubeconfig = t.site.WorkloadKubeconfig
	}
	var err error
	t.Cluster, err = clusterapi.CreateCluster(ctx, t.site.ManagementClient, options)
	ExpectWithOffset(1, err).NotTo(HaveOccurred())
}

// Create creates objects in the tenant's namespace, and the BMC Secret of each server.
func (t *Tenant) Create(ctx context.Context, objects ...client.Object) {
	for _, object := range objects {
		object.SetNamespace(t.Namespace)
		if host, ok := object.(*bmov1alpha1.BareMetalHost); ok {
			t.hosts = append(t.hosts, host.Name)
			t.Create(ctx, NewBMCSecret(host.Spec.BMC.CredentialsName))
		}
		ExpectWithOffset(1, t.site.ManagementClient.Create(ctx, object)).To(Succeed(), object.GetName())
	}
}

// AddHosts creates n available servers, named <namespace>-host-<i>. The names are unique in the site.
func (t *Tenant) AddHosts(ctx context.Context, n int) {
	for i := range n {
		t.AddHost(ctx, t.HostName(i))
	}
}

// AddHost creates an available server. The name must be unique in the site.
func (t *Tenant) AddHost(ctx context.Context, name string) { t.Create(ctx, newHost(name)) }

// HostName returns the name of the i-th server of AddHosts.
func (t *Tenant) HostName(i int) string { return fmt.Sprintf("%s-host-%d", t.Namespace, i) }

// Pool returns a pool with a role that selects the MachineConfigs of that role.
func (t *Tenant) Pool(role string) *poolv1.MachineConfigPool {
	return &poolv1.MachineConfigPool{
		ObjectMeta: metav1.ObjectMeta{Name: role, Namespace: t.Namespace},
		Spec: poolv1.MachineConfigPoolSpec{
			ClusterName: t.Namespace, PoolRole: role,
			MachineConfigSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"role": role}},
		},
	}
}

// Pools lists the tenant's pools.
func (t *Tenant) Pools(ctx context.Context) []poolv1.MachineConfigPool {
	GinkgoHelper()
	var list poolv1.MachineConfigPoolList
	Expect(t.site.ManagementClient.List(ctx, &list, client.InNamespace(t.Namespace))).To(Succeed())
	return list.Items
}

// MachineConfig returns a MachineConfig of a role with one file.
func (t *Tenant) MachineConfig(name, role, path, content string) *poolv1.MachineConfig {
	return t.IgnitionMachineConfig(name, role, fmt.Appendf(nil,
		`{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":%q,"mode":420,"contents":{"source":"data:,%s"}}]}}`, path, content))
}

// IgnitionMachineConfig returns a MachineConfig of a role with an Ignition config.
func (t *Tenant) IgnitionMachineConfig(name, role string, ignition []byte) *poolv1.MachineConfig {
	return &poolv1.MachineConfig{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: t.Namespace, Labels: map[string]string{"role": role}},
		Spec:       poolv1.MachineConfigSpec{Config: &runtime.RawExtension{Raw: ignition}},
	}
}

// Scale changes the replicas of a MachineDeployment.
func (t *Tenant) Scale(ctx context.Context, deployment *clusterv1.MachineDeployment, replicas int32) {
	before := deployment.DeepCopy()
	deployment.Spec.Replicas = ptr.To(replicas)
	ExpectWithOffset(1, t.site.ManagementClient.Patch(ctx, deployment, client.MergeFrom(before))).To(Succeed())
}

// Pause pauses or unpauses the tenant's Cluster.
func (t *Tenant) Pause(ctx context.Context, paused bool) {
	before := t.Cluster.DeepCopy()
	t.Cluster.Spec.Paused = ptr.To(paused)
	ExpectWithOffset(1, t.site.ManagementClient.Patch(ctx, t.Cluster, client.MergeFrom(before))).To(Succeed())
}
