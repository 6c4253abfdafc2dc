package integration

import (
	"context"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	nodev1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/node/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/test/world/tenant"
)

var _ = Describe("Labels and taints that are added to a pool", func() {
	It("are added to existing Nodes: labels whenever a Node lacks them, a taint once", func(ctx SpecContext) {
		t := tenant.New(ctx, lab, 1)
		t.Deploy(ctx, tenant.Deployment{Name: "infra", Replicas: 1, Labels: infraLabels})
		config := t.Config(ctx, "infra")
		waitForConfiguration(ctx, t, config)
		quiet := corev1.Taint{Key: "example.com/quiet", Effect: corev1.TaintEffectNoSchedule}
		node := func(ctx context.Context) *corev1.Node { return t.Node(ctx, config) }
		label := HaveField("Labels", HaveKeyWithValue("example.com/tier", "infra"))
		taint := HaveField("Spec.Taints", ContainElement(quiet))
		Expect(node(ctx)).NotTo(Or(label, taint))

		infra := t.Pool("infra")
		Expect(lab.ManagementClient.Get(ctx, client.ObjectKeyFromObject(infra), infra)).To(Succeed())
		original := infra.DeepCopy()
		infra.Spec.NodeLabels, infra.Spec.NodeTaints = map[string]string{"example.com/tier": "infra"}, []nodev1.Taint{{Key: quiet.Key, Effect: quiet.Effect}}
		Expect(lab.ManagementClient.Patch(ctx, infra, client.MergeFrom(original))).To(Succeed())
		Eventually(ctx, node).Should(And(label, taint))

		before := node(ctx)
		removed := before.DeepCopy()
		delete(removed.Labels, "example.com/tier")
		removed.Spec.Taints = slices.DeleteFunc(removed.Spec.Taints, func(t corev1.Taint) bool { return t == quiet })
		Expect(lab.WorkloadClient.Patch(ctx, removed, client.MergeFrom(before))).To(Succeed())
		Eventually(ctx, node).Should(label)
		Consistently(ctx, node).Should(And(label, Not(taint)))
	})
})
