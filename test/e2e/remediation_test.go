package e2e

import (
	"context"
	"maps"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/tenant"
)

// frozen is the Node condition by which these tests' health checks find a host sick, as a node problem detector sets it.
const frozen corev1.NodeConditionType = "HostFrozen"

var outOfService = corev1.Taint{Key: corev1.TaintNodeOutOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute}

var _ = Describe("A Node whose health check fails", Ordered, func() {
	var (
		t      *tenant.Tenant
		config *bootstrapv1.PoolbootConfig
		check  *clusterv1.MachineHealthCheck
	)

	// The Node is in another pool than it was built for: that is what must not be lost.
	BeforeAll(func(ctx SpecContext) {
		installRemediations(ctx)
		t = tenant.New(ctx, lab, 1)
		storage := t.Pool("storage")
		storage.Spec.NodeTaints = []corev1.Taint{{Key: "example.com/disks", Effect: corev1.TaintEffectPreferNoSchedule}}
		t.Create(ctx, t.Pool("edge"), storage, remediationTemplate())
		t.Deploy(ctx, tenant.Deployment{Name: "edge", Replicas: 1, Config: func(spec *bootstrapv1.PoolbootConfigSpec) {
			spec.Pool, spec.PoolRetention = "edge", bootstrapv1.RetainOnHost
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
				APIVersion: remediationTemplate().GetAPIVersion(), Kind: remediationTemplate().GetKind(), Name: remediationTemplate().GetName()}},
		}}
		t.Create(ctx, check)
	}, NodeTimeout(5*time.Minute))

	It("stays, and stays in its pool, when Metal3 reboots its host and keeps the Node", func(ctx SpecContext) {
		before := t.Node(ctx, config)
		seen, err := site.RecordNodes(ctx, lab.WorkloadClient)
		Expect(err).NotTo(HaveOccurred())
		remediated(ctx, t, config, func() {
			taint(ctx, config.Status.Node.Name, func(taints []corev1.Taint) []corev1.Taint { return append(taints, outOfService) })
			Consistently(ctx, func() []corev1.Taint { return t.Node(ctx, config).Spec.Taints }).WithTimeout(time.Second).
				Should(ContainElement(HaveField("Key", outOfService.Key)), "Metal3 takes it away, nobody else")
		}, func() {
			taint(ctx, config.Status.Node.Name, func(taints []corev1.Taint) []corev1.Taint {
				var left []corev1.Taint
				for _, t := range taints {
					if t.Key != outOfService.Key {
						left = append(left, t)
					}
				}
				return left
			})
		})
		Eventually(ctx, t.Condition(config, bootstrapv1.NodeInPoolCondition)).Should(HavePrefix("True"))
		Expect(config.Status.Pool).To(Equal("storage"))
		Expect(t.Node(ctx, config).UID).To(Equal(before.UID))
		verdict := site.Judge(versions(ctx, seen, before.Name), "storage", pools(ctx, t))
		Expect(verdict.Versions).To(BeNumerically(">", 2))
		Expect(verdict).To(Equal(site.Verdict{Versions: verdict.Versions, BornInPool: true}))
	}, SpecTimeout(5*time.Minute))

	It("comes back in its pool when older Metal3 deletes the Node, and gives the new one the labels of the old", func(ctx SpecContext) {
		before := t.Node(ctx, config)
		seen, err := site.RecordNodes(ctx, lab.WorkloadClient)
		Expect(err).NotTo(HaveOccurred())
		remediated(ctx, t, config, func() {
			Expect(lab.WorkloadClient.Delete(ctx, before.DeepCopy())).To(Succeed())
			Consistently(ctx, func() error { return lab.WorkloadClient.Get(ctx, client.ObjectKeyFromObject(before), &corev1.Node{}) }).
				Should(Satisfy(apierrors.IsNotFound), "its Pods are cleared away only while it is gone")
			DeferCleanup(revive)
			kill(lab.Manager)
		}, func() {
			anew := withoutManager(ctx, before)
			Expect(anew.Labels).NotTo(Or(HaveKey(edgeRole), HaveKey(storageRole)))
			Expect(unassigned(anew)).To(BeTrue(), "closed to Pods, although Cluster API was first")
			Eventually(ctx, func() error {
				node := &corev1.Node{}
				if err := lab.WorkloadClient.Get(ctx, client.ObjectKeyFromObject(before), node); err != nil {
					return err
				}
				node.Annotations = merged(node.Annotations, before.Annotations)
				node.Labels = merged(node.Labels, before.Labels)
				return lab.WorkloadClient.Update(ctx, node)
			}).Should(Succeed())
			start(ctx, lab.Manager)
		})
		Eventually(ctx, func() (string, error) {
			err := lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(config), config)
			return config.Status.Node.UID, err
		}).ShouldNot(BeEquivalentTo(before.UID))
		Eventually(ctx, t.Condition(config, bootstrapv1.NodeInPoolCondition)).Should(HavePrefix("True"))
		node := t.Node(ctx, config)
		Expect(node.UID).NotTo(Equal(before.UID))
		Expect(config.Status.Node.UID).To(BeEquivalentTo(node.UID))
		Expect(config.Status.Pool).To(Equal("storage"))
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
		Expect(config.Status.Host.Name).To(Equal(old.Status.Host.Name))
		Expect(config.Spec.Pool).To(Equal("edge"))
		Expect(config.Status.Pool).To(Equal("storage"))
		Eventually(ctx, eventsOf(ctx, config, bootstrapv1.EventPoolChanged)).Should(ConsistOf(And(ContainSubstring(old.Status.Host.Name), ContainSubstring("storage"))))
		verdict := site.Judge(versions(ctx, history, config.Status.Node.Name), "storage", pools(ctx, t))
		Expect(verdict).To(Equal(site.Verdict{Versions: verdict.Versions, BornInPool: true}))
		expectClosedOutside(history, t.Node(ctx, config), "storage", pools(ctx, t))
		Expect(traces(ctx, t, old)()).To(ConsistOf("PoolbootConfig " + config.Name))
	}, SpecTimeout(5*time.Minute))
})

// remediated has a health check fail and does what Cluster API's Metal3 provider does for its strategy Reboot: the host is
// switched off, then something is done to the Node, and something more when the host is on again. Cluster API ends it when
// the Node is healthy.
func remediated(ctx context.Context, t *tenant.Tenant, config *bootstrapv1.PoolbootConfig, whenOff, whenOn func()) {
	GinkgoHelper()
	setFrozen(ctx, config, corev1.ConditionTrue)
	request := remediation("Metal3Remediation")
	request.SetNamespace(t.Namespace)
	request.SetName(t.Machine(ctx, config).Name)
	Eventually(ctx, func() error { return lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(request), request) }).Should(Succeed())
	change := func(do func()) {
		GinkgoHelper()
		before := request.DeepCopy()
		do()
		Expect(lab.ManagementClient.Patch(ctx, request, client.MergeFrom(before))).To(Succeed())
	}
	const finalizer = "metal3remediation.infrastructure.cluster.x-k8s.io"
	change(func() { controllerutil.AddFinalizer(request, finalizer) })

	off := bmov1alpha1.RebootAnnotationPrefix + "/metal3-remediation-" + string(request.GetUID())
	mark := func(set bool) {
		host := hostOf(ctx, config)
		before := host.DeepCopy()
		delete(host.Annotations, off)
		if set {
			metav1.SetMetaDataAnnotation(&host.ObjectMeta, off, `{"mode":"hard"}`)
		}
		Expect(lab.ManagementClient.Patch(ctx, host, client.MergeFrom(before))).To(Succeed())
	}
	mark(true)
	Eventually(ctx, func() bool { return hostOf(ctx, config).Status.PoweredOn }).Should(BeFalse())
	whenOff()
	mark(false)
	Eventually(ctx, func() bool { return hostOf(ctx, config).Status.PoweredOn }).Should(BeTrue())
	whenOn()
	setFrozen(ctx, config, corev1.ConditionFalse)
	change(func() { controllerutil.RemoveFinalizer(request, finalizer) })
	Eventually(ctx, func() error {
		return lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(request), request.DeepCopy())
	}).
		Should(Satisfy(apierrors.IsNotFound), "the health check succeeds again")
}

// setFrozen is what a node problem detector says of a host.
func setFrozen(ctx context.Context, config *bootstrapv1.PoolbootConfig, status corev1.ConditionStatus) {
	GinkgoHelper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: config.Status.Node.Name}}
	node.Status.Conditions = []corev1.NodeCondition{{Type: frozen, Status: status, LastTransitionTime: metav1.Now(), Reason: "Test", Message: "said by the test"}}
	Expect(lab.WorkloadClient.Status().Patch(ctx, node, client.StrategicMergeFrom(&corev1.Node{ObjectMeta: node.ObjectMeta}))).To(Succeed())
}

// taint changes the taints of a Node.
func taint(ctx context.Context, name string, change func([]corev1.Taint) []corev1.Taint) {
	GinkgoHelper()
	Eventually(ctx, func() error {
		node := &corev1.Node{}
		if err := lab.WorkloadClient.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
			return err
		}
		node.Spec.Taints = change(node.Spec.Taints)
		return lab.WorkloadClient.Update(ctx, node)
	}).Should(Succeed())
}

func hostOf(ctx context.Context, config *bootstrapv1.PoolbootConfig) *bmov1alpha1.BareMetalHost {
	GinkgoHelper()
	host := &bmov1alpha1.BareMetalHost{}
	Expect(lab.ManagementClient.Get(ctx, client.ObjectKey{Namespace: config.Status.Host.Namespace, Name: config.Status.Host.Name}, host)).To(Succeed())
	return host
}

// kept is the pool that a config's host keeps.
func kept(ctx context.Context, config *bootstrapv1.PoolbootConfig) func() string {
	return func() string { return hostOf(ctx, config).Annotations[poolv1.HostRetainedPoolAnnotation] }
}

func merged(over, under map[string]string) map[string]string {
	all := maps.Clone(over)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, under)
	return all
}

// remediation is an object of Metal3's remediation, whose types nothing here needs.
func remediation(kind string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetAPIVersion("infrastructure.cluster.x-k8s.io/v1beta2")
	object.SetKind(kind)
	return object
}

func remediationTemplate() *unstructured.Unstructured {
	template := remediation("Metal3RemediationTemplate")
	template.SetName("reboot")
	template.Object["spec"] = map[string]any{"template": map[string]any{"spec": map[string]any{
		"strategy": map[string]any{"type": "Reboot", "retryLimit": int64(1), "timeoutSeconds": int64(300)}}}}
	return template
}
