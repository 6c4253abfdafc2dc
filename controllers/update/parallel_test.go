package update

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/intstr"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
)

var _ = Describe("Hosts that are told in parallel", func() {
	It("are never more than allowed, at whichever write the manager crashes, and all are updated in the end", func(ctx SpecContext) {
		const hosts, maxUnavailable = 5, 3
		w := newWorld(hosts)
		w.mu, w.reconciler.parallel = &sync.Mutex{}, maxParallel
		w.adopt(ctx)
		w.changePool(ctx, func(p *poolv1.MachineConfigPool) { p.Spec.MaxUnavailable = new(intstr.FromInt32(maxUnavailable)) })
		w.afterWrite = w.expectLimit(ctx, maxUnavailable)
		r := rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 1)) //nolint:gosec // not for secrets
		for change := range 2 {
			rendered := fmt.Sprintf("rendered-worker-%d", change+2)
			w.render(ctx, rendered)
			waves := 0
			for told := []int{-1}; len(told) > 0; waves++ {
				w.CrashAt, w.Late = w.Writes+1+r.IntN(5*maxUnavailable), r.IntN(2) == 0
				w.settle(ctx)
				told = w.told(ctx)
				for _, i := range told {
					w.complete(ctx, i)
				}
			}
			Expect(waves).To(Equal(3), "the last one has nothing to do")
			for i := range hosts {
				Expect(w.config(ctx, i).Status.Boot.ServedConfiguration.Name).To(Equal(rendered))
			}
		}
	})

	It("are all tried, and all errors are reported", func() {
		var tried sync.Map
		err := inParallel([]int{1, 2, 3, 4}, 2, func(i int) error {
			tried.Store(i, true)
			if i%2 == 0 {
				return fmt.Errorf("host %d: %w", i, errNodeDeleting)
			}
			return nil
		})
		Expect(err).To(MatchError(And(ContainSubstring("host 2"), ContainSubstring("host 4"), Not(ContainSubstring("host 1")))))
		Expect(errors.Is(err, errNodeDeleting)).To(BeTrue())
		_, isTried := tried.Load(3)
		Expect(isTried).To(BeTrue())
	})
})
