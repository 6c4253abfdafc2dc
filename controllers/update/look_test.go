package update

import (
	"errors"
	"maps"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	agentv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/agent/v1alpha1"
	bootstrapv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/bootstrap/v1alpha1"
	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/join"
)

var _ = Describe("A look at a pool", func() {
	// scene is a world, and the hosts at the last look.
	type scene struct {
		*world
		last map[string]hostLook
	}
	newScene := func(ctx SpecContext) *scene {
		s := &scene{world: newWorld(3)}
		s.addOtherPools(ctx)
		s.adopt(ctx)
		s.last = s.reconciler.looks.known[poolKey].hosts
		Expect(s.last).To(HaveLen(3))
		return s
	}
	// changed looks again, and returns the hosts that were determined again.
	changed := func(ctx SpecContext, s *scene) (hosts []string) {
		GinkgoHelper()
		Expect(s.reconcilePool(ctx)).Error().NotTo(HaveOccurred())
		now := s.reconciler.looks.known[poolKey].hosts
		for name := range maps.Keys(now) {
			if now[name].host.Host != s.last[name].host.Host {
				hosts = append(hosts, name)
			}
		}
		s.last = now
		return hosts
	}

	DescribeTable("determines again only the hosts that have changed:", func(ctx SpecContext, change func(SpecContext, *scene), want ...string) {
		s := newScene(ctx)
		Expect(changed(ctx, s)).To(BeEmpty())
		change(ctx, s)
		Expect(changed(ctx, s)).To(ConsistOf(want))
	},
		Entry("none", func(SpecContext, *scene) {}),
		Entry("by its Node", func(ctx SpecContext, s *scene) {
			s.changeNode(ctx, 1, func(node *corev1.Node) { setReady(node, false) })
		}, "host-1"),
		Entry("by its record", func(ctx SpecContext, s *scene) {
			config := s.config(ctx, 2)
			config.Annotations[bootstrapv1.ForceUpdateAnnotation] = "1"
			Expect(s.management.Update(ctx, config)).To(Succeed())
		}, "host-2"),
		Entry("by its Machine", func(ctx SpecContext, s *scene) {
			machine := s.machine(ctx, 0)
			machine.Labels["a"] = "b"
			Expect(s.management.Update(ctx, machine)).To(Succeed())
		}, "host-0"),
		Entry("because its Machine does not exist any more", func(ctx SpecContext, s *scene) {
			Expect(s.management.Delete(ctx, s.machine(ctx, 0))).To(Succeed())
		}, "host-0"),
		Entry("all by their pool", func(ctx SpecContext, s *scene) {
			s.changePool(ctx, func(p *poolv1.MachineConfigPool) { p.Generation++ })
		}, "host-0", "host-1", "host-2"),
		Entry("all because their pool is paused", func(ctx SpecContext, s *scene) {
			s.changePool(ctx, func(p *poolv1.MachineConfigPool) { p.Spec.Paused = ptr.To(true) })
		}, "host-0", "host-1", "host-2"),
	)

	It("forgets a host that left, and a pool that was deleted", func(ctx SpecContext) {
		s := newScene(ctx)
		config := s.config(ctx, 1)
		config.Status.PoolRole = "infra"
		Expect(s.management.Status().Update(ctx, config)).To(Succeed())
		Expect(changed(ctx, s)).To(BeEmpty())
		Expect(s.last).To(And(HaveLen(2), Not(HaveKey("host-1"))))
		p := &poolv1.MachineConfigPool{}
		Expect(s.management.Get(ctx, poolKey, p)).To(Succeed())
		Expect(s.management.Delete(ctx, p)).To(Succeed())
		Expect(s.reconcilePool(ctx)).Error().NotTo(HaveOccurred())
		Expect(s.reconciler.looks.known).To(BeEmpty())
	})

	It("is repeated a minute after it could not determine what hosts should run, because no event says that it can", func(ctx SpecContext) {
		s := newScene(ctx)
		offer := s.reconciler.Offer
		s.reconciler.Offer = func() (join.Offer, error) {
			return join.Offer{}, errors.New("the CA of the config server is being replaced")
		}
		Expect(s.reconcilePool(ctx)).To(HaveField("RequeueAfter", time.Minute))
		s.reconciler.Offer = offer
		Expect(s.reconcilePool(ctx)).To(HaveField("RequeueAfter", BeZero()))
	})

	It("does not change what it remembers when it tells a host", func(ctx SpecContext) {
		s := newScene(ctx)
		s.render(ctx, "rendered-worker-2")
		Expect(s.reconcilePool(ctx)).Error().NotTo(HaveOccurred())
		Expect(s.told(ctx)).To(Equal([]int{0}))
		for name, h := range s.reconciler.looks.known[poolKey].hosts {
			revision := revisionOf(int(name[len(name)-1]-'0'), "rendered-worker-1")
			Expect(h.host.Config.Status.Update.DesiredRevision).To(Equal(revision), "the last look was before the records")
			Expect(h.host.Node.Annotations[agentv1.DesiredAnnotation]).To(Equal(revision))
		}
	})
})
