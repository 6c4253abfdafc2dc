package integration

import (
	"context"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	nodev1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/node/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/site"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

var _ = Describe("The taints of a Machine", func() {
	const dedicatedKey, effect = "example.com/dedicated", corev1.TaintEffectPreferNoSchedule
	dedicated := func(value string) corev1.Taint {
		return corev1.Taint{Key: dedicatedKey, Value: value, Effect: effect}
	}
	burnIn := corev1.Taint{Key: "example.com/burn-in", Effect: effect}
	kept := HaveField("Annotations", HaveKeyWithValue(clusterv1.TaintsFromMachineAnnotation, dedicatedKey+":"+string(effect)))

	It("are on its Node from the first version, where Cluster API adopts them, keeps those with Always, and removes them", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 1)
		setPoolTaint := func(value string) {
			GinkgoHelper()
			infra := t.Pool("infra")
			Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(infra), infra)).To(Succeed())
			original := infra.DeepCopy()
			infra.Spec.Node.Taints = []nodev1.Taint{{Key: dedicatedKey, Value: value, Effect: effect}}
			Expect(lab.ManagementClient.Patch(ctx, infra, client.MergeFrom(original))).To(Succeed())
		}
		setPoolTaint("cache")
		history, err := site.RecordNodes(ctx, lab.WorkloadClient)
		Expect(err).NotTo(HaveOccurred())
		deployment := t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels, Taints: []clusterv1.MachineTaint{
			{Key: dedicatedKey, Value: "db", Effect: effect, Propagation: clusterv1.MachineTaintPropagationAlways},
			{Key: burnIn.Key, Effect: effect, Propagation: clusterv1.MachineTaintPropagationOnInitialization},
		}})
		config := t.Config(ctx, "infra")
		host := waitForConfiguration(ctx, t, config)
		Expect(host.readFile("/etc/poolboot/kubelet.env")).To(And(
			ContainSubstring("example.com/dedicated=db:PreferNoSchedule"), ContainSubstring("example.com/burn-in=:PreferNoSchedule"), Not(ContainSubstring("cache"))))
		node := func(ctx context.Context) *corev1.Node { return t.Node(ctx, config) }
		Eventually(ctx, node).Should(kept)
		makeNodeReady(ctx, t, config)
		Expect(t.Condition(config, bootstrapv1.NodeInPoolCondition)(ctx)).To(And(HavePrefix("True"), ContainSubstring(
			"the taint example.com/dedicated=db:PreferNoSchedule of Machine %s/%s spec.taints replaces example.com/dedicated=cache:PreferNoSchedule of "+
				"MachineConfigPool %[1]s/infra spec.node.taints: set one value in both, or remove the taint in spec.template.spec.taints of MachineDeployment infra",
			t.Namespace, t.Machine(ctx, config).Name)))
		for _, version := range history.Of(config.Status.NodeRef.Name) {
			Expect(version.Node.Spec.Taints).To(ContainElements(dedicated("db"), burnIn))
		}

		By("removing both as a user")
		before := node(ctx)
		removed := before.DeepCopy()
		removed.Spec.Taints = nil
		Expect(lab.WorkloadClient.Patch(ctx, removed, client.MergeFrom(before))).To(Succeed())
		Eventually(ctx, node).Should(HaveField("Spec.Taints", ConsistOf(dedicated("db"))))
		Consistently(ctx, node).Should(HaveField("Spec.Taints", ConsistOf(dedicated("db"))))

		By("removing them from the Machine: the Node has the pool's taint then")
		setPoolTaint("db")
		original := deployment.DeepCopy()
		deployment.Spec.Template.Spec.Taints = nil
		Expect(lab.ManagementClient.Patch(ctx, deployment, client.MergeFrom(original))).To(Succeed())
		Eventually(ctx, node).ShouldNot(kept)
		Eventually(ctx, node).Should(HaveField("Spec.Taints", ConsistOf(dedicated("db"))))
		Consistently(ctx, node).Should(HaveField("Spec.Taints", ConsistOf(dedicated("db"))))
		versions := history.Of(config.Status.NodeRef.Name)
		Expect(slices.ContainsFunc(versions, func(v site.NodeVersion) bool { return slices.Contains(v.Node.Spec.Taints, dedicated("cache")) })).To(BeFalse())
	})
})
