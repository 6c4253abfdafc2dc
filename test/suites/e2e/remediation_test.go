package e2e

import (
	"context"
	"slices"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	nodev1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/node/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	infrav1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/metal3/v1beta2"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

// frozen is the Node condition by which these tests' health checks find a host sick, as a node problem detector sets
// it.
const frozen corev1.NodeConditionType = "HostFrozen"

// outOfService matches the taint by which Metal3 has the Pods of a host that is off cleared away.
var outOfService = HaveField("Key", corev1.TaintNodeOutOfService)

var _ = Describe("A Node whose health check fails", Ordered, func() {
	var (
		t      *tenant.Tenant
		config *bootstrapv1.PoolbootConfig
		check  *clusterv1.MachineHealthCheck
	)

	// The Node is in another pool than it was built for: that is what must not be lost.
	BeforeAll(func(ctx SpecContext) {
		t = tenant.New(ctx, lab, 1)
		storage := t.Pool("storage")
		storage.Spec.NodeTaints = []nodev1.Taint{{Key: "example.com/disks", Effect: corev1.TaintEffectPreferNoSchedule}}
		t.Create(ctx, t.Pool("edge"), storage, remediationTemplate())
		t.Deploy(ctx, tenant.Deployment{Name: "edge", Replicas: 1, Config: func(spec *bootstrapv1.BootSpec) {
			spec.PoolRole, spec.PoolRetention = "edge", bootstrapv1.RetainOnHost
		}})
		config = t.Config(ctx, "edge")
		joined(ctx, t, config)
		Eventually(ctx, kept(ctx, config)).Should(HavePrefix(t.Namespace + "/edge/"))
		relabel(ctx, t.Node(ctx, config), map[string]*string{edgeRole: nil, storageRole: ptr.To("")})
		Eventually(ctx, kept(ctx, config)).Should(HavePrefix(t.Namespace+"/storage/"), "the move is recorded on the host too")
		Eventually(ctx, t.Condition(config, bootstrapv1.NodeInPoolCondition)).Should(And(HavePrefix("True"), ContainSubstring("storage")))

		check = &clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Name: "edge"}, Spec: clusterv1.MachineHealthCheckSpec{
			ClusterName: t.Namespace,
			Selector:    metav1.LabelSelector{MatchLabels: map[string]string{clusterv1.MachineDeploymentNameLabel: "edge"}},
			Checks: clusterv1.MachineHealthCheckChecks{UnhealthyNodeConditions: []clusterv1.UnhealthyNodeCondition{
				{Type: frozen, Status: corev1.ConditionTrue, TimeoutSeconds: ptr.To[int32](0)}}},
			Remediation: clusterv1.MachineHealthCheckRemediation{TemplateRef: clusterv1.MachineHealthCheckRemediationTemplateReference{
				APIVersion: infrav1.GroupVersion.String(), Kind: "Metal3RemediationTemplate", Name: remediationTemplate().Name}},
		}}
		t.Create(ctx, check)
	}, NodeTimeout(5*time.Minute))

	It("stays, and stays in its pool, when Metal3 reboots its host and keeps the Node", func(ctx SpecContext) {
		before := t.Node(ctx, config)
		seen, err := site.RecordNodes(ctx, lab.WorkloadClient)
		Expect(err).NotTo(HaveOccurred())
		taints := func() []corev1.Taint { return t.Node(ctx, config).Spec.Taints }
		remediated(ctx, t, config, func(*infrav1.Metal3Remediation) {
			Consistently(ctx, taints).WithTimeout(time.Second).Should(ContainElement(outOfService), "Metal3 takes it away, nobody else")
		}, func() {
			Eventually(ctx, taints).ShouldNot(ContainElement(outOfService))
		})
		Eventually(ctx, t.Condition(config, bootstrapv1.NodeInPoolCondition)).Should(HavePrefix("True"))
		Expect(config.Status.PoolRole).To(Equal("storage"))
		Expect(t.Node(ctx, config).UID).To(Equal(before.UID))
		verdict := site.Judge(versions(ctx, seen, before.Name), "storage", pools(ctx, t))
		Expect(verdict.Versions).To(BeNumerically(">", 2))
		Expect(verdict).To(Equal(site.Verdict{Versions: verdict.Versions, BornInPool: true}))
	}, SpecTimeout(5*time.Minute))

	It("comes back in its pool when older Metal3 deletes the Node, and gives the new one the labels of the old", func(ctx SpecContext) {
		before := t.Node(ctx, config)
		seen, err := site.RecordNodes(ctx, lab.WorkloadClient)
		Expect(err).NotTo(HaveOccurred())
		lab.DeleteNodes(true)
		DeferCleanup(lab.DeleteNodes, false)
		remediated(ctx, t, config, func(remediation *infrav1.Metal3Remediation) {
			Expect(remediation.Annotations).To(HaveKeyWithValue("remediation.metal3.io/node-labels-backup", ContainSubstring(storageRole)))
			Consistently(ctx, func() error { return lab.WorkloadClient.Get(ctx, client.ObjectKeyFromObject(before), &corev1.Node{}) }).
				Should(Satisfy(apierrors.IsNotFound), "its Pods are cleared away only while it is gone")
			DeferCleanup(revive)
			kill(lab.Manager)
		}, func() {
			withoutManager(ctx, before)
			Eventually(ctx, func() map[string]string { return t.Node(ctx, config).Labels }).Should(HaveKey(storageRole), "Metal3 restores it")
			anew := t.Node(ctx, config)
			Expect(unassigned(anew)).To(BeTrue(), "closed to Pods, although Cluster API and Metal3 were first")
			registered := slices.DeleteFunc(versions(ctx, seen, anew.Name), func(v site.NodeVersion) bool { return v.Node.UID != anew.UID })
			Expect(registered[0].Node.Labels).NotTo(Or(HaveKey(edgeRole), HaveKey(storageRole)))
			for _, version := range registered {
				Expect(unassigned(version.Node)).To(BeTrue())
			}
			start(ctx, lab.Manager)
		})
		Eventually(ctx, func() (string, error) {
			err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(config), config)
			return config.Status.NodeRef.UID, err
		}).ShouldNot(BeEquivalentTo(before.UID))
		Eventually(ctx, t.Condition(config, bootstrapv1.NodeInPoolCondition)).Should(HavePrefix("True"))
		node := t.Node(ctx, config)
		Expect(node.UID).NotTo(Equal(before.UID))
		Expect(config.Status.NodeRef.UID).To(BeEquivalentTo(node.UID))
		Expect(config.Status.PoolRole).To(Equal("storage"))
		Expect(node.Labels).To(And(HaveKey(storageRole), Not(HaveKey(edgeRole)), HaveKeyWithValue(poolv1.NodePoolLabel, "storage")))
		Eventually(ctx, func() []corev1.Taint { return t.Node(ctx, config).Spec.Taints }).Should(ConsistOf(HaveField("Key", "example.com/disks")))
		expectClosedOutside(seen, node, "storage", pools(ctx, t))
	}, SpecTimeout(5*time.Minute))

	It("has a replacement on the same host that boots straight into the pool that the host keeps", func(ctx SpecContext) {
		history, err := site.RecordNodes(ctx, lab.WorkloadClient)
		Expect(err).NotTo(HaveOccurred())
		before, old := check.DeepCopy(), config.DeepCopy()
		check.Spec.Remediation.TemplateRef = clusterv1.MachineHealthCheckRemediationTemplateReference{}
		Expect(lab.ManagementClient.Patch(ctx, check, client.MergeFrom(before))).To(Succeed())
		setFrozen(ctx, old, corev1.ConditionTrue)
		Eventually(ctx, func() []bootstrapv1.PoolbootConfig {
			return t.Configs(ctx, "edge")
		}).Should(ConsistOf(HaveField("Name", Not(Equal(old.Name)))))
		config = t.Config(ctx, "edge")
		joined(ctx, t, config)
		Expect(config.Status.HostRef.Name).To(Equal(old.Status.HostRef.Name))
		Expect(config.Spec.PoolRole).To(Equal("edge"))
		Expect(config.Status.PoolRole).To(Equal("storage"))
		Eventually(ctx, eventsOf(ctx, config, bootstrapv1.EventPoolChanged)).Should(ConsistOf(And(ContainSubstring(old.Status.HostRef.Name), ContainSubstring("storage"))))
		verdict := site.Judge(versions(ctx, history, config.Status.NodeRef.Name), "storage", pools(ctx, t))
		Expect(verdict).To(Equal(site.Verdict{Versions: verdict.Versions, BornInPool: true}))
		expectClosedOutside(history, t.Node(ctx, config), "storage", pools(ctx, t))
		Expect(traces(ctx, t, old)()).To(ConsistOf("PoolbootConfig " + config.Name))
	}, SpecTimeout(5*time.Minute))
})

// remediated has a health check fail and Metal3 remediate: while the host is off, and once it is on again, something is
// done. What is done meanwhile may take its time: the host is held off by the spec too. Cluster API ends it when the
// Node is healthy.
func remediated(ctx context.Context, t *tenant.Tenant, config *bootstrapv1.PoolbootConfig, whenOff func(*infrav1.Metal3Remediation), whenOn func()) {
	GinkgoHelper()
	const held = bmov1alpha1.RebootAnnotationPrefix + "/held"
	hold := func(hold bool) {
		host := hostOf(ctx, config)
		before := host.DeepCopy()
		delete(host.Annotations, held)
		if hold {
			metav1.SetMetaDataAnnotation(&host.ObjectMeta, held, "")
		}
		Expect(lab.ManagementClient.Patch(ctx, host, client.MergeFrom(before))).To(Succeed())
	}
	hold(true)
	setFrozen(ctx, config, corev1.ConditionTrue)
	remediation := &infrav1.Metal3Remediation{ObjectMeta: metav1.ObjectMeta{Namespace: t.Namespace, Name: t.Machine(ctx, config).Name}}
	Eventually(ctx, func() (string, error) {
		err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(remediation), remediation)
		return remediation.Status.Phase, client.IgnoreNotFound(err)
	}).Should(Equal(infrav1.RemediationWaiting))
	Expect(hostOf(ctx, config).Status.PoweredOn).To(BeFalse())
	whenOff(remediation)
	hold(false)
	Eventually(ctx, func() bool { return hostOf(ctx, config).Status.PoweredOn }).Should(BeTrue())
	whenOn()
	setFrozen(ctx, config, corev1.ConditionFalse)
	Eventually(ctx, func() error {
		return lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(remediation), remediation.DeepCopy())
	}).Should(Satisfy(apierrors.IsNotFound), "the health check succeeds again")
}

// setFrozen is what a node problem detector says of a host.
func setFrozen(ctx context.Context, config *bootstrapv1.PoolbootConfig, status corev1.ConditionStatus) {
	GinkgoHelper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: config.Status.NodeRef.Name}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: frozen, Status: status, LastTransitionTime: metav1.Now(), Reason: "Test", Message: "said by the test"}}
	Expect(lab.WorkloadClient.Status().Patch(ctx, node, client.StrategicMergeFrom(&corev1.Node{ObjectMeta: node.ObjectMeta}))).To(Succeed())
}

func hostOf(ctx context.Context, config *bootstrapv1.PoolbootConfig) *bmov1alpha1.BareMetalHost {
	GinkgoHelper()
	host := &bmov1alpha1.BareMetalHost{}
	Expect(lab.ManagementClient.Get(ctx, client.ObjectKey{Namespace: config.Status.HostRef.Namespace, Name: config.Status.HostRef.Name}, host)).To(Succeed())
	return host
}

// kept is the pool that a config's host keeps.
func kept(ctx context.Context, config *bootstrapv1.PoolbootConfig) func() string {
	return func() string { return hostOf(ctx, config).Annotations[poolv1.HostRetainedPoolAnnotation] }
}

// remediationTemplate has Metal3 remediate by a reboot.
func remediationTemplate() *infrav1.Metal3RemediationTemplate {
	template := &infrav1.Metal3RemediationTemplate{ObjectMeta: metav1.ObjectMeta{Name: "reboot"}}
	template.Spec.Template.Spec.Strategy = &infrav1.RemediationStrategy{Type: infrav1.RebootRemediationStrategy, RetryLimit: 1, TimeoutSeconds: 300}
	return template
}
