package kubelets

import (
	"context"
	"slices"
	"strings"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	nodev1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/node/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/kubeadm"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

const (
	infraRole = "node-role.kubernetes.io/infra"
	tierLabel = "example.com/tier"
	rackLabel = "example.com/rack"

	// attachDetachAnnotation is set by the kubelet only, when it registers.
	attachDetachAnnotation = "volumes.kubernetes.io/controller-managed-attach-detach"
	// kubeadmToken is a bootstrap token that kubeadm init creates. No host gets it.
	kubeadmToken = "abcdef.0123456789abcdef"
)

var (
	poolTaint = corev1.Taint{Key: "example.com/infra", Value: "reserved", Effect: corev1.TaintEffectPreferNoSchedule}
	// Taints of the Machine.
	alwaysTaint  = corev1.Taint{Key: "example.com/dedicated", Value: "db", Effect: corev1.TaintEffectPreferNoSchedule}
	initialTaint = corev1.Taint{Key: "example.com/burn-in", Effect: corev1.TaintEffectPreferNoSchedule}
	cloudTaint   = corev1.Taint{Key: "node.cloudprovider.kubernetes.io/uninitialized", Value: "true", Effect: corev1.TaintEffectNoSchedule}
)

var _ = Describe("A Node", func() {
	var (
		t      *tenant.Tenant
		config *bootstrapv1.PoolbootConfig

		history *site.NodeHistory
	)

	machineTaints := []clusterv1.MachineTaint{
		{Key: alwaysTaint.Key, Value: alwaysTaint.Value, Effect: alwaysTaint.Effect, Propagation: clusterv1.MachineTaintPropagationAlways},
		{Key: initialTaint.Key, Effect: initialTaint.Effect, Propagation: clusterv1.MachineTaintPropagationOnInitialization},
	}
	expectAll := func(deploy func(context.Context), permanent ...corev1.Taint) {
		BeforeAll(func(ctx SpecContext) {
			t = tenant.New(ctx, lab, 1, func(p *poolv1.MachineConfigPool) {
				if p.Spec.PoolRole == "infra" {
					p.Spec.Node.Labels = map[string]string{tierLabel: "gold"}
					p.Spec.Node.Taints = []nodev1.Taint{{Key: poolTaint.Key, Value: poolTaint.Value, Effect: poolTaint.Effect}}
				}
			})
		})

		It("is adopted with its UID, labels, taints, annotations and providerID", func(ctx SpecContext) {
			var err error
			history, err = site.RecordNodes(context.Background(), lab.WorkloadClient)
			Expect(err).NotTo(HaveOccurred())
			deploy(ctx)
			config = t.Config(ctx, "infra")
			node := waitForRegistered(ctx, t, config)
			Expect(node.Status.NodeInfo.KubeletVersion).To(HavePrefix("v" + release + "."))

			first := history.Of(node.Name)[0].Node
			Expect(node.UID).To(Equal(first.UID))
			Expect(node.Spec.ProviderID).To(And(HavePrefix("metal3://"), Equal(first.Spec.ProviderID)))
			for key, value := range first.Labels {
				Expect(node.Labels).To(HaveKeyWithValue(key, value))
			}
			for key, value := range first.Annotations {
				Expect(node.Annotations).To(HaveKeyWithValue(key, value))
			}
			expectInPool(node)
			Expect(node.Annotations).To(HaveKeyWithValue(attachDetachAnnotation, "true"), "the kubelet adds it to a Node that exists")
			Expect(withoutTimes(first.Spec.Taints)).To(ContainElements(append(permanent, corev1.Taint{Key: poolv1.NodeUnassignedTaint, Effect: corev1.TaintEffectNoSchedule})))
			Expect(withoutTimes(node.Spec.Taints)).To(ConsistOf(permanent))
		})

		It("is unchanged after a restart of the kubelet, which does not add a removed taint again", func(ctx SpecContext) {
			initialize(ctx, t.Node(ctx, config))
			before := t.Node(ctx, config)
			restart(ctx, t, config, before)
			after := waitForRegistered(ctx, t, config)
			Expect(after.UID).To(Equal(before.UID))
			Expect(after.Labels).To(Equal(before.Labels))
			Expect(withoutTimes(after.Spec.Taints)).To(ConsistOf(poolTaint, alwaysTaint))
			Expect(after.Spec.ProviderID).To(Equal(before.Spec.ProviderID))
			Expect(after.Annotations).To(Equal(before.Annotations))
		})

		It("registers again in its pool after it was deleted", func(ctx SpecContext) {
			before := t.Node(ctx, config)
			Expect(lab.WorkloadClient.Delete(ctx, before.DeepCopy())).To(Succeed())
			Eventually(ctx, t.Condition(config, bootstrapv1.NodeInPoolCondition)).Should(HavePrefix("False " + bootstrapv1.NodeMissingReason))
			restart(ctx, t, config, nil)
			after := waitForRegistered(ctx, t, config)
			Expect(after.UID).NotTo(Equal(before.UID))
			recreated := slices.DeleteFunc(history.Of(after.Name), func(v site.NodeVersion) bool { return v.Node.UID != after.UID })
			Expect(withoutTimes(recreated[0].Node.Spec.Taints)).To(ContainElements(permanent), "from its first version")
			Expect(after.Spec.ProviderID).To(Equal(before.Spec.ProviderID))
			expectInPool(after)
			Expect(after.Annotations).To(HaveKeyWithValue(attachDetachAnnotation, "true"))
			Expect(withoutTimes(after.Spec.Taints)).To(ConsistOf(permanent), "each taint once")
		})
	}

	Context("of a host that joins with its kubelet", Ordered, func() {
		expectAll(func(ctx context.Context) {
			t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: map[string]string{infraRole: ""}, Taints: machineTaints, Config: setRack})
		}, poolTaint, alwaysTaint, initialTaint)
	})

	Context("of a host that joins with kubeadm and has an external cloud provider", Ordered, func() {
		expectAll(func(ctx context.Context) {
			Expect(kubeadm.Init(ctx, lab.Workload, kubeadmToken)).To(Succeed())
			t.Create(ctx, t.MachineConfig("60-cloud", "infra", "/etc/default/kubelet", "KUBELET_EXTRA_ARGS=--cloud-provider=external"))
			Eventually(ctx, func() (string, error) {
				infra := t.Pool("infra")
				err := lab.ManagementClient.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: infra.Name}, infra)
				var sources []string
				for _, source := range infra.Status.Configuration.Source {
					sources = append(sources, source.Name)
				}
				return strings.Join(sources, ","), err
			}).Should(ContainSubstring("60-cloud"))
			t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: map[string]string{infraRole: ""}, Taints: machineTaints, Image: site.KubeadmImageURL,
				Config: func(spec *bootstrapv1.BootSpec) {
					setRack(spec)
					spec.Join = bootstrapv1.Join{Type: bootstrapv1.JoinTypeKubeadm, Kubeadm: bootstrapv1.KubeadmJoin{IgnorePreflightErrors: []string{"SystemVerification"}}}
				}})
		}, poolTaint, cloudTaint, alwaysTaint, initialTaint)
	})
})

func setRack(spec *bootstrapv1.BootSpec) { spec.Node.Labels = map[string]string{rackLabel: "r7"} }

// expectInPool expects the labels of the pool, the PoolbootConfig, the host and the kubelet.
func expectInPool(node *corev1.Node) {
	GinkgoHelper()
	Expect(node.Labels).To(And(
		HaveKeyWithValue(infraRole, ""), HaveKeyWithValue(poolv1.NodePoolLabel, "infra"), HaveKeyWithValue(tierLabel, "gold"), HaveKeyWithValue(rackLabel, "r7"),
		HaveKey(poolv1.NodeMetal3UUIDLabel), HaveKeyWithValue(corev1.LabelHostname, node.Name), HaveKey(corev1.LabelArchStable), HaveKeyWithValue(corev1.LabelOSStable, "linux")))
}

// restart restarts the host of a config with its kubelet. While the host is off, its Node, unless it is nil, loses the
// annotation that a kubelet adds when it registers.
func restart(ctx context.Context, t *tenant.Tenant, config *bootstrapv1.PoolbootConfig, node *corev1.Node) {
	GinkgoHelper()
	host := &bmov1alpha1.BareMetalHost{}
	Expect(lab.ManagementClient.Get(ctx, client.ObjectKey{Namespace: t.Namespace, Name: config.Status.HostRef.Name}, host)).To(Succeed())
	Expect(lab.Hardware.PowerOff(ctx, host)).To(Succeed())
	if node != nil {
		changed := node.DeepCopy()
		delete(changed.Annotations, attachDetachAnnotation)
		Expect(lab.WorkloadClient.Patch(ctx, changed, client.MergeFrom(node))).To(Succeed())
	}
	Expect(lab.Hardware.PowerOn(ctx, host, nil)).To(Succeed())
}

// waitForRegistered waits until the kubelet of a config's Node has registered, the Node is Ready in its pool, and no
// controller is about to change its taints. It returns the Node.
func waitForRegistered(ctx context.Context, t *tenant.Tenant, config *bootstrapv1.PoolbootConfig) (node *corev1.Node) {
	GinkgoHelper()
	Eventually(ctx, t.Condition(config, bootstrapv1.NodeInPoolCondition)).Should(HavePrefix("True"))
	passing := []string{poolv1.NodeUnassignedTaint, clusterv1.NodeUninitializedTaint.Key, corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable}
	Eventually(ctx, func() bool {
		node = t.Node(ctx, config)
		isPassing := func(taint corev1.Taint) bool { return slices.Contains(passing, taint.Key) }
		return util.IsNodeReady(node) && !slices.ContainsFunc(node.Spec.Taints, isPassing) && node.Annotations[attachDetachAnnotation] != ""
	}).Should(BeTrue())
	return node
}

// initialize removes the taint of external cloud providers, as a cloud controller manager does, and the taint of the
// Machine with OnInitialization, as a user does.
func initialize(ctx context.Context, node *corev1.Node) {
	GinkgoHelper()
	before := node.DeepCopy()
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.MatchTaint(&cloudTaint) || taint.MatchTaint(&initialTaint) })
	Expect(lab.WorkloadClient.Patch(ctx, node, client.MergeFrom(before))).To(Succeed())
}

func withoutTimes(taints []corev1.Taint) []corev1.Taint {
	out := slices.Clone(taints)
	for i := range out {
		out[i].TimeAdded = nil
	}
	return out
}
