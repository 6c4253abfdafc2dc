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

// hostFrozen is the Node condition that the health checks of these specs watch, as a node problem detector sets it.
const hostFrozen corev1.NodeConditionType = "HostFrozen"

// haveOutOfServiceKey matches the taint with which Metal3 has the Pods of a powered-off host evicted.
var haveOutOfServiceKey = HaveField("Key", corev1.TaintNodeOutOfService)

var _ = Describe("A Node whose health check fails", Ordered, func() {
	var (
		t      *tenant.Tenant
		config *bootstrapv1.PoolbootConfig
		check  *clusterv1.MachineHealthCheck
	)

	// The Node has moved to another pool than it booted into. Remediation must not revert the move.
	BeforeAll(func(ctx SpecContext) {
		t = tenant.New(ctx, lab, 1)
		storage := t.Pool("storage")
		storage.Spec.Node.Taints = []nodev1.Taint{{Key: "example.com/disks", Effect: corev1.TaintEffectPreferNoSchedule}}
		t.Create(ctx, t.Pool("edge"), storage, newRemediationTemplate())
		t.Deploy(ctx, tenant.Deployment{Name: "edge", Replicas: 1, Config: func(spec *bootstrapv1.BootSpec) {
			spec.PoolRole, spec.PoolRetention = "edge", bootstrapv1.PoolRetentionHost
		}})
		config = t.Config(ctx, "edge")
		expectJoined(ctx, t, config)
		Eventually(ctx, getRetainedPool(ctx, config)).Should(HavePrefix(t.Namespace + "/edge/"))
		relabel(ctx, t.Node(ctx, config), map[string]*string{edgeRole: nil, storageRole: ptr.To("")})
		Eventually(ctx, getRetainedPool(ctx, config)).Should(HavePrefix(t.Namespace+"/storage/"), "the move is also recorded on the host")
		Eventually(ctx, t.Condition(config, bootstrapv1.NodeInPoolCondition)).Should(And(HavePrefix("True"), ContainSubstring("storage")))

		check = &clusterv1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Name: "edge"}, Spec: clusterv1.MachineHealthCheckSpec{
			ClusterName: t.Namespace,
			Selector:    metav1.LabelSelector{MatchLabels: map[string]string{clusterv1.MachineDeploymentNameLabel: "edge"}},
			Checks: clusterv1.MachineHealthCheckChecks{UnhealthyNodeConditions: []clusterv1.UnhealthyNodeCondition{
				{Type: hostFrozen, Status: corev1.ConditionTrue, TimeoutSeconds: ptr.To[int32](0)}}},
			Remediation: clusterv1.MachineHealthCheckRemediation{TemplateRef: clusterv1.MachineHealthCheckRemediationTemplateReference{
				APIVersion: infrav1.GroupVersion.String(), Kind: "Metal3RemediationTemplate", Name: newRemediationTemplate().Name}},
		}}
		t.Create(ctx, check)
	}, NodeTimeout(5*time.Minute))

	It("keeps its UID and its pool when Metal3 reboots its host without deleting the Node", func(ctx SpecContext) {
		before := t.Node(ctx, config)
		seen, err := site.RecordNodes(ctx, lab.WorkloadClient)
		Expect(err).NotTo(HaveOccurred())
		taints := func() []corev1.Taint { return t.Node(ctx, config).Spec.Taints }
		remediate(ctx, t, config, func(*infrav1.Metal3Remediation) {
			Consistently(ctx, taints).WithTimeout(time.Second).Should(ContainElement(haveOutOfServiceKey), "only Metal3 removes it")
		}, func() {
			Eventually(ctx, taints).ShouldNot(ContainElement(haveOutOfServiceKey))
		})
		Eventually(ctx, t.Condition(config, bootstrapv1.NodeInPoolCondition)).Should(HavePrefix("True"))
		Expect(config.Status.PoolRole).To(Equal("storage"))
		Expect(t.Node(ctx, config).UID).To(Equal(before.UID))
		verdict := site.Judge(listVersions(ctx, seen, before.Name), "storage", t.Pools(ctx))
		Expect(verdict.Versions).To(BeNumerically(">", 2))
		Expect(verdict).To(Equal(site.Verdict{Versions: verdict.Versions, BornInPool: true}))
	}, SpecTimeout(5*time.Minute))

	It("registers in its pool again when an older Metal3 release deletes the Node and restores its labels", func(ctx SpecContext) {
		before := t.Node(ctx, config)
		seen, err := site.RecordNodes(ctx, lab.WorkloadClient)
		Expect(err).NotTo(HaveOccurred())
		lab.DeleteNodes(true)
		DeferCleanup(lab.DeleteNodes, false)
		remediate(ctx, t, config, func(remediation *infrav1.Metal3Remediation) {
			Expect(remediation.Annotations).To(HaveKeyWithValue("remediation.metal3.io/node-labels-backup", ContainSubstring(storageRole)))
			Consistently(ctx, func() error { return lab.WorkloadClient.Get(ctx, client.ObjectKeyFromObject(before), &corev1.Node{}) }).
				Should(Satisfy(apierrors.IsNotFound), "Pods are evicted only while the Node is deleted")
			DeferCleanup(restartAfterFailure)
			kill(lab.Manager)
		}, func() {
			waitForReregistration(ctx, before)
			Eventually(ctx, func() map[string]string { return t.Node(ctx, config).Labels }).Should(HaveKey(storageRole), "Metal3 restores the label")
			current := t.Node(ctx, config)
			Expect(hasUnassignedTaint(current)).To(BeTrue(), "unschedulable, although Cluster API and Metal3 acted before Poolboot")
			registered := slices.DeleteFunc(listVersions(ctx, seen, current.Name), func(v site.NodeVersion) bool { return v.Node.UID != current.UID })
			Expect(registered[0].Node.Labels).NotTo(Or(HaveKey(edgeRole), HaveKey(storageRole)))
			for _, version := range registered {
				Expect(hasUnassignedTaint(version.Node)).To(BeTrue())
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
		expectUnschedulableOutsidePool(seen, node, "storage", t.Pools(ctx))
	}, SpecTimeout(5*time.Minute))

	It("is replaced on the same host by a Node that boots straight into the pool that the host keeps", func(ctx SpecContext) {
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
		expectJoined(ctx, t, config)
		Expect(config.Status.HostRef.Name).To(Equal(old.Status.HostRef.Name))
		Expect(config.Spec.PoolRole).To(Equal("edge"))
		Expect(config.Status.PoolRole).To(Equal("storage"))
		Eventually(ctx, listEvents(ctx, config, bootstrapv1.EventPoolChanged)).Should(ConsistOf(And(ContainSubstring(old.Status.HostRef.Name), ContainSubstring("storage"))))
		verdict := site.Judge(listVersions(ctx, history, config.Status.NodeRef.Name), "storage", t.Pools(ctx))
		Expect(verdict).To(Equal(site.Verdict{Versions: verdict.Versions, BornInPool: true}))
		expectUnschedulableOutsidePool(history, t.Node(ctx, config), "storage", t.Pools(ctx))
		Expect(findLeftovers(ctx, t, old)()).To(ConsistOf("PoolbootConfig " + config.Name))
	}, SpecTimeout(5*time.Minute))
})

// remediate makes a health check fail, waits for Metal3's remediation to power the host off and on, and calls whenOff
// and whenOn. The spec also holds the host off while whenOff runs. Cluster API deletes the remediation when the Node is
// healthy.
func remediate(ctx context.Context, t *tenant.Tenant, config *bootstrapv1.PoolbootConfig, whenOff func(*infrav1.Metal3Remediation), whenOn func()) {
	GinkgoHelper()
	const rebootAnnotation = bmov1alpha1.RebootAnnotationPrefix + "/held"
	setHeld := func(held bool) {
		host := getHost(ctx, config)
		before := host.DeepCopy()
		delete(host.Annotations, rebootAnnotation)
		if held {
			metav1.SetMetaDataAnnotation(&host.ObjectMeta, rebootAnnotation, "")
		}
		Expect(lab.ManagementClient.Patch(ctx, host, client.MergeFrom(before))).To(Succeed())
	}
	setHeld(true)
	setFrozen(ctx, config, corev1.ConditionTrue)
	remediation := &infrav1.Metal3Remediation{ObjectMeta: metav1.ObjectMeta{Namespace: t.Namespace, Name: t.Machine(ctx, config).Name}}
	Eventually(ctx, func() (string, error) {
		err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(remediation), remediation)
		return remediation.Status.Phase, client.IgnoreNotFound(err)
	}).Should(Equal(infrav1.RemediationWaiting))
	Expect(getHost(ctx, config).Status.PoweredOn).To(BeFalse())
	whenOff(remediation)
	setHeld(false)
	Eventually(ctx, func() bool { return getHost(ctx, config).Status.PoweredOn }).Should(BeTrue())
	whenOn()
	setFrozen(ctx, config, corev1.ConditionFalse)
	Eventually(ctx, func() error {
		return lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(remediation), remediation.DeepCopy())
	}).Should(Satisfy(apierrors.IsNotFound), "the health check succeeds again")
}

// setFrozen sets the Node condition that the health checks watch.
func setFrozen(ctx context.Context, config *bootstrapv1.PoolbootConfig, status corev1.ConditionStatus) {
	GinkgoHelper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: config.Status.NodeRef.Name}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: hostFrozen, Status: status, LastTransitionTime: metav1.Now(), Reason: "Test", Message: "set by the test"}}
	Expect(lab.WorkloadClient.Status().Patch(ctx, node, client.StrategicMergeFrom(&corev1.Node{ObjectMeta: node.ObjectMeta}))).To(Succeed())
}

func getHost(ctx context.Context, config *bootstrapv1.PoolbootConfig) *bmov1alpha1.BareMetalHost {
	GinkgoHelper()
	host := &bmov1alpha1.BareMetalHost{}
	Expect(lab.ManagementClient.Get(ctx, client.ObjectKey{Namespace: config.Status.HostRef.Namespace, Name: config.Status.HostRef.Name}, host)).To(Succeed())
	return host
}

// getRetainedPool returns a function that reads the pool that a config's host keeps.
func getRetainedPool(ctx context.Context, config *bootstrapv1.PoolbootConfig) func() string {
	return func() string { return getHost(ctx, config).Annotations[poolv1.HostRetainedPoolAnnotation] }
}

// newRemediationTemplate returns a template for remediation by a reboot.
func newRemediationTemplate() *infrav1.Metal3RemediationTemplate {
	template := &infrav1.Metal3RemediationTemplate{ObjectMeta: metav1.ObjectMeta{Name: "reboot"}}
	template.Spec.Template.Spec.Strategy = &infrav1.RemediationStrategy{Type: infrav1.RebootRemediationStrategy, RetryLimit: 1, TimeoutSeconds: 300}
	return template
}
