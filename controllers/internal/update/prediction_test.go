package update

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/update"
)

var _ = Describe("The effect of an update", func() {
	// rendered creates a rendered config of worker with a file.
	rendered := func(ctx context.Context, w *world, name, content string) {
		GinkgoHelper()
		c := &poolv1.MachineConfig{}
		c.Namespace, c.Name, c.Labels = clusterKey.Namespace, name, map[string]string{poolv1.RenderedForLabel: poolv1.RoleWorker}
		c.Spec.Config = &runtime.RawExtension{Raw: fmt.Appendf(nil,
			`{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/etc/app.conf","contents":{"source":"data:,%s"}}]}}`, content)}
		Expect(w.management.Create(ctx, c)).To(Succeed())
	}
	// updates lets a host update from rendered-worker-1 to rendered-worker-2, and returns the events about its
	// prediction.
	updates := func(ctx context.Context, w *world, effect string) []string {
		GinkgoHelper()
		w.adopt(ctx)
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		told := w.toldRevision(ctx, 0)
		w.changeNode(ctx, 0, func(node *corev1.Node) {
			node.Annotations[agentv1.EffectAnnotation] = effect
			if effect != "" && len(effect) < 10 {
				node.Annotations[agentv1.EffectAnnotation] = told + " " + effect
			}
		})
		w.complete(ctx, 0)
		w.settle(ctx)
		Expect(w.config(ctx, 0).Status.Boot.ServedConfiguration.Name).To(Equal("rendered-worker-2"))
		w.settle(ctx)
		return w.eventsOf(bootstrapv1.EventPredictionDiffers)
	}
	newScene := func(ctx context.Context) *world {
		w := newWorld(1)
		rendered(ctx, w, "rendered-worker-1", "1")
		rendered(ctx, w, "rendered-worker-2", "2")
		return w
	}

	// differences returns how many differences the metric has counted.
	differences := func() (count float64) {
		GinkgoHelper()
		families, err := metrics.Registry.Gather()
		Expect(err).NotTo(HaveOccurred())
		for _, family := range families {
			if family.GetName() == "poolboot_prediction_differences_total" {
				for _, m := range family.GetMetric() {
					count += m.GetCounter().GetValue()
				}
			}
		}
		return count
	}

	It("is compared with the prediction: a difference is one event, and is counted", func(ctx SpecContext) {
		before := differences()
		defer func() { Expect(differences()).To(Equal(before + 1)) }()
		Expect(updates(ctx, newScene(ctx), string(update.EffectRestart))).To(ConsistOf(
			And(HavePrefix("Warning PredictionDiffers"), ContainSubstring("was Restart, and Reboot was predicted"))))
	})

	DescribeTable("causes no event", func(ctx SpecContext, effect string) {
		before := differences()
		defer func() { Expect(differences()).To(Equal(before)) }()
		Expect(updates(ctx, newScene(ctx), effect)).To(BeEmpty())
	},
		Entry("if it was predicted", string(update.EffectReboot)),
		Entry("if the agent does not say it", ""),
		Entry("if it is that of another revision", oldRevision+" Restart"),
		Entry("if it is malformed", "Explode"),
	)

	It("is not compared if a rendered config does not exist any more", func(ctx SpecContext) {
		w := newWorld(1)
		rendered(ctx, w, "rendered-worker-2", "2")
		Expect(updates(ctx, w, string(update.EffectRestart))).To(BeEmpty())
	})
})
