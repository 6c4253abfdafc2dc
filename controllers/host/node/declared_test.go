package node

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	nodev1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/node/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

var _ = Describe("What a pool declares for an existing Node", func() {
	quiet := corev1.Taint{Key: "example.com/quiet", Value: "yes", Effect: corev1.TaintEffectPreferNoSchedule}
	declares := func(labels map[string]string, taints ...corev1.Taint) func(*facts) {
		return func(f *facts) { f.pools[1].Spec.Node.Labels, f.pools[1].Spec.Node.Taints = labels, declared(taints...) }
	}
	joined := func(changes ...any) facts {
		f := situation(append([]any{ready, revoked, func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{infraTaint} }}, changes...)...)
		f.node.Status.Conditions[0].Status = corev1.ConditionTrue
		return f
	}
	// next returns the Node after a decision.
	next := func(f facts) *corev1.Node {
		if d := decide(f); d.node != nil {
			return d.node
		}
		return f.node
	}

	Context("labels", func() {
		It("are added when it lacks them", func() {
			node := next(joined(declares(map[string]string{"example.com/new": "a"}, infraTaint)))
			Expect(node.Labels).To(HaveKeyWithValue("example.com/new", "a"))
		})

		It("are never overwritten: neither a user's value nor the one that the pool declared before", func() {
			node := next(joined(declares(map[string]string{"example.com/tier": "new"}, infraTaint)))
			Expect(node.Labels).To(HaveKeyWithValue("example.com/tier", "infra"))
		})

		It("are never removed when the pool no longer declares them", func() {
			node := next(joined(declares(nil, infraTaint)))
			Expect(node.Labels).To(HaveKeyWithValue("example.com/tier", "infra"))
		})

		It("are added again when a user removes one, and a value that the user sets is kept", func() {
			node := next(joined(func(n *corev1.Node) { delete(n.Labels, "example.com/tier") }))
			Expect(node.Labels).To(HaveKeyWithValue("example.com/tier", "infra"))
			node = next(joined(func(n *corev1.Node) { n.Labels["example.com/tier"] = "" }))
			Expect(node.Labels).To(HaveKeyWithValue("example.com/tier", ""))
		})
	})

	Context("taints", func() {
		It("are added when it lacks them, and listed", func() {
			node := next(joined(declares(nil, quiet, infraTaint)))
			Expect(node.Spec.Taints).To(ConsistOf(infraTaint, quiet))
			Expect(node.Annotations).To(HaveKeyWithValue(poolv1.NodeAppliedTaintsAnnotation,
				"example.com/infra:NoSchedule,example.com/quiet=yes:PreferNoSchedule"))
		})

		It("are added to a Node without a list of applied taints", func() {
			node := next(joined(func(n *corev1.Node) {
				n.Spec.Taints = nil
				delete(n.Annotations, poolv1.NodeAppliedTaintsAnnotation)
			}))
			Expect(node.Spec.Taints).To(ConsistOf(infraTaint))
		})

		It("are never overwritten", func() {
			mine := quiet
			mine.Value = "mine"
			node := next(joined(declares(nil, infraTaint, quiet), func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{mine} }))
			Expect(node.Spec.Taints).To(ContainElement(mine))
			Expect(node.Spec.Taints).NotTo(ContainElement(quiet))
		})

		It("are never removed when the pool no longer declares them", func() {
			node := next(joined(declares(nil)))
			Expect(node.Spec.Taints).To(ConsistOf(infraTaint))
			Expect(node.Annotations).NotTo(HaveKey(poolv1.NodeAppliedTaintsAnnotation))
		})

		It("are not added again after a user removed them, however often the Node is reconciled", func() {
			f := joined(func(n *corev1.Node) { n.Spec.Taints = nil })
			for range 3 {
				f.node = next(f)
				Expect(f.node.Spec.Taints).To(BeEmpty())
			}
			By("declaring another taint, which alone is added")
			declares(nil, infraTaint, quiet)(&f)
			Expect(next(f).Spec.Taints).To(ConsistOf(quiet))
		})

		It("are added again after a user removed them if they are declared again, with another value, or by the pool that the Node moves to", func() {
			removed := joined(declares(nil), func(n *corev1.Node) { n.Spec.Taints = nil })
			removed.node = next(removed)
			declares(nil, infraTaint)(&removed)
			Expect(next(removed).Spec.Taints).To(ConsistOf(infraTaint))

			other := infraTaint
			other.Value = "other"
			Expect(next(joined(declares(nil, other), func(n *corev1.Node) { n.Spec.Taints = nil })).Spec.Taints).To(ConsistOf(other))

			moves := joined(labeled(role("edge")), func(f *facts) { f.pools[2].Spec.Node.Taints = declared(quiet) })
			Expect(next(moves).Spec.Taints).To(ConsistOf(infraTaint, quiet))
		})

		It("are added again to a Node that registers again", func() {
			Expect(next(situation(revoked, bare, ready)).Spec.Taints).To(ConsistOf(infraTaint))
		})
	})

	It("is not added to the Node of another pool", func() {
		node := next(joined(func(f *facts) {
			f.pools[2].Spec.Node.Labels, f.pools[2].Spec.Node.Taints = map[string]string{"example.com/edge": ""}, declared(quiet)
		}))
		Expect(node.Labels).NotTo(HaveKey("example.com/edge"))
		Expect(node.Spec.Taints).To(ConsistOf(infraTaint))
	})

	It("is added to the Node when the pool changes, and the record stays", func(ctx SpecContext) {
		s := newSite(ready, revoked, declares(map[string]string{"example.com/new": "a"}, infraTaint, quiet))
		config, node := s.settle(ctx)
		Expect(node.Labels).To(HaveKeyWithValue("example.com/new", "a"))
		Expect(node.Spec.Taints).To(ConsistOf(infraTaint, quiet))
		Expect(config.Status.PoolRole).To(Equal("infra"))
		Expect(config.Status.NodeRef).To(Equal(bootstrapv1.NodeReference{Name: name, UID: oldUID}))
	})
})

// declared returns taints as a pool declares them.
func declared(taints ...corev1.Taint) (of []nodev1.Taint) {
	for _, t := range taints {
		of = append(of, nodev1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect})
	}
	return of
}
