package e2e

import (
	"context"
	"slices"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/host"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

const (
	edgeRole    = "node-role.kubernetes.io/edge"
	storageRole = "node-role.kubernetes.io/storage"
	infraRole   = "node-role.kubernetes.io/infra"

	tierLabel  = "example.com/tier"
	disksLabel = "example.com/disks"
	rackLabel  = "example.com/rack"
)

var _ = Describe("A Node after its boot", Ordered, func() {
	var (
		t *tenant.Tenant
		// edge boots by spec.poolRole: no label of its Machine has a say. The infras boot by their Machines' labels.
		edge, infra *bootstrapv1.PoolbootConfig
		infras      []bootstrapv1.PoolbootConfig
		deployment  *clusterv1.MachineDeployment
	)

	BeforeAll(func(ctx SpecContext) {
		t = tenant.New(ctx, lab, 3)
		edges, storage := t.Pool("edge"), t.Pool("storage")
		edges.Spec.NodeLabels = map[string]string{tierLabel: "gold", rackLabel: "r7"}
		storage.Spec.NodeLabels = map[string]string{disksLabel: "many", tierLabel: "silver"}
		t.Create(ctx, edges, storage)
		t.Deploy(ctx, tenant.Deployment{Name: "edge", Replicas: 1, Config: func(spec *bootstrapv1.BootSpec) { spec.PoolRole = "edge" }})
		deployment = t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 2, Labels: infraLabels})
		edge = t.Config(ctx, "edge")
		joined(ctx, t, edge)
		Eventually(ctx, func() []bootstrapv1.PoolbootConfig {
			infras = t.Configs(ctx, "infra")
			return infras
		}).Should(HaveLen(2))
		for i := range infras {
			joined(ctx, t, &infras[i])
		}
		infra = &infras[0]
	}, NodeTimeout(5*time.Minute))

	It("comes back in its pool when it is deleted and its kubelet starts again", func(ctx SpecContext) {
		anew(ctx, t, edge)
		Expect(edge.Status.PoolRole).To(Equal("edge"))
		Expect(t.Node(ctx, edge).Labels).To(And(
			HaveKey(edgeRole), HaveKeyWithValue(tierLabel, "gold"), HaveKeyWithValue(poolv1.NodePoolLabel, "edge")))
	})

	It("is closed to Pods until all its labels stand, also when Cluster API takes its own taint away first", func(ctx SpecContext) {
		history, err := site.RecordNodes(ctx, lab.WorkloadClient)
		Expect(err).NotTo(HaveOccurred())
		before := t.Node(ctx, edge)
		DeferCleanup(revive)
		kill(lab.Manager)
		Expect(lab.WorkloadClient.Delete(ctx, before.DeepCopy())).To(Succeed())
		Expect(lab.Hardware.Host(edge.Status.HostRef.Name).Reboot(context.WithoutCancel(ctx))).To(Succeed())
		node := withoutManager(ctx, before)
		Expect(node.Labels).To(And(HaveKeyWithValue(tierLabel, "gold"), HaveKeyWithValue(poolv1.NodePoolLabel, "edge"), Not(HaveKey(edgeRole))), "the kubelet's flags alone")
		Expect(unassigned(node)).To(BeTrue())
		start(ctx, lab.Manager)
		Eventually(ctx, func() []corev1.Taint { return t.Node(ctx, edge).Spec.Taints }).Should(BeEmpty())

		var anew []site.NodeVersion
		for _, version := range versions(ctx, history, before.Name) {
			if version.Node.UID == node.UID {
				anew = append(anew, version)
			}
		}
		Expect(anew[0].Node.Labels).To(And(HaveKeyWithValue(tierLabel, "gold"), HaveKeyWithValue(rackLabel, "r7"), HaveKeyWithValue(poolv1.NodePoolLabel, "edge")), "at once")
		Expect(tainted(anew[0].Node, clusterv1.NodeUninitializedTaint.Key)).To(BeTrue())
		expectClosedOutside(history, node, "edge", pools(ctx, t))
		Eventually(ctx, func() (string, error) {
			err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(edge), edge)
			return edge.Status.NodeRef.UID, err
		}).Should(BeEquivalentTo(node.UID))
	}, SpecTimeout(5*time.Minute))

	It("moves with its labels: the record, the counts of both pools and an event follow, and what a person set stays", func(ctx SpecContext) {
		before := t.Node(ctx, edge)
		relabel(ctx, before, map[string]*string{edgeRole: nil, storageRole: ptr.To(""), disksLabel: ptr.To("few")})
		Eventually(ctx, func() (string, error) {
			err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(edge), edge)
			return edge.Status.PoolRole, err
		}).Should(Equal("storage"))
		Eventually(ctx, eventsOf(ctx, edge, bootstrapv1.EventPoolChanged)).Should(ConsistOf(And(
			ContainSubstring(before.Name), ContainSubstring(`"storage"`), ContainSubstring(`"edge"`))))
		Expect(t.Condition(edge, bootstrapv1.NodeInPoolCondition)(ctx)).To(And(HavePrefix("True"), ContainSubstring(`"storage"`)))
		Eventually(ctx, machines(ctx, t)).Should(And(HaveKeyWithValue("storage", int32(1)), HaveKeyWithValue("edge", int32(0))))

		labels := HaveField("Labels", And(Not(HaveKey(edgeRole)), HaveKey(storageRole), HaveKeyWithValue(poolv1.NodePoolLabel, "storage"),
			HaveKeyWithValue(disksLabel, "few"), HaveKeyWithValue(tierLabel, "gold")))
		Expect(t.Node(ctx, edge)).To(And(HaveField("UID", before.UID), labels))
		Consistently(ctx, func() *corev1.Node { return t.Node(ctx, edge) }).Should(labels)
	})

	It("comes back in the pool that it moved to, never in the one that it was built for", func(ctx SpecContext) {
		history, err := site.RecordNodes(ctx, lab.WorkloadClient)
		Expect(err).NotTo(HaveOccurred())
		anew(ctx, t, edge)
		Expect(edge.Status.PoolRole).To(Equal("storage"))
		Expect(t.Node(ctx, edge).Labels).To(And(Not(HaveKey(edgeRole)), HaveKey(storageRole), HaveKeyWithValue(poolv1.NodePoolLabel, "storage"),
			HaveKeyWithValue(disksLabel, "many"), HaveKeyWithValue(tierLabel, "silver"), Not(HaveKey(rackLabel))))
		Eventually(ctx, eventsOf(ctx, edge, bootstrapv1.EventLabelsRestored)).Should(ContainElement(ContainSubstring(`"storage"`)))

		usable := 0
		for _, version := range versions(ctx, history, edge.Status.NodeRef.Name) {
			node := version.Node
			if string(node.UID) != edge.Status.NodeRef.UID {
				continue
			}
			Expect(node.Labels).NotTo(HaveKey(edgeRole), "not for a moment")
			if !unassigned(node) {
				usable++
				Expect(site.Judge([]site.NodeVersion{version}, "storage", pools(ctx, t)).Outside).To(BeZero(), "open to Pods only in its pool")
				Expect(node.Labels).To(And(HaveKey(disksLabel), HaveKeyWithValue(tierLabel, "silver"), HaveKeyWithValue(poolv1.NodePoolLabel, "storage"),
					HaveKeyWithValue(poolv1.NodeMetal3UUIDLabel, edge.Status.HostRef.UID)))
				Expect(site.Ready(node)).To(BeTrue())
			}
		}
		Expect(usable).NotTo(BeZero())
	})

	It("is in two pools when its Machine's labels pull it back: that is said, with the cure, which moves all and provisions none anew", func(ctx SpecContext) {
		type place struct {
			machine, node types.UID
			host          *host.Host // another one once an image is written
		}
		where := func() (all []place) {
			for i := range infras {
				all = append(all, place{t.Machine(ctx, &infras[i]).UID, t.Node(ctx, &infras[i]).UID, lab.Hardware.Host(infras[i].Status.HostRef.Name)})
			}
			return all
		}
		stood, other := where(), site.NodeVersion{Node: t.Node(ctx, &infras[1])}
		history, err := site.RecordNodes(ctx, lab.WorkloadClient)
		Expect(err).NotTo(HaveOccurred())
		relabel(ctx, t.Node(ctx, infra), map[string]*string{infraRole: nil, storageRole: ptr.To("")})
		Eventually(ctx, t.Condition(infra, bootstrapv1.NodeInPoolCondition)).Should(And(
			HavePrefix("False "+bootstrapv1.PoolConflictReason), ContainSubstring("infra"), ContainSubstring("storage"), ContainSubstring("MachineDeployment")))
		Eventually(ctx, t.Condition(infra, clusterv1.ReadyCondition)).Should(HavePrefix("False " + bootstrapv1.PoolConflictReason))
		Expect(t.Node(ctx, infra).Labels).To(And(HaveKey(infraRole), HaveKey(storageRole)))

		before := deployment.DeepCopy()
		delete(deployment.Spec.Template.Labels, infraRole)
		deployment.Spec.Template.Labels[storageRole] = ""
		Expect(lab.ManagementClient.Patch(ctx, deployment, client.MergeFrom(before))).To(Succeed())
		for i := range infras {
			moved := &infras[i]
			Eventually(ctx, t.Condition(moved, bootstrapv1.NodeInPoolCondition)).Should(And(HavePrefix("True"), ContainSubstring(`"storage"`)))
			Eventually(ctx, t.Condition(moved, clusterv1.ReadyCondition)).Should(HavePrefix("True"))
			Expect(moved.Status.PoolRole).To(Equal("storage"))
			Expect(t.Node(ctx, moved).Labels).To(And(Not(HaveKey(infraRole)), HaveKey(storageRole)))
			Expect(hostOf(ctx, moved).Status.Provisioning.State).To(Equal(bmov1alpha1.StateProvisioned))
		}
		Eventually(ctx, machines(ctx, t)).Should(And(HaveKeyWithValue("storage", int32(3)), HaveKeyWithValue("infra", int32(0))))
		Expect(t.Configs(ctx, "infra")).To(HaveLen(2))
		Expect(where()).To(Equal(stood))
		all := append([]site.NodeVersion{other}, versions(ctx, history, other.Node.Name)...)
		Expect(site.Judge(all, "storage", pools(ctx, t)).Changes).To(Equal(1), "from infra to storage, by no other way")
	})
})

// expectClosedOutside holds every version of a Node to this: open to Pods only in its pool, with all that it has there.
func expectClosedOutside(history *site.NodeHistory, node *corev1.Node, role string, pools []poolv1.MachineConfigPool) {
	GinkgoHelper()
	open := func() []site.NodeVersion {
		return slices.DeleteFunc(history.Of(node.Name), func(v site.NodeVersion) bool { return v.Node.UID != node.UID || unassigned(v.Node) })
	}
	Eventually(open).ShouldNot(BeEmpty())
	for _, version := range open() {
		Expect(site.Judge([]site.NodeVersion{version}, role, pools).Outside).To(BeZero(), "open to Pods only in its pool")
		Expect(version.Node.Labels).To(And(HaveKeyWithValue(poolv1.NodePoolLabel, role), HaveKey(poolv1.NodeMetal3UUIDLabel)))
	}
}

// withoutManager waits for the Node that registers anew under the name of one that was deleted, until Cluster API has
// had its turn, and Poolboot, whose manager does not run, has not.
func withoutManager(ctx context.Context, before *corev1.Node) *corev1.Node {
	GinkgoHelper()
	node := &corev1.Node{}
	Eventually(ctx, func() bool {
		err := lab.WorkloadClient.Get(ctx, client.ObjectKeyFromObject(before), node)
		return err == nil && node.UID != before.UID && site.Ready(node) && !tainted(node, clusterv1.NodeUninitializedTaint.Key)
	}).Should(BeTrue())
	return node
}

// anew deletes the Node of a config, starts its host again and waits until another Node of the name is open to Pods.
func anew(ctx context.Context, t *tenant.Tenant, config *bootstrapv1.PoolbootConfig) {
	GinkgoHelper()
	before := t.Node(ctx, config)
	Expect(lab.WorkloadClient.Delete(ctx, before)).To(Succeed())
	Eventually(ctx, t.Condition(config, bootstrapv1.NodeInPoolCondition)).Should(HavePrefix("False " + bootstrapv1.NodeMissingReason))
	// The host is the site's, not the spec's.
	Expect(lab.Hardware.Host(config.Status.HostRef.Name).Reboot(context.WithoutCancel(ctx))).To(Succeed())
	Eventually(ctx, t.Condition(config, bootstrapv1.NodeInPoolCondition)).Should(HavePrefix("True"))
	Eventually(ctx, func() []corev1.Taint { return t.Node(ctx, config).Spec.Taints }).Should(BeEmpty())
	Expect(t.Node(ctx, config).UID).NotTo(Equal(before.UID))
	Expect(config.Status.NodeRef.UID).To(BeEquivalentTo(t.Node(ctx, config).UID))
}

// relabel does what a person does with kubectl label: a nil value removes a label.
func relabel(ctx context.Context, node *corev1.Node, labels map[string]*string) {
	GinkgoHelper()
	before := node.DeepCopy()
	for key, value := range labels {
		delete(node.Labels, key)
		if value != nil {
			node.Labels[key] = *value
		}
	}
	Expect(lab.WorkloadClient.Patch(ctx, node, client.MergeFrom(before))).To(Succeed())
}

// unassigned says whether a Node is closed to Pods until it is in its pool.
func unassigned(node *corev1.Node) bool { return tainted(node, poolv1.NodeUnassignedTaint) }

// tainted says whether a Node has a taint that closes it to Pods.
func tainted(node *corev1.Node, key string) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key && t.Effect == corev1.TaintEffectNoSchedule })
}

// machines are the counts of Machines of a tenant's pools, by role.
func machines(ctx context.Context, t *tenant.Tenant) func() map[string]int32 {
	return func() map[string]int32 {
		counts := map[string]int32{}
		for _, pool := range pools(ctx, t) {
			counts[pool.Spec.PoolRole] = ptr.Deref(pool.Status.MachineCount, -1)
		}
		return counts
	}
}
