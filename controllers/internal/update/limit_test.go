package update

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

var _ = Describe("The limit of a pool", func() {
	It("does not count a host that has not booted, and the host is skipped", func(ctx SpecContext) {
		w := newWorld(2)
		w.adopt(ctx)
		boots := w.config(ctx, 0)
		boots.Annotations = nil
		Expect(w.management.Update(ctx, boots)).To(Succeed())
		w.changeNode(ctx, 0, func(node *corev1.Node) { setReady(node, false) })
		w.render(ctx, "rendered-worker-2")
		w.settle(ctx)
		Expect(w.told(ctx)).To(Equal([]int{1}))
		w.complete(ctx, 1)
		w.settle(ctx)
		Expect(w.told(ctx)).To(BeEmpty())
	})

	It("allows no host if it is invalid and was stored before the API server refused it", func(ctx SpecContext) {
		w := newWorld(2)
		w.adopt(ctx)
		for value, remedy := range map[string]string{"0 %": "set a number of at least 1", "2": "remove the quotes"} {
			w.changePool(ctx, func(p *poolv1.MachineConfigPool) {
				p.Spec.MaxUnavailable, p.Status.Configuration.Name = ptr.To(intstr.FromString(value)), "rendered-worker-2"
			})
			Expect(w.reconcilePool(ctx)).Error().To(MatchError(ContainSubstring("maxUnavailable: is %q: %s", value, remedy)))
			Expect(w.told(ctx)).To(BeEmpty())
		}
	})
})
