package update

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/event"

	poolv1 "github.com/poolboot/cluster-api-bootstrap-provider-poolboot/api/pool/v1alpha1"
	"github.com/poolboot/cluster-api-bootstrap-provider-poolboot/bootstrap/rollout"
)

var _ = Describe("An update of a pool whose hosts stage", func() {
	// staging returns a pool with hosts that stage a revision.
	staging := func(hosts int, revision string) *poolv1.MachineConfigPool {
		candidates := make([]rollout.Candidate, hosts)
		for i := range candidates {
			candidates[i] = rollout.Candidate{Name: fmt.Sprintf("host-%d", i), Target: revision, IsStaging: true}
		}
		p := &poolv1.MachineConfigPool{ObjectMeta: metav1.ObjectMeta{Namespace: "edge", Name: "infra"}}
		p.Status.Staging, _ = rollout.Stage(nil, candidates, hosts, time.Now())
		return p
	}
	requested := func(before, after *poolv1.MachineConfigPool) int {
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[ctrl.Request]())
		defer queue.ShutDown()
		slotHandler().Update(context.Background(), event.UpdateEvent{ObjectOld: before, ObjectNew: after}, queue)
		return queue.Len()
	}

	It("requests the hosts that are to stage something else", func() {
		before, after := staging(20, "a"), staging(20, "a")
		Expect(requested(before, after)).To(BeZero())
		after.Status.Staging[0].Revision, after.Status.Staging[13].Revision = "b", "b"
		Expect(requested(before, after)).To(Equal(2))
		before.Status.Staging = before.Status.Staging[:15]
		Expect(requested(before, after)).To(Equal(7))
	})

	// Eight times as many hosts cost about 8 times as much, and 64 times if each is searched for in a list.
	It("costs a time that grows with the number of hosts, and not with its square", func() {
		cost := func(hosts int) time.Duration {
			before, after := staging(hosts, "a"), staging(hosts, "a")
			least := time.Hour
			for range 10 { // others on the machine can only add to the least
				start := time.Now()
				Expect(requested(before, after)).To(BeZero())
				least = min(least, time.Since(start))
			}
			return max(least, 300*time.Microsecond) // less is what the clock and the garbage collector add
		}
		Expect(cost(rollout.MaxSlots).Seconds() / cost(rollout.MaxSlots/8).Seconds()).To(BeNumerically("<", 30))
	})
})
