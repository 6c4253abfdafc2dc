package metal3_test

import (
	"context"
	"time"

	bmov1alpha1 "github.com/metal3-io/baremetal-operator/apis/metal3.io/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	deprecatedv1beta1conditions "sigs.k8s.io/cluster-api/util/conditions/deprecated/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/clusterapi"
	infrav1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/metal3/v1beta2"
)

var _ = Describe("a Machine that is remediated", Ordered, func() {
	const ns = "remediation"
	var (
		machine     *clusterv1.Machine
		remediation *infrav1.Metal3Remediation
		host        = &bmov1alpha1.BareMetalHost{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "sick"}}
		node        *corev1.Node
	)
	get := func(ctx context.Context, o client.Object) error { return c.Get(ctx, client.ObjectKeyFromObject(o), o) }
	status := func(g Gomega, ctx SpecContext) infrav1.Metal3RemediationStatus {
		g.Expect(get(ctx, remediation)).To(Succeed())
		return remediation.Status
	}
	taints := func(g Gomega, ctx SpecContext) []corev1.Taint {
		g.Expect(get(ctx, node)).To(Succeed())
		return node.Spec.Taints
	}
	finalizers := func(g Gomega, ctx SpecContext) []string {
		g.Expect(get(ctx, remediation)).To(Succeed())
		return remediation.Finalizers
	}
	outOfService := HaveField("Key", corev1.TaintNodeOutOfService)
	register := func(ctx context.Context, labels map[string]string) {
		GinkgoHelper()
		node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "sick", Labels: labels}}
		node.Labels["metal3.io/uuid"] = string(host.UID)
		Expect(c.Create(ctx, node)).To(Succeed())
	}
	remediate := func(ctx context.Context, name string) {
		GinkgoHelper()
		remediation = &infrav1.Metal3Remediation{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: clusterv1.GroupVersion.String(), Kind: "Machine", Name: machine.Name, UID: machine.UID}}}}
		remediation.Spec.Strategy = &infrav1.RemediationStrategy{Type: infrav1.RebootRemediationStrategy}
		Expect(c.Create(ctx, remediation)).To(Succeed())
	}
	// expire sets the start of a remediation's last try to an hour ago.
	expire := func(ctx context.Context) {
		GinkgoHelper()
		before := remediation.DeepCopy()
		remediation.Status.LastRemediated = ptr.To(metav1.NewTime(time.Now().Add(-time.Hour)))
		Expect(c.Status().Patch(ctx, remediation, client.MergeFrom(before))).To(Succeed())
	}

	BeforeAll(func(ctx SpecContext) {
		Expect(c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})).To(Succeed())
		_, err := clusterapi.CreateCluster(ctx, c, clusterapi.ClusterOptions{Namespace: ns, Name: "c2", Workload: plane})
		Expect(err).NotTo(HaveOccurred())
		createBMCSecret(ctx, ns, "bmc")
		host.Spec.BMC = bmov1alpha1.BMCDetails{Address: "redfish://bmc.example.com/1", CredentialsName: "bmc"}
		Expect(c.Create(ctx, host)).To(Succeed())
		Expect(c.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "sick"}, StringData: map[string]string{"value": "data"}})).To(Succeed())
		metal3Machine := &infrav1.Metal3Machine{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "sick", Labels: map[string]string{clusterv1.ClusterNameLabel: "c2"}}}
		metal3Machine.Spec.Image = infrav1.Image{URL: "http://images.example.com/os.qcow2"}
		Expect(c.Create(ctx, metal3Machine)).To(Succeed())
		machine = &clusterv1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "sick"}, Spec: clusterv1.MachineSpec{
			ClusterName: "c2", Bootstrap: clusterv1.Bootstrap{DataSecretName: ptr.To("sick")},
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "Metal3Machine", Name: "sick"},
		}}
		Expect(c.Create(ctx, machine)).To(Succeed())
		Eventually(func() (bool, error) { return host.Status.PoweredOn, get(ctx, host) }).Should(BeTrue())
		register(ctx, map[string]string{"kept": "yes", "changed": "before"})
		Eventually(func() (bool, error) { return machine.Status.NodeRef.IsDefined(), get(ctx, machine) }).Should(BeTrue())
	}, NodeTimeout(2*time.Minute))

	It("has its host powered off, and its Node tainted until all Pods are evicted and the host is on again", func(ctx SpecContext) {
		Expect(c.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "default"}})).To(Succeed())
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "slow"}, Spec: corev1.PodSpec{
			NodeName: node.Name, Containers: []corev1.Container{{Name: "slow", Image: "slow"}}}}
		Expect(c.Create(ctx, pod)).To(Succeed())
		Expect(c.Delete(ctx, pod)).To(Succeed())
		Expect(get(ctx, pod)).To(Succeed(), "no kubelet terminates the Pod")
		remediate(ctx, "taint")
		Eventually(taints).WithContext(ctx).Should(ContainElement(outOfService))
		Expect(get(ctx, host)).To(Succeed())
		Expect(host.Status.PoweredOn).To(BeFalse(), "the host is off before the Pods are evicted")
		Expect(host.Annotations).To(HaveKeyWithValue(bmov1alpha1.RebootAnnotationPrefix+"/metal3-remediation-"+string(remediation.UID), `{"mode":"hard"}`))
		Consistently(status).WithContext(ctx).WithTimeout(7*time.Second).Should(HaveField("Phase", infrav1.RemediationRunning), "a Pod is terminating")

		Expect(c.Delete(ctx, pod, client.GracePeriodSeconds(0))).To(Succeed())
		Eventually(finalizers).WithContext(ctx).Should(BeEmpty())
		Expect(remediation.Status.Phase).To(Equal(infrav1.RemediationWaiting))
		Expect(taints(Default, ctx)).NotTo(ContainElement(outOfService))
		Expect(power.of(host)()).To(Equal([]string{"sick boots with data", "sick is off", "sick boots again"}))
	})

	It("is rebooted again when it stays unhealthy, and is left to its owner at the limit", func(ctx SpecContext) {
		expire(ctx)
		Eventually(status).WithContext(ctx).Should(And(HaveField("Phase", infrav1.RemediationRunning), HaveField("RetryCount", BeEquivalentTo(1))))
		Eventually(status).WithContext(ctx).Should(HaveField("Phase", infrav1.RemediationWaiting))
		Eventually(finalizers).WithContext(ctx).Should(BeEmpty())
		Expect(power.of(host)()).To(HaveLen(5))
		expire(ctx)
		Eventually(status).WithContext(ctx).Should(HaveField("Phase", infrav1.RemediationDeleting))
		Expect(get(ctx, host)).To(Succeed())
		Expect(host.Annotations).To(HaveKey("capm3.metal3.io/unhealthy"))
		Expect(get(ctx, machine)).To(Succeed())
		Expect(deprecatedv1beta1conditions.IsFalse(machine, clusterv1.MachineOwnerRemediatedV1Beta1Condition)).To(BeTrue())
		Expect(c.Delete(ctx, remediation)).To(Succeed())
	})

	It("has its Node deleted if the taint is not supported, and its metadata restored on the next Node", func(ctx SpecContext) {
		simulator.DeleteNodes(true)
		DeferCleanup(func() { simulator.DeleteNodes(false) })
		old := node
		remediate(ctx, "delete")
		Eventually(func() error { return get(ctx, old.DeepCopy()) }).Should(Satisfy(apierrors.IsNotFound))
		Eventually(power.of(host)).Should(HaveLen(7), "off and on")
		Eventually(func() (bool, error) { return host.Status.PoweredOn, get(ctx, host) }).Should(BeTrue())
		Expect(finalizers(Default, ctx)).NotTo(BeEmpty())
		Expect(c.Delete(ctx, remediation)).To(Succeed(), "a health check can consider a Machine without a Node as healthy")
		Expect(finalizers(Default, ctx)).NotTo(BeEmpty())

		register(ctx, map[string]string{"changed": "after"})
		Eventually(func() error { return get(ctx, remediation) }).Should(Satisfy(apierrors.IsNotFound))
		Expect(get(ctx, node)).To(Succeed())
		Expect(node.Labels).To(And(HaveKeyWithValue("kept", "yes"), HaveKeyWithValue("changed", "after")))
		Expect(node.Spec.Taints).NotTo(ContainElement(outOfService))
	})

	It("is not remediated while its host is offline in the spec", func(ctx SpecContext) {
		By("pausing the Metal3Machine, which would set it online again")
		metal3Machine := &infrav1.Metal3Machine{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "sick"}}
		Expect(get(ctx, metal3Machine)).To(Succeed())
		running := metal3Machine.DeepCopy()
		metav1.SetMetaDataAnnotation(&metal3Machine.ObjectMeta, clusterv1.PausedAnnotation, "")
		Expect(c.Patch(ctx, metal3Machine, client.MergeFrom(running))).To(Succeed())
		Eventually(func() (map[string]string, error) { return host.Annotations, get(ctx, host) }).Should(HaveKey(bmov1alpha1.PausedAnnotation))
		before := host.DeepCopy()
		host.Spec.Online = false
		Expect(c.Patch(ctx, host, client.MergeFrom(before))).To(Succeed())
		remediate(ctx, "off")
		Eventually(status).WithContext(ctx).Should(HaveField("Phase", infrav1.RemediationFailed))
		Expect(finalizers(Default, ctx)).To(BeEmpty())
	})
})
