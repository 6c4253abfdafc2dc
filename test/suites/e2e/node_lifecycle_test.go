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
	"sigs.k8s.io/cluster-api/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/baremetal"
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
		// edge boots into the pool that spec.poolRole names, the configs in infras into the pool of their Machines'
		// labels.
		edge, infra *bootstrapv1.PoolbootConfig
		infras      []bootstrapv1.PoolbootConfig
		deployment  *clusterv1.MachineDeployment
	)

	BeforeAll(func(ctx SpecContext) {
		t = tenant.New(ctx, lab, 3)
		edges, storage := t.Pool("edge"), t.Pool("storage")
		edges.Spec.Node.Labels = map[string]string{tierLabel: "gold", rackLabel: "r7"}
		storage.Spec.Node.Labels = map[string]string{disksLabel: "many", tierLabel: "silver"}
		t.Create(ctx, edges, storage)
		t.Deploy(ctx, tenant.Deployment{Name: "edge", Replicas: 1, Config: func(spec *bootstrapv1.BootSpec) { spec.PoolRole = "edge" }})
		deployment = t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 2, Labels: infraLabels})
		edge = t.Config(ctx, "edge")
		expectJoined(ctx, t, edge)
		Eventually(ctx, func() []bootstrapv1.PoolbootConfig {
			infras = t.Configs(ctx, "infra")
			return infras
		}).Should(HaveLen(2))
		for i := range infras {
			expectJoined(ctx, t, &infras[i])
		}
		infra = &infras[0]
	}, NodeTimeout(5*time.Minute))

	It("registers in its pool again when it is deleted and its kubelet restarts", func(ctx SpecContext) {
		reregisterNode(ctx, t, edge)
		Expect(edge.Status.PoolRole).To(Equal("edge"))
		Expect(t.Node(ctx, edge).Labels).To(And(
			HaveKey(edgeRole), HaveKeyWithValue(tierLabel, "gold"), HaveKeyWithValue(poolv1.NodePoolLabel, "edge")))
	})

	It("is unschedulable until it has all its labels, also when Cluster API removes its own taint first", func(ctx SpecContext) {
		history, err := site.RecordNodes(ctx, lab.WorkloadClient)
		Expect(err).NotTo(HaveOccurred())
		before := t.Node(ctx, edge)
		DeferCleanup(restartAfterFailure)
		kill(lab.Manager)
		Expect(lab.WorkloadClient.Delete(ctx, before.DeepCopy())).To(Succeed())
		Expect(lab.Hardware.Host(edge.Status.HostRef.Name).Reset(context.WithoutCancel(ctx))).To(Succeed())
		node := waitForReregistration(ctx, before)
		Expect(node.Labels).To(And(HaveKeyWithValue(tierLabel, "gold"), HaveKeyWithValue(poolv1.NodePoolLabel, "edge"), Not(HaveKey(edgeRole))), "the labels of the kubelet's flags only")
		Expect(hasUnassignedTaint(node)).To(BeTrue())
		start(ctx, lab.Manager)
		Eventually(ctx, func() []corev1.Taint { return t.Node(ctx, edge).Spec.Taints }).Should(BeEmpty())

		var registered []site.NodeVersion
		for _, version := range listVersions(ctx, history, before.Name) {
			if version.Node.UID == node.UID {
				registered = append(registered, version)
			}
		}
		Expect(registered[0].Node.Labels).To(And(HaveKeyWithValue(tierLabel, "gold"), HaveKeyWithValue(rackLabel, "r7"), HaveKeyWithValue(poolv1.NodePoolLabel, "edge")), "in its first version")
		Expect(hasTaint(registered[0].Node, clusterv1.NodeUninitializedTaint.Key)).To(BeTrue())
		expectUnschedulableOutsidePool(history, node, "edge", t.Pools(ctx))
		Eventually(ctx, func() (string, error) {
			err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(edge), edge)
			return edge.Status.NodeRef.UID, err
		}).Should(BeEquivalentTo(node.UID))
	}, SpecTimeout(5*time.Minute))

	It("moves to the pool of its labels: the status, the host counts and an event follow, and user-set labels stay", func(ctx SpecContext) {
		before := t.Node(ctx, edge)
		relabel(ctx, before, map[string]*string{edgeRole: nil, storageRole: ptr.To(""), disksLabel: ptr.To("few")})
		Eventually(ctx, func() (string, error) {
			err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(edge), edge)
			return edge.Status.PoolRole, err
		}).Should(Equal("storage"))
		Eventually(ctx, listEvents(ctx, edge, bootstrapv1.EventPoolChanged)).Should(ConsistOf(And(
			ContainSubstring(before.Name), ContainSubstring(`"storage"`), ContainSubstring(`"edge"`))))
		Expect(t.Condition(edge, bootstrapv1.NodeInPoolCondition)(ctx)).To(And(HavePrefix("True"), ContainSubstring(`"storage"`)))
		Eventually(ctx, countHosts(ctx, t)).Should(And(HaveKeyWithValue("storage", int32(1)), HaveKeyWithValue("edge", int32(0))))

		labels := HaveField("Labels", And(Not(HaveKey(edgeRole)), HaveKey(storageRole), HaveKeyWithValue(poolv1.NodePoolLabel, "storage"),
			HaveKeyWithValue(disksLabel, "few"), HaveKeyWithValue(tierLabel, "gold")))
		Expect(t.Node(ctx, edge)).To(And(HaveField("UID", before.UID), labels))
		Consistently(ctx, func() *corev1.Node { return t.Node(ctx, edge) }).Should(labels)
	})

	It("registers again in the pool that it moved to, not in the pool that it first booted into", func(ctx SpecContext) {
		history, err := site.RecordNodes(ctx, lab.WorkloadClient)
		Expect(err).NotTo(HaveOccurred())
		reregisterNode(ctx, t, edge)
		Expect(edge.Status.PoolRole).To(Equal("storage"))
		Expect(t.Node(ctx, edge).Labels).To(And(Not(HaveKey(edgeRole)), HaveKey(storageRole), HaveKeyWithValue(poolv1.NodePoolLabel, "storage"),
			HaveKeyWithValue(disksLabel, "many"), HaveKeyWithValue(tierLabel, "silver"), Not(HaveKey(rackLabel))))
		Eventually(ctx, listEvents(ctx, edge, bootstrapv1.EventLabelsRestored)).Should(ContainElement(ContainSubstring(`"storage"`)))

		schedulable := 0
		for _, version := range listVersions(ctx, history, edge.Status.NodeRef.Name) {
			node := version.Node
			if string(node.UID) != edge.Status.NodeRef.UID {
				continue
			}
			Expect(node.Labels).NotTo(HaveKey(edgeRole), "in any version")
			if !hasUnassignedTaint(node) {
				schedulable++
				Expect(site.Judge([]site.NodeVersion{version}, "storage", t.Pools(ctx)).Outside).To(BeZero(), "schedulable only in its pool")
				Expect(node.Labels).To(And(HaveKey(disksLabel), HaveKeyWithValue(tierLabel, "silver"), HaveKeyWithValue(poolv1.NodePoolLabel, "storage"),
					HaveKeyWithValue(poolv1.NodeMetal3UUIDLabel, edge.Status.HostRef.UID)))
				Expect(util.IsNodeReady(node)).To(BeTrue())
			}
		}
		Expect(schedulable).NotTo(BeZero())
	})

	It("reports a conflict when its Machine's labels name the old pool, and moves without reprovisioning when the MachineDeployment's labels change", func(ctx SpecContext) {
		type identity struct {
			machine, node types.UID
			deployments   int // of its host
		}
		identities := func() (all []identity) {
			for i := range infras {
				all = append(all, identity{t.Machine(ctx, &infras[i]).UID, t.Node(ctx, &infras[i]).UID, countDeployments(&infras[i])})
			}
			return all
		}
		original, other := identities(), site.NodeVersion{Node: t.Node(ctx, &infras[1])}
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
			Eventually(ctx, func(g Gomega) { // written by two controllers
				g.Expect(t.Condition(moved, clusterv1.ReadyCondition)(ctx)).To(HavePrefix("True"))
				g.Expect(moved.Status.PoolRole).To(Equal("storage"))
			}).Should(Succeed())
			Expect(t.Node(ctx, moved).Labels).To(And(Not(HaveKey(infraRole)), HaveKey(storageRole)))
			Expect(getHost(ctx, moved).Status.Provisioning.State).To(Equal(bmov1alpha1.StateProvisioned))
		}
		Eventually(ctx, countHosts(ctx, t)).Should(And(HaveKeyWithValue("storage", int32(3)), HaveKeyWithValue("infra", int32(0))))
		Expect(t.Configs(ctx, "infra")).To(HaveLen(2))
		Expect(identities()).To(Equal(original))
		all := append([]site.NodeVersion{other}, listVersions(ctx, history, other.Node.Name)...)
		Expect(site.Judge(all, "storage", t.Pools(ctx)).Changes).To(Equal(1), "from infra directly to storage")
	})
})

// expectUnschedulableOutsidePool expects each version of a Node without the unassigned taint to be in its pool, with
// the labels of the pool and the host.
func expectUnschedulableOutsidePool(history *site.NodeHistory, node *corev1.Node, role string, pools []poolv1.MachineConfigPool) {
	GinkgoHelper()
	schedulable := func() []site.NodeVersion {
		return slices.DeleteFunc(history.Of(node.Name), func(v site.NodeVersion) bool { return v.Node.UID != node.UID || hasUnassignedTaint(v.Node) })
	}
	Eventually(schedulable).ShouldNot(BeEmpty())
	for _, version := range schedulable() {
		Expect(site.Judge([]site.NodeVersion{version}, role, pools).Outside).To(BeZero(), "schedulable only in its pool")
		Expect(version.Node.Labels).To(And(HaveKeyWithValue(poolv1.NodePoolLabel, role), HaveKey(poolv1.NodeMetal3UUIDLabel)))
	}
}

// waitForReregistration waits until a deleted Node has registered again, is Ready, and Cluster API has removed its
// taint. The manager is not running.
func waitForReregistration(ctx context.Context, before *corev1.Node) *corev1.Node {
	GinkgoHelper()
	node := &corev1.Node{}
	Eventually(ctx, func() bool {
		err := lab.WorkloadClient.Get(ctx, client.ObjectKeyFromObject(before), node)
		return err == nil && node.UID != before.UID && util.IsNodeReady(node) && !hasTaint(node, clusterv1.NodeUninitializedTaint.Key)
	}).Should(BeTrue())
	return node
}

// reregisterNode deletes the Node of a config, reboots its host, and waits until the new Node is in its pool and has no
// taints.
func reregisterNode(ctx context.Context, t *tenant.Tenant, config *bootstrapv1.PoolbootConfig) {
	GinkgoHelper()
	before := t.Node(ctx, config)
	Expect(lab.WorkloadClient.Delete(ctx, before)).To(Succeed())
	Eventually(ctx, t.Condition(config, bootstrapv1.NodeInPoolCondition)).Should(HavePrefix("False " + bootstrapv1.NodeMissingReason))
	// The site owns the host: it keeps running after the spec.
	Expect(lab.Hardware.Host(config.Status.HostRef.Name).Reset(context.WithoutCancel(ctx))).To(Succeed())
	Eventually(ctx, t.Condition(config, bootstrapv1.NodeInPoolCondition)).Should(HavePrefix("True"))
	Eventually(ctx, func() []corev1.Taint { return t.Node(ctx, config).Spec.Taints }).Should(BeEmpty())
	Expect(t.Node(ctx, config).UID).NotTo(Equal(before.UID))
	Expect(config.Status.NodeRef.UID).To(BeEquivalentTo(t.Node(ctx, config).UID))
}

// relabel changes labels of a Node. A nil value removes the label.
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

// hasUnassignedTaint reports whether a Node has Poolboot's taint.
func hasUnassignedTaint(node *corev1.Node) bool { return hasTaint(node, poolv1.NodeUnassignedTaint) }

// hasTaint reports whether a Node has a NoSchedule taint with the key.
func hasTaint(node *corev1.Node, key string) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key && t.Effect == corev1.TaintEffectNoSchedule })
}

// countHosts returns the host counts in the status of a tenant's pools, by role.
func countHosts(ctx context.Context, t *tenant.Tenant) func() map[string]int32 {
	return func() map[string]int32 {
		counts := map[string]int32{}
		for _, pool := range t.Pools(ctx) {
			counts[pool.Spec.PoolRole] = ptr.Deref(pool.Status.HostCount, -1)
		}
		return counts
	}
}

// countDeployments returns how often an image was written to the disk of a config's host. Each image runs Ignition
// once.
func countDeployments(config *bootstrapv1.PoolbootConfig) (times int) {
	for _, event := range lab.Hardware.Host(config.Status.HostRef.Name).Events() {
		if event.Step == baremetal.FilesWritten {
			times++
		}
	}
	return times
}
